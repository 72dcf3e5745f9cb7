//! Parses any bytes as a value or as a stream of messages, for [`crate::fuzzing`].

use bytes::Bytes;
use fanin_json::Doc;
use postgres_types::Type;

use super::message_stream::fuzz::whole_messages;
use super::messages::Body;
use super::server_error::{ServerError, error_status};
use super::statement::{fields, param_types};
use super::values::ColumnReader;

/// Longest array, and longest row.
const MOST: usize = 1 << 20;

/// Parses bytes as a value of the type with this number. Whether it is one.
///
/// # Panics
/// If the output is not JSON.
pub fn value(number: u16, bytes: &[u8]) -> bool {
    let Some(reader) = Type::from_oid(number.into()).and_then(|kind| ColumnReader::of(&kind)) else { return false };
    let mut out = Vec::new();
    if reader.write(bytes, MOST, &mut out).is_none() {
        return false;
    }
    let is_json = Doc::parse(Bytes::from(out.clone()), 64).is_ok();
    // JSON is passed on as it comes, and whoever reads the answer checks it.
    assert!(is_json || reader.holds_json(), "{reader:?}: {}", out.escape_ascii());
    true
}

/// Parses bytes as messages of a server, in pieces of every size up to 16. Whether there is a message and none is wrong.
///
/// # Panics
/// If what is found depends on the size of the pieces.
pub fn messages(bytes: &[u8]) -> bool {
    let (found, whole) = whole_messages(bytes, bytes.len().max(1), MOST);
    for piece in 1..=16 {
        assert!(whole_messages(bytes, piece, MOST) == (found.clone(), whole), "in pieces of {piece}");
    }
    let well = found.iter().all(|(tag, body)| read(*tag, body));
    whole && well && !found.is_empty()
}

/// Reads a message's body as the client does. Whether it is one.
fn read(tag: u8, body: &[u8]) -> bool {
    match tag {
        b't' => param_types(Body(body)).is_some(),
        b'T' => fields(Body(body)).is_some(),
        b'E' => {
            let error = ServerError::read(Body(body));
            error_status(&error).status.as_u16() >= 400 && !error.code().is_empty()
        }
        b'D' => {
            let mut body = Body(body);
            let count = body.u16();
            count.is_some_and(|count| (0..count).all(|_| body.value().is_some()))
        }
        b'C' => Body(body).text().is_some(),
        _ => true,
    }
}
