//! Events in the format of server-sent events (`text/event-stream`).

use std::fmt::Write;

use bytes::Bytes;

/// Names of events that only the server sends.
pub(crate) const RESERVED: [&str; 2] = ["lost", "drain"];

/// Longest name of an event, in bytes.
pub(crate) const MAX_NAME: usize = 128;

/// An event, written once for all subscribers.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    bytes: Bytes,
    /// Where what follows the line of the id starts.
    rest: u32,
}

impl Event {
    /// Writes an event. `name` has no line break.
    pub(crate) fn new(id: &str, name: Option<&str>, data: &[u8]) -> Event {
        let mut text = Vec::with_capacity(id.len() + data.len() + 32 + name.map_or(0, str::len));
        for part in ["id: ", id, "\n"] {
            text.extend_from_slice(part.as_bytes());
        }
        // An event has a bound far below 4 GiB, its id one of some hundred bytes.
        let rest = text.len() as u32;
        if let Some(name) = name {
            for part in ["event: ", name, "\n"] {
                text.extend_from_slice(part.as_bytes());
            }
        }
        // JSON may have line breaks between its parts. A client joins the lines again.
        for line in data.split(|byte| matches!(byte, b'\n' | b'\r')) {
            text.extend_from_slice(b"data: ");
            text.extend_from_slice(line);
            text.push(b'\n');
        }
        text.push(b'\n');
        Event { bytes: text.into(), rest }
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The event with the id of its channel.
    pub(crate) fn bytes(&self) -> Bytes {
        self.bytes.clone()
    }

    /// The same event with another id.
    pub(crate) fn with_id(&self, id: &str) -> Bytes {
        let rest = &self.bytes[self.rest as usize..];
        let mut text = Vec::with_capacity(id.len() + rest.len() + 5);
        for part in ["id: ", id, "\n"] {
            text.extend_from_slice(part.as_bytes());
        }
        text.extend_from_slice(rest);
        text.into()
    }
}

/// What a subscriber gets first: where it is, so that it can come back before its first event.
pub(crate) fn start(id: &str, retry_ms: u128, lost: bool) -> Bytes {
    let mut text = format!("retry: {retry_ms}\nid: {id}\n");
    if lost {
        text.push_str("event: lost\ndata: {}\n");
    }
    text.push('\n');
    text.into()
}

/// Events are missing here. The id is where the channel is now.
pub(crate) fn lost(id: &str) -> Bytes {
    format!("id: {id}\nevent: lost\ndata: {{}}\n\n").into()
}

/// The server ends: the client should come back after `retry_ms`.
pub(crate) fn drain(retry_ms: u128) -> Bytes {
    let mut text = String::with_capacity(48);
    // Writing to a string cannot fail.
    let _ = write!(text, "retry: {retry_ms}\nevent: drain\ndata: {{}}\n\n");
    text.into()
}

/// A comment, which clients ignore.
pub(crate) const HEARTBEAT: Bytes = Bytes::from_static(b":\n\n");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_data_stay_one_event() {
        let event = Event::new("e-1", Some("score"), b"{\n\"a\": 1\r}");
        assert_eq!(event.bytes(), "id: e-1\nevent: score\ndata: {\ndata: \"a\": 1\ndata: }\n\n");
        assert_eq!(event.with_id("e-1.2"), "id: e-1.2\nevent: score\ndata: {\ndata: \"a\": 1\ndata: }\n\n");
        assert_eq!(Event::new("e-1", None, b"1").bytes(), "id: e-1\ndata: 1\n\n");
    }
}
