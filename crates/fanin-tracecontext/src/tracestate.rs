//! The header `tracestate`: a list of members that other systems have written. It is passed on as it came, within its limits.

use http::{HeaderMap, HeaderName, HeaderValue};

/// The header's name.
pub const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// Most members.
const MAX_MEMBERS: usize = 32;
/// Longest key, and longest value.
const MAX_PART: usize = 256;
/// The characters that every participant passes on. More is cut.
const MAX_LENGTH: usize = 512;
/// Members above this length are dropped first.
const LONG: usize = 128;

/// The members of all lines, as one value. `None`: there are none, or one of them is not valid.
pub(crate) fn read(headers: &HeaderMap) -> Option<HeaderValue> {
    let mut members: Vec<&[u8]> = Vec::new();
    for line in headers.get_all(TRACESTATE) {
        for member in line.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
            if member.is_empty() {
                continue;
            }
            if members.len() == MAX_MEMBERS || !is_member(member) {
                return None;
            }
            members.push(member);
        }
    }
    cut(&mut members);
    HeaderValue::from_bytes(&members.join(&b","[..])).ok().filter(|value| !value.is_empty())
}

/// Drops members until the rest is short enough: long ones first, then from the end.
fn cut(members: &mut Vec<&[u8]>) {
    let length = |members: &[&[u8]]| members.iter().map(|member| member.len() + 1).sum::<usize>().saturating_sub(1);
    while length(members) > MAX_LENGTH {
        let at = members.iter().rposition(|member| member.len() > LONG).unwrap_or(members.len() - 1);
        members.remove(at);
    }
}

fn is_member(member: &[u8]) -> bool {
    let Some(at) = member.iter().position(|byte| *byte == b'=') else { return false };
    let (key, value) = (&member[..at], &member[at + 1..]);
    let is_key = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-*/@".contains(byte);
    let is_value = |byte: &u8| (0x20..=0x7e).contains(byte) && !b",=".contains(byte);
    (1..=MAX_PART).contains(&key.len())
        && (key[0].is_ascii_lowercase() || key[0].is_ascii_digit())
        && key.iter().all(is_key)
        && (1..=MAX_PART).contains(&value.len())
        && value.iter().all(is_value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(lines: &[&str]) -> Option<String> {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(TRACESTATE, HeaderValue::from_str(line).expect("a value"));
        }
        read(&headers).map(|value| value.to_str().expect("text").to_owned())
    }

    #[test]
    fn lines_are_joined_and_one_invalid_member_discards_all() {
        assert_eq!(state(&["a=1 ,\tb=2", "", "c=3,"]).as_deref(), Some("a=1,b=2,c=3"));
        assert_eq!(state(&["a=1", "B=2"]), None);
        assert_eq!(state(&[]), None);
        assert_eq!(state(&[",,"]), None);
        for bad in ["a", "=1", "a=", "@a=1", "a b=1", "a=1=2", "a=é"] {
            assert_eq!(state(&[bad]), None, "{bad}");
        }
    }

    #[test]
    fn a_long_list_loses_long_members_first_and_then_the_last() {
        let long = format!("long={}", "x".repeat(200));
        let short: Vec<String> = (0..25).map(|at| format!("k{at:02}={}", "y".repeat(16))).collect();
        let all = format!("{long},{}", short.join(","));
        let left = state(&[&all]).expect("a state");
        assert!(left.len() <= MAX_LENGTH && left.starts_with("k00=") && left.ends_with(&short[23]), "{left}");
        let fits = format!("a={},b={}", "x".repeat(256), "y".repeat(251));
        assert_eq!((state(&[&fits]).as_deref(), fits.len()), (Some(&*fits), 512));
    }
}
