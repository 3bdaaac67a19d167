//! How messages are read: with a bound on what they become.

use std::marker::PhantomData;

use prost::Message;
use prost::bytes::{Buf as _, Bytes};
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

/// Most parts of a message, such as the nodes of a deletion: ten times what a cluster has. Two bytes on the wire may become a hundred in
/// memory.
pub const MOST_PARTS: usize = 65_536;

/// Protobuf that is read by `R`: sends `T`, receives `U`.
#[derive(Debug)]
pub struct Protobuf<T, U, R>(PhantomData<fn(U, R) -> T>);

/// How the messages of a codec are read.
pub trait Reader<U>: 'static {
    /// How large the buffers of a call are.
    fn buffers() -> BufferSettings {
        BufferSettings::default()
    }

    /// Reads a message, or refuses it.
    ///
    /// # Errors
    /// Why it is refused.
    fn read(message: Bytes) -> Result<U, Status>;
}

impl<T, U, R> Default for Protobuf<T, U, R> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T: Message + 'static, U: Send + 'static, R: Reader<U>> Codec for Protobuf<T, U, R> {
    type Encode = T;
    type Decode = U;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self::default()
    }

    fn decoder(&mut self) -> Self {
        Self::default()
    }
}

impl<T: Message, U, R: Reader<U>> Encoder for Protobuf<T, U, R> {
    type Item = T;
    type Error = Status;

    fn encode(&mut self, message: T, buf: &mut EncodeBuf<'_>) -> Result<(), Status> {
        message.encode(buf).map_err(|error| Status::internal(error.to_string()))
    }

    fn buffer_settings(&self) -> BufferSettings {
        R::buffers()
    }
}

impl<T, U, R: Reader<U>> Decoder for Protobuf<T, U, R> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, buf: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        // No copy: the message lies in one piece.
        R::read(buf.copy_to_bytes(buf.remaining())).map(Some)
    }

    fn buffer_settings(&self) -> BufferSettings {
        R::buffers()
    }
}

/// The codec of all clients and servers that are generated here.
pub(crate) type Bounded<T, U> = Protobuf<T, U, FewParts>;

/// Counts the parts of a message before it is decoded. What cannot be read is the fault of who sent it, `INVALID_ARGUMENT`.
#[derive(Debug)]
pub enum FewParts {}

impl<U: Message + Default> Reader<U> for FewParts {
    fn read(message: Bytes) -> Result<U, Status> {
        if fields(&message).take(MOST_PARTS + 1).count() > MOST_PARTS {
            return Err(Status::resource_exhausted(format!(
                "the message has more than {MOST_PARTS} parts; send it in several"
            )));
        }
        U::decode(message).map_err(|error| Status::invalid_argument(error.to_string()))
    }
}

/// A field's number, and its bytes where it has a length; `None` for what is no field.
pub type Field<'a> = Option<(u64, Option<&'a [u8]>)>;

/// The fields of a message, up to and including the first that is none. Nothing is stored.
pub fn fields(mut rest: &[u8]) -> impl Iterator<Item = Field<'_>> {
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let field = field(&mut rest);
        if field.is_none() {
            rest = &[];
        }
        Some(field)
    })
}

fn field<'a>(rest: &mut &'a [u8]) -> Field<'a> {
    let key = varint(rest).filter(|key| key >> 3 > 0)?;
    let value = match key & 7 {
        0 => {
            varint(rest)?;
            None
        }
        1 => {
            rest.split_off(..8)?;
            None
        }
        2 => {
            let length = usize::try_from(varint(rest)?).ok()?;
            Some(rest.split_off(..length)?)
        }
        5 => {
            rest.split_off(..4)?;
            None
        }
        // Groups, which no message here has ever had.
        _ => return None,
    };
    Some((key >> 3, value))
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = *rest.split_off_first()?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_are_no_fields() {
        assert_eq!(fields(&[0; 64]).collect::<Vec<_>>(), [None]);
    }
}
