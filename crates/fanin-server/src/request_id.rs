//! The id of a request.

use std::fmt;

/// What the request is called in logs and problem documents: unique within a process, and nearly so between processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestId(u64);

impl RequestId {
    /// An id with this number.
    pub const fn new(id: u64) -> RequestId {
        RequestId(id)
    }

    /// The id as a number.
    pub fn number(self) -> u64 {
        self.0
    }

    pub(crate) fn hex(self) -> [u8; 16] {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = [0; 16];
        for (at, digit) in text.iter_mut().enumerate() {
            *digit = DIGITS[(self.0 >> (60 - 4 * at)) as usize & 15];
        }
        text
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_and_display_agree() {
        for id in [0, 1, 0xdead_beef_0000_00ff, u64::MAX] {
            let id = RequestId::new(id);
            assert_eq!(std::str::from_utf8(&id.hex()).unwrap(), id.to_string());
        }
    }
}
