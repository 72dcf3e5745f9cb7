//! `headers` and `forward_headers` of an upstream.

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::reader::Table;
use crate::values::http::{FRAMING, header_name};
use crate::values::secret::is_secret;

/// Reads `headers`.
pub(super) fn read_headers(table: &mut Table<'_, '_>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, text) in table.strings("headers") {
        let read = header_name(&name.value).and_then(|header| {
            if FRAMING.contains(&header.as_str()) && header != http::header::HOST {
                return Err(format!("`{header}` is set by Fanin; remove it"));
            }
            if headers.contains_key(&header) {
                return Err(format!("`{header}` occurs twice; remove one"));
            }
            let mut value = HeaderValue::from_str(&text.text)
                .map_err(|_| format!("the value of `{header}` contains characters that are not allowed in a header"))?;
            // Keeps the value out of logs, `/config` and the compression tables of HTTP/2.
            value.set_sensitive(text.variable || is_secret(&header));
            headers.insert(header, value);
            Ok(())
        });
        if let Err(problem) = read {
            table.reader().error(&name.span, format!("{}.headers: {problem}", table.name()));
        }
    }
    headers
}

/// Parses the name of a header that may be forwarded.
pub(super) fn forwardable(text: &str) -> Result<HeaderName, String> {
    let header = header_name(text)?;
    if FRAMING.contains(&header.as_str()) {
        return Err(format!("`{header}` belongs to the client's connection and cannot be forwarded; remove it"));
    }
    Ok(header)
}
