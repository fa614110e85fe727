//! The protobuf wire format: splits a message into its fields.
//!
//! In: the bytes of one message. Out: field numbers with their payloads, which borrow from the input. Groups, which no
//! Kubernetes message has, are passed over without recursion. Every call takes at least one byte or ends.

use crate::ProtoError;

pub(crate) struct Fields<'b> {
    rest: &'b [u8],
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Payload<'b> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'b [u8]),
    Fixed32(u32),
}

/// What a tag announces.
enum Wire {
    Varint,
    Fixed64,
    Bytes,
    GroupStart,
    GroupEnd,
    Fixed32,
}

impl<'b> Fields<'b> {
    pub(crate) fn new(message: &'b [u8]) -> Self {
        Fields { rest: message }
    }

    /// The next field, or `None` at the end of the message.
    pub(crate) fn next(&mut self) -> Result<Option<(u32, Payload<'b>)>, ProtoError> {
        // The numbers of the groups that are open; what lies in them is unknown and dropped.
        let mut groups = Vec::new();
        loop {
            if self.rest.is_empty() {
                return if groups.is_empty() { Ok(None) } else { Err(ProtoError::Truncated) };
            }
            let (number, wire) = self.tag()?;
            let payload = match wire {
                Wire::Varint => Payload::Varint(self.varint()?),
                Wire::Fixed64 => Payload::Fixed64(u64::from_le_bytes(self.array()?)),
                Wire::Fixed32 => Payload::Fixed32(u32::from_le_bytes(self.array()?)),
                Wire::Bytes => {
                    let length = usize::try_from(self.varint()?).map_err(|_| ProtoError::Truncated)?;
                    Payload::Bytes(self.take(length)?)
                }
                Wire::GroupStart => {
                    groups.push(number);
                    continue;
                }
                Wire::GroupEnd => match groups.pop() {
                    Some(open) if open == number => continue,
                    _ => return Err(ProtoError::BadTag(u64::from(number) << 3 | 4)),
                },
            };
            if groups.is_empty() {
                return Ok(Some((number, payload)));
            }
        }
    }

    fn tag(&mut self) -> Result<(u32, Wire), ProtoError> {
        let tag = self.varint()?;
        let wire = match tag & 7 {
            0 => Wire::Varint,
            1 => Wire::Fixed64,
            2 => Wire::Bytes,
            3 => Wire::GroupStart,
            4 => Wire::GroupEnd,
            5 => Wire::Fixed32,
            _ => return Err(ProtoError::BadTag(tag)),
        };
        match u32::try_from(tag >> 3) {
            Ok(number @ 1..0x2000_0000) => Ok((number, wire)),
            _ => Err(ProtoError::BadTag(tag)),
        }
    }

    fn varint(&mut self) -> Result<u64, ProtoError> {
        let (value, rest) = varint(self.rest)?;
        self.rest = rest;
        Ok(value)
    }

    fn take(&mut self, length: usize) -> Result<&'b [u8], ProtoError> {
        let (head, rest) = self.rest.split_at_checked(length).ok_or(ProtoError::Truncated)?;
        self.rest = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], ProtoError> {
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or(ProtoError::Truncated)?;
        self.rest = rest;
        Ok(*head)
    }
}

/// Reads one base-128 number; gives it and what follows. Bits above the 64th are dropped, as Go does.
pub(crate) fn varint(bytes: &[u8]) -> Result<(u64, &[u8]), ProtoError> {
    let mut value = 0u64;
    for (n, byte) in bytes.iter().enumerate().take(10) {
        value |= u64::from(byte & 0x7f) << (7 * n);
        if byte & 0x80 == 0 {
            return Ok((value, bytes.get(n + 1..).unwrap_or_default()));
        }
    }
    Err(if bytes.len() < 10 { ProtoError::Truncated } else { ProtoError::LongNumber })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(bytes: &[u8], expected: &str) {
        let mut fields = Fields::new(bytes);
        let mut seen = Vec::new();
        loop {
            match fields.next() {
                Ok(Some((number, payload))) => seen.push(format!("{number}={payload:?}")),
                Ok(None) => break,
                Err(error) => {
                    seen.push(format!("{error:?}"));
                    break;
                }
            }
        }
        assert_eq!(seen.join(" "), expected);
    }

    #[test]
    fn payloads() {
        check(b"", "");
        check(b"\x08\x01", "1=Varint(1)");
        check(b"\x08\x96\x01", "1=Varint(150)");
        check(b"\x12\x02hi\x08\x00", "2=Bytes([104, 105]) 1=Varint(0)");
        check(b"\x09\x01\0\0\0\0\0\0\0", "1=Fixed64(1)");
        check(b"\x0d\x02\0\0\0", "1=Fixed32(2)");
        check(b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "1=Varint(18446744073709551615)");
        check(b"\x82\x01\x00", "16=Bytes([])");
    }

    #[test]
    fn groups_are_passed_over() {
        check(b"\x0b\x08\x05\x13\x14\x0c\x08\x07", "1=Varint(7)");
        check(b"\x0b\x08\x05", "Truncated");
        check(b"\x0b\x14", "BadTag(20)");
        check(b"\x0c", "BadTag(12)");
    }

    #[test]
    fn malformed() {
        check(b"\x08", "Truncated");
        check(b"\x08\x80", "Truncated");
        check(b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "LongNumber");
        check(b"\x12\x03hi", "Truncated");
        check(b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "Truncated");
        check(b"\x09\x01\0\0", "Truncated");
        check(b"\x00\x01", "BadTag(0)");
        check(b"\x0e", "BadTag(14)");
        check(b"\xff\xff\xff\xff\xff\xff\xff\xff\x78", "BadTag(8718968878589280255)");
    }
}
