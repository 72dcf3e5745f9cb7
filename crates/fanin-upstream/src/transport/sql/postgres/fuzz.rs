//! Values of any bytes, for [`crate::fuzzing`].

use bytes::Bytes;
use fanin_json::Doc;
use postgres_types::Type;

use super::values::ColumnReader;

/// Bytes as a value of the type with this number. Gives whether it is one.
///
/// # Panics
/// If what is written of it is no JSON.
pub fn value(number: u16, bytes: &[u8]) -> bool {
    let Some(reader) = Type::from_oid(number.into()).and_then(|kind| ColumnReader::of(&kind)) else { return false };
    let mut out = Vec::new();
    if reader.write(bytes, &mut out).is_none() {
        return false;
    }
    let is_json = Doc::parse(Bytes::from(out.clone()), 64).is_ok();
    // The database has checked its own JSON, and whoever reads the answer does so again.
    assert!(is_json || reader.holds_json(), "{reader:?}: {}", out.escape_ascii());
    true
}
