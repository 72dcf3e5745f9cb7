//! Parsers of what clients and load balancers send, for the fuzz targets in `fuzz/` and their bounded runs in the tests.

pub use crate::client::fuzz::{forwarded, proxy_header};
pub use crate::connection::fuzz::requests;
