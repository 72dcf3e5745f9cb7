//! `request_id` of `[server]`.

use http::HeaderName;

use crate::reader::Table;
use crate::upstream::keys::Upstream;
use crate::upstream::kind::has_key;
use crate::values::http::REQUEST_ID_HEADERS;

/// Reads the header for ids of requests, or `"off"`.
pub(crate) fn read(table: &mut Table<'_, '_>) -> Option<Option<HeaderName>> {
    let known = || REQUEST_ID_HEADERS.map(|name| format!("\"{name}\"")).join(", ");
    let found =
        table.parsed("request_id", "a header's name or \"off\"", |text| match text.to_ascii_lowercase().as_str() {
            "off" => Ok(None),
            text => match REQUEST_ID_HEADERS.iter().find(|name| **name == text) {
                Some(name) => Ok(Some(HeaderName::from_static(name))),
                None => Err(format!("`{text}` is not allowed; write {}, or \"off\"", known())),
            },
        });
    found.map(|at| at.value)
}

/// Calls of an upstream carry the id of their request.
pub(crate) fn forward(name: Option<&HeaderName>, upstream: &mut Upstream) {
    if let Some(name) = name
        && has_key(upstream.kind(), "forward_headers")
        && !upstream.forward_headers.contains(name)
    {
        upstream.forward_headers.push(name.clone());
    }
}
