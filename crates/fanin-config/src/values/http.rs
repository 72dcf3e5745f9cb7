//! HTTP methods, header names and listen addresses.

use std::net::SocketAddr;

use http::{HeaderName, Method};

/// The HTTP methods of routes and operations.
pub(crate) const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

/// Parses any method, as a route may pass it on.
pub(crate) fn any_method(text: &str) -> Result<Method, String> {
    let is_name = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-');
    let method = Method::from_bytes(text.as_bytes()).ok().filter(|method| is_name && *method != Method::CONNECT);
    method.ok_or_else(|| format!("`{text}` is not a method such as GET or PROPFIND"))
}

/// Hop-by-hop headers, and headers that frame the message. Fanin sets them itself.
pub(crate) const FRAMING: [&str; 10] = [
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

/// The headers that may carry a request's id. Calls that differ in these only are the same call, so that ids do not keep cached answers
/// apart.
pub const REQUEST_ID_HEADERS: [&str; 4] = ["x-request-id", "request-id", "x-correlation-id", "correlation-id"];

/// Parses the name of a header.
pub(crate) fn header_name(text: &str) -> Result<HeaderName, String> {
    HeaderName::from_bytes(text.as_bytes()).map_err(|_| format!("`{text}` is not the name of a header"))
}

/// Parses an IP address with a port.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| match text.rsplit_once(':') {
        Some((_, port)) if port.parse::<u16>().is_ok() => {
            format!("`{text}` is not an address; write an IP address and a port, such as \"0.0.0.0:{port}\"")
        }
        _ => format!("`{text}` is not an address; write an IP address and a port, such as \"127.0.0.1:8080\""),
    })
}
