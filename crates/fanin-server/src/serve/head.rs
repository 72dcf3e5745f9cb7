//! What the head of a request says: upgrades, calls of methods, transfer codings.

use http::header::TRANSFER_ENCODING;
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Uri, Version};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;

use crate::rpc::{Call, Protocol};

/// hyper adds an extension to requests with `Upgrade`. Those of HTTP/2, and of other methods, get an ordinary response.
#[inline]
pub(super) fn can_upgrade(parts: &Parts, body: &Incoming) -> bool {
    !parts.extensions.is_empty()
        && parts.extensions.get::<OnUpgrade>().is_some()
        && parts.version == Version::HTTP_11
        && parts.method == Method::GET
        && body.is_end_stream()
}

/// How a request to a route for a method calls it. gRPC has no form for errors over HTTP/1.1.
#[cold]
pub(super) fn called(parts: &Parts) -> Option<Call> {
    let call = Call::of(&parts.method, &parts.headers);
    call.filter(|call| call.protocol != Protocol::Grpc || parts.version == Version::HTTP_2)
}

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
