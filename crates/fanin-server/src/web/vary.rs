//! `Vary`: the request headers that a response depends on (RFC 9110, 12.5.5).

use http::HeaderMap;
use http::header::{HeaderName, HeaderValue, VARY};

/// Adds a name to `Vary`, unless it is there.
pub(super) fn add(headers: &mut HeaderMap, name: &HeaderName) {
    let is_there = headers.get_all(VARY).iter().any(|value| {
        let mut names = value.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
        names.any(|there| there == b"*" || there.eq_ignore_ascii_case(name.as_str().as_bytes()))
    });
    if !is_there {
        headers.append(VARY, HeaderValue::from(name.clone()));
    }
}

#[cfg(test)]
mod tests {
    use http::header::{ACCEPT_ENCODING, ORIGIN};

    use super::*;

    #[test]
    fn a_name_is_added_once() {
        let mut headers = HeaderMap::new();
        headers.insert(VARY, HeaderValue::from_static("Accept, origin"));
        for name in [ORIGIN, ACCEPT_ENCODING, ACCEPT_ENCODING] {
            add(&mut headers, &name);
        }
        let all: Vec<_> = headers.get_all(VARY).iter().collect();
        assert_eq!(all, ["Accept, origin", "accept-encoding"]);
        headers.insert(VARY, HeaderValue::from_static("*"));
        add(&mut headers, &ORIGIN);
        assert_eq!(headers[VARY], "*");
    }
}
