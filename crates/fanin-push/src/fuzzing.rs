//! Reads any bytes as the id of an event that a client names, for the fuzz target `event_id`.

use crate::position::{id, parse};

/// Bytes as a `Last-Event-ID` of this life of the process. Whether it names places.
///
/// # Panics
/// If an id that is read is written as one of other places.
pub fn event_id(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    (0..4).any(|channels| {
        let Some(places) = parse(text, "a1", channels) else { return false };
        assert_eq!(places.len(), channels);
        let written = id("a1", places.iter().copied());
        assert_eq!(parse(&written, "a1", channels).as_ref(), Some(&places), "{written}");
        true
    })
}
