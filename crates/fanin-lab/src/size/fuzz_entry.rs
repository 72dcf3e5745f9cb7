//! Reading of access logs, for [`crate::fuzzing`].

use std::io::Cursor;
use std::path::PathBuf;

use super::Options;
use super::collect::Collected;
use super::input::Log;

/// Any bytes as an access log. Whether it has requests.
pub fn access_log(bytes: &[u8]) -> bool {
    let log = Log::read(PathBuf::from("access.log"), Box::new(Cursor::new(bytes.to_vec())));
    let mut collected = Collected::default();
    let options = Options { max_requests: 10_000, ..Options::default() };
    log.and_then(|log| collected.read(log, &options, &mut || ())).is_ok() && !collected.records.is_empty()
}
