//! Parsers of what clients and load balancers send, for the fuzz targets in `fuzz/` and their bounded runs in the tests.

pub use crate::client::fuzz::{forwarded, proxy_header};
pub use crate::connection::fuzz::requests;

/// Reads any bytes as `Accept-Encoding` and as a list of entity tags. Whether a client that sends this gets an encoded response.
///
/// # Panics
/// On a defect.
pub fn accept(bytes: &[u8]) -> bool {
    crate::web::fuzz::tags(bytes);
    crate::web::fuzz::accept_encoding(bytes)
}

/// Reads any bytes as `Cache-Control` and as `Range`. Whether they are either.
///
/// # Panics
/// On a defect.
pub fn caching(bytes: &[u8]) -> bool {
    let (directives, range) = (crate::cache::fuzz::directives(bytes), crate::cache::fuzz::range(bytes));
    directives || range
}

/// Reads any bytes as the bodies of all protocols that call methods, and as a query. Whether one of them takes the bytes.
///
/// # Panics
/// On a defect.
pub fn calls(bytes: &[u8]) -> bool {
    crate::rpc::request::fuzz(bytes)
}
