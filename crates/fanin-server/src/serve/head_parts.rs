//! Parts of a head: the target and the transfer coding.

use http::header::TRANSFER_ENCODING;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Uri};

/// The same target with another path.
#[cold]
pub(super) fn with_path(target: Uri, path: &str) -> Uri {
    let query = target.query().map_or(String::new(), |query| format!("?{query}"));
    let mut parts = target.clone().into_parts();
    parts.path_and_query = PathAndQuery::try_from(format!("{path}{query}")).ok();
    // The path has only lost characters, so it is as valid as before.
    Uri::from_parts(parts).unwrap_or(target)
}

/// Whether a body comes as it is, or in chunks. hyper takes any list of codings that ends in chunked, and decodes no other.
pub(super) fn is_chunked_at_most(headers: &HeaderMap) -> bool {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    let is_chunked = |coding: &HeaderValue| coding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked");
    codings.next().is_none_or(is_chunked) && codings.next().is_none()
}
