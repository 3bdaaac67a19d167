//! Protobuf by hand: enough to write and read the messages of this crate.

/// A message being written, field by field.
#[derive(Default, Clone)]
pub(crate) struct Out(Vec<u8>);

impl Out {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Wire type 0. Negative numbers go out as their 64-bit two's complement.
    pub(crate) fn int(self, number: u64, value: i64) -> Self {
        self.raw_varint(number << 3).raw_varint(value.cast_unsigned())
    }

    /// Wire type 1.
    pub(crate) fn double(self, number: u64, value: f64) -> Self {
        let mut out = self.raw_varint(number << 3 | 1);
        out.0.extend_from_slice(&value.to_le_bytes());
        out
    }

    /// Wire type 2: strings, bytes and messages are one and the same.
    pub(crate) fn bytes(self, number: u64, value: impl AsRef<[u8]>) -> Self {
        let value = value.as_ref();
        let mut out = self.raw_varint(number << 3 | 2).raw_varint(u64::try_from(value.len()).unwrap());
        out.0.extend_from_slice(value);
        out
    }

    /// A map is a repeated message of key 1 and value 2.
    pub(crate) fn entry(self, number: u64, key: &str, value: impl AsRef<[u8]>) -> Self {
        self.bytes(number, Self::new().bytes(1, key).bytes(2, value))
    }

    /// Runs `write` only for releases that have the field.
    pub(crate) fn when(self, has: bool, write: impl FnOnce(Self) -> Self) -> Self {
        if has { write(self) } else { self }
    }

    pub(crate) fn raw_varint(mut self, mut value: u64) -> Self {
        while value > 0x7f {
            self.0.push(u8::try_from(value & 0x7f).unwrap() | 0x80);
            value >>= 7;
        }
        self.0.push(u8::try_from(value).unwrap());
        self
    }

    pub(crate) fn done(self) -> Vec<u8> {
        self.0
    }
}

impl AsRef<[u8]> for Out {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// The value of a field as read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Value<'a> {
    Int(i64),
    Double(f64),
    Bytes(&'a [u8]),
}

/// Splits a message into its fields; `None` when a field is cut off.
pub(crate) fn fields(mut rest: &[u8]) -> Option<Vec<(u64, Value<'_>)>> {
    let mut fields = Vec::new();
    while !rest.is_empty() {
        let key = varint(&mut rest)?;
        let value = match key & 7 {
            0 => Value::Int(varint(&mut rest)?.cast_signed()),
            1 => Value::Double(f64::from_le_bytes(take(&mut rest, 8)?.try_into().ok()?)),
            2 => {
                let len = usize::try_from(varint(&mut rest)?).ok()?;
                Value::Bytes(take(&mut rest, len)?)
            }
            other => panic!("wire type {other} is not in any of our vectors"),
        };
        fields.push((key >> 3, value));
    }
    Some(fields)
}

/// The single field `number` of a whole message; `None` when absent.
pub(crate) fn field(message: &[u8], number: u64) -> Option<Value<'_>> {
    let mut found = fields(message).unwrap().into_iter().filter(|(n, _)| *n == number);
    let value = found.next().map(|(_, value)| value);
    assert!(found.next().is_none(), "field {number} comes twice");
    value
}

/// The single field `number`, which must be bytes, a string or a message.
pub(crate) fn inner(message: &[u8], number: u64) -> Option<&[u8]> {
    match field(message, number)? {
        Value::Bytes(bytes) => Some(bytes),
        other => panic!("field {number} is {other:?}"),
    }
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = take(rest, 1)?[0];
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    panic!("none of our vectors has a varint over ten bytes");
}

fn take<'a>(rest: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (head, tail) = rest.split_at_checked(len)?;
    *rest = tail;
    Some(head)
}
