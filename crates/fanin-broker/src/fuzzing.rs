//! Reading of messages from a broker, for the fuzz targets in `fuzz/` and their bounded runs in the tests.

use crate::message::{self, Kind};

/// Any bytes as a message. Whether it is one; it is then written again to the same bytes.
///
/// # Panics
/// If it is not.
pub fn message(bytes: &[u8]) -> bool {
    let Some(message) = message::parse(bytes) else { return false };
    let again = match &message.kind {
        Kind::Beat(beat) => message::beat(message.origin, beat),
        Kind::Event(event) => {
            let mut again = message::event(message.origin, event.channel, event.name, event.data);
            message::number(&mut again, event.sequence);
            again
        }
    };
    assert_eq!(again, bytes);
    true
}
