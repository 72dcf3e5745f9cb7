//! Headers of responses that only the server may write.

use http::header::{self, CONTENT_LENGTH, HeaderMap};

/// Removes headers that the server owns. A response copied from an upstream may have them.
pub(super) fn remove_connection_headers(headers: &mut HeaderMap) {
    let ours =
        [CONTENT_LENGTH, header::TRANSFER_ENCODING, header::CONNECTION, header::UPGRADE, header::TRAILER, header::TE];
    let is_ours = |name: &http::HeaderName| ours.contains(name) || name == "keep-alive" || name == "proxy-connection";
    // Comparing known names is cheap; removing each would hash it.
    if headers.keys().any(is_ours) {
        for name in ours {
            headers.remove(name);
        }
        headers.remove("keep-alive");
        headers.remove("proxy-connection");
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn connection_headers_are_removed() {
        let mut headers = HeaderMap::new();
        for name in ["content-length", "connection", "keep-alive", "x-mine", "transfer-encoding"] {
            headers.insert(name, HeaderValue::from_static("1"));
        }
        remove_connection_headers(&mut headers);
        assert_eq!(headers.keys().map(http::HeaderName::as_str).collect::<Vec<_>>(), ["x-mine"]);
    }
}
