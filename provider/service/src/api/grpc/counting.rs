//! A codec that counts before it decodes: a message can be much smaller than what it becomes.

use prost::Message;
use prost::bytes::Bytes;
use stoker_proto::codec::{Protobuf, Reader};
use tokio::runtime::{Handle, RuntimeFlavor};
use tonic::Status;
use tonic::codec::BufferSettings;

/// Bytes that a call holds for what it sends, and as many for what it receives, before there is a
/// message. A buffer grows with what comes; tonic's default of 8 KiB each would be a fifth of what an
/// idle probe's stream costs, thousands of times.
const BUFFER: usize = 1 << 10;
/// Bytes of messages after which an answer is passed on, as tonic's default is.
const YIELD_AFTER: usize = 32 << 10;
/// Bytes of a message from which on it is large: smaller ones are read, and ranked, within a millisecond.
pub(super) const LARGE: usize = 256 << 10;

/// A message that is read through, without storing anything, before it is decoded.
pub(super) trait Counted: Message + Default {
    /// Refuses what has more parts than make sense, or is no protobuf.
    fn check(message: &[u8]) -> Result<(), Status>;

    /// Refuses what cannot be decoded.
    fn bad(why: &str) -> Status;
}

/// Protobuf, counted before it is decoded: answers `E` to what is asked, `D`.
pub(super) type Counting<E, D> = Protobuf<E, D, CountedFirst>;

pub(super) enum CountedFirst {}

impl<D: Counted> Reader<D> for CountedFirst {
    fn buffers() -> BufferSettings {
        BufferSettings::new(BUFFER, YIELD_AFTER)
    }

    fn read(message: Bytes) -> Result<D, Status> {
        read_aside(message.len(), || {
            D::check(&message)?;
            D::decode(message).map_err(|error| D::bad(&error.to_string()))
        })
    }
}

/// Reads a message of that length. A large one takes up to seconds, and the thread that reads it may
/// be the one that watches all connections: that is handed to another thread first.
fn read_aside<T>(length: usize, read: impl FnOnce() -> T) -> T {
    let flavor = Handle::try_current().map(|handle| handle.runtime_flavor());
    match flavor {
        Ok(RuntimeFlavor::MultiThread) if length >= LARGE => tokio::task::block_in_place(read),
        _ => read(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn while_a_large_message_is_read_the_other_calls_go_on() {
        let (went_on, waits) = mpsc::channel();
        let reads = tokio::spawn(async move { read_aside(LARGE, || waits.recv_timeout(Duration::from_secs(10)).is_ok()) });
        tokio::spawn(async move { went_on.send(()) });
        assert!(reads.await.unwrap(), "the only worker was kept");
    }
}
