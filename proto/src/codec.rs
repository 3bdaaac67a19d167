//! How messages are read: with a bound on what they become.

use std::marker::PhantomData;

use prost::Message;
use prost::bytes::Buf as _;
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

/// Most parts of a message, such as the nodes of a deletion: ten times what a cluster has. Two bytes on the wire may become a hundred in
/// memory.
pub const MOST_PARTS: usize = 65_536;

/// Protobuf of which the parts are counted before they are decoded: sends `T`, receives `U`. What cannot be read is the fault of who sent
/// it, `INVALID_ARGUMENT`.
#[derive(Debug)]
pub struct Bounded<T, U>(PhantomData<fn(U) -> T>);

impl<T, U> Default for Bounded<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T: Message + 'static, U: Message + Default + 'static> Codec for Bounded<T, U> {
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

impl<T: Message, U> Encoder for Bounded<T, U> {
    type Item = T;
    type Error = Status;

    fn encode(&mut self, message: T, buf: &mut EncodeBuf<'_>) -> Result<(), Status> {
        message.encode(buf).map_err(|error| Status::internal(error.to_string()))
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::default()
    }
}

impl<T, U: Message + Default> Decoder for Bounded<T, U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, buf: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        // No copy: the message lies in one piece.
        let message = buf.copy_to_bytes(buf.remaining());
        if fields(&message).take(MOST_PARTS + 1).count() > MOST_PARTS {
            return Err(Status::resource_exhausted(format!(
                "the message has more than {MOST_PARTS} parts; send it in several"
            )));
        }
        U::decode(message).map(Some).map_err(|error| Status::invalid_argument(error.to_string()))
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::default()
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
