//! Parsers of what load balancers say, for the fuzz targets in `fuzz/` and their bounded runs in the tests.

pub use crate::client::fuzz::{forwarded, proxy_header};
