//! The header `traceparent`.

use http::HeaderName;

use crate::ids::{SpanId, TraceId};

/// The header's name.
pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// The length of version 00.
const LENGTH: usize = 55;

/// The trace is recorded.
pub(crate) const SAMPLED: u8 = 1;
/// The lowest 56 bits of the trace id are random.
const RANDOM: u8 = 2;

/// What the header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traceparent {
    /// The trace.
    pub trace: TraceId,
    /// The span that the request belongs to.
    pub parent: SpanId,
    /// The flags of level 2, and no others.
    pub flags: u8,
}

impl Traceparent {
    /// Reads the header's value. `None`: it is not valid, or of a version that nobody can read.
    pub fn parse(value: &[u8]) -> Option<Traceparent> {
        let value = value.trim_ascii();
        if value.len() < LENGTH || [value[2], value[35], value[52]] != [b'-'; 3] {
            return None;
        }
        let version = number(&value[..2])?;
        match (version, value.get(LENGTH)) {
            (0xff, _) | (0, Some(_)) => return None,
            // A later version may have more, after another dash.
            (_, Some(next)) if *next != b'-' => return None,
            _ => {}
        }
        let trace = TraceId::new(number(&value[3..35])?)?;
        let parent = SpanId::new(number(&value[36..52])? as u64)?;
        let flags = number(&value[53..55])? as u8 & (SAMPLED | RANDOM);
        Some(Traceparent { trace, parent, flags })
    }

    /// Writes the header's value, in version 00.
    pub fn text(self) -> [u8; LENGTH] {
        let mut text = *b"00-00000000000000000000000000000000-0000000000000000-00";
        text[3..35].copy_from_slice(&self.trace.hex());
        text[36..52].copy_from_slice(&self.parent.hex());
        text[54] = b'0' + self.flags;
        text
    }
}

/// Lower-case hexadecimal digits.
fn number(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0, |number, digit| {
        let digit = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(number << 4 | u128::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for flags in 0..4 {
            let parent = Traceparent { trace: TraceId::random(), parent: SpanId::random(), flags };
            assert_eq!(Traceparent::parse(&parent.text()), Some(parent));
        }
        let text = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        assert_eq!(Traceparent::parse(text).map(Traceparent::text), Some(*text));
    }

    #[test]
    fn unknown_flags_are_not_passed_on() {
        let read = Traceparent::parse(b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-ff");
        assert_eq!(read.map(|read| read.flags), Some(3));
    }

    #[test]
    fn no_slice_of_a_valid_value_is_valid() {
        let text = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        for end in 0..text.len() {
            assert_eq!(Traceparent::parse(&text[..end]), None);
        }
    }
}
