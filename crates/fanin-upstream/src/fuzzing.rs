//! Parsers of upstreams' bytes, for the fuzz targets in `fuzz/` and their bounded runs in the tests.

pub use crate::grpc::fuzz::frames;
pub use crate::grpc::transcode::fuzz::transcode;
pub use crate::transport::content_encoding::fuzz::content_encoding;
pub use crate::transport::http1::fuzz::{answer, chunked};
pub use crate::transport::sql::mysql::fuzz::value as mysql_value;
pub use crate::transport::sql::postgres::fuzz::{messages, value};
