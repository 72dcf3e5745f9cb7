//! The id of a request.

use std::fmt;

use http::{HeaderMap, HeaderName, HeaderValue};

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

/// The longest id that is taken from others.
const LONGEST: usize = 128;

/// The id by which others know a request: what a trusted client sends, or else the request's own. `headers` have it afterwards, once.
#[cold]
pub(crate) fn known(id: RequestId, name: &HeaderName, headers: &mut HeaderMap, is_trusted: bool) -> HeaderValue {
    let mut sent = headers.get_all(name).iter();
    if is_trusted
        && let (Some(only), None) = (sent.next(), sent.next())
        && is_valid(only.as_bytes())
    {
        return only.clone();
    }
    // Hexadecimal digits.
    let own = HeaderValue::from_bytes(&id.hex()).unwrap_or(HeaderValue::from_static("0"));
    headers.insert(name, own.clone());
    own
}

/// Characters that UUIDs, hashes, base64 and traces consist of. None of them needs to be escaped in a log.
fn is_valid(id: &[u8]) -> bool {
    let is_allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:=+/~@".contains(byte);
    (1..=LONGEST).contains(&id.len()) && id.iter().all(is_allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trusted_id_is_kept_and_any_other_one_replaced() {
        let name = HeaderName::from_static("x-request-id");
        let own = "0000000000000007";
        for (sent, is_trusted, expected) in [
            (vec!["b6f1-7"], true, "b6f1-7"),
            (vec!["Root=1-67891233:abc@x"], true, "Root=1-67891233:abc@x"),
            (vec!["b6f1-7"], false, own),
            (vec![], true, own),
            (vec!["a", "b"], true, own),
            (vec!["a b"], true, own),
            (vec!["\"a"], true, own),
            (vec![""], true, own),
        ] {
            let mut headers = HeaderMap::new();
            for id in &sent {
                headers.append(&name, HeaderValue::from_static(id));
            }
            assert_eq!(known(RequestId::new(7), &name, &mut headers, is_trusted), expected);
            assert_eq!(headers.get_all(&name).iter().collect::<Vec<_>>(), [expected]);
        }
        assert!(is_valid(&[b'a'; LONGEST]) && !is_valid(&[b'a'; LONGEST + 1]));
    }

    #[test]
    fn hex_and_display_agree() {
        for id in [0, 1, 0xdead_beef_0000_00ff, u64::MAX] {
            let id = RequestId::new(id);
            assert_eq!(std::str::from_utf8(&id.hex()).unwrap(), id.to_string());
        }
    }
}
