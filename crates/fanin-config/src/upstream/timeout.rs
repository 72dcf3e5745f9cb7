//! Timeouts for a part of a call.

use std::time::Duration;

use crate::reader::Table;

/// Reads a timeout for a part of a call. It must be shorter than the timeout of the call.
pub(crate) fn read_shorter_timeout(
    table: &mut Table<'_, '_>,
    key: &'static str,
    timeout: Duration,
) -> Option<Duration> {
    let part = table.duration(key)?;
    if part >= timeout {
        table.error(key, "must be shorter than `timeout`; otherwise it has no effect");
    }
    Some(part)
}
