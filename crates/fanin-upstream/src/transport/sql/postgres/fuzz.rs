//! Parses any bytes as a value, for [`crate::fuzzing`].

use bytes::Bytes;
use fanin_json::Doc;
use postgres_types::Type;

use super::values::ColumnReader;

/// Parses bytes as a value of the type with this number. Whether it is one.
///
/// # Panics
/// If the output is not JSON.
pub fn value(number: u16, bytes: &[u8]) -> bool {
    let Some(reader) = Type::from_oid(number.into()).and_then(|kind| ColumnReader::of(&kind)) else { return false };
    let mut out = Vec::new();
    if reader.write(bytes, &mut out).is_none() {
        return false;
    }
    let is_json = Doc::parse(Bytes::from(out.clone()), 64).is_ok();
    // JSON is passed on as it comes, and whoever reads the answer checks it.
    assert!(is_json || reader.holds_json(), "{reader:?}: {}", out.escape_ascii());
    true
}
