//! Headers that an upstream's calls carry: set ones, and those of the client's request that go on.

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::mask::is_secret;
use crate::read::header_name;
use crate::table::Table;

/// Headers that belong to one connection or to the message's framing; they are never copied from elsewhere.
const FRAMING: [&str; 10] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// The headers of the table `headers`.
pub(crate) fn read_headers(table: &mut Table<'_, '_>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, text) in table.strings("headers") {
        let read = header_name(&name.value).and_then(|header| {
            if FRAMING.contains(&header.as_str()) && header != http::header::HOST {
                return Err(format!("`{header}` belongs to the connection and can't be set"));
            }
            if headers.contains_key(&header) {
                return Err(format!("`{header}` is there twice"));
            }
            let mut value = HeaderValue::from_str(&text.text)
                .map_err(|_| format!("the value of `{header}` has characters that a header can't hold"))?;
            // Hidden from logs, `/config` and HTTP/2's compression tables.
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

/// A header that may be sent on.
pub(crate) fn forwardable(text: &str) -> Result<HeaderName, String> {
    let header = header_name(text)?;
    if FRAMING.contains(&header.as_str()) {
        return Err(format!("`{header}` belongs to the client's connection and can't be sent on"));
    }
    Ok(header)
}
