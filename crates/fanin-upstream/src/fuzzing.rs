//! What upstreams say, as any bytes: for the targets in `fuzz/`, and the bounded runs of them in the tests.

pub use crate::transport::http1::fuzz::answer;
pub use crate::transport::sql::postgres::fuzz::value;
