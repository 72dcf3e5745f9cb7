//! The events of a subscription as JSON texts, one each: for clients that get messages, not a stream of bytes.
//!
//! The log keeps each event once, as server-sent events are written. A text is made of that when it is sent.

use std::task::{Context, Poll};

use bytes::Bytes;

use crate::event::HEARTBEAT;
use crate::subscription::{End, Subscription};

/// A subscription whose events are sent as JSON texts. Its client answers heartbeats, so they come also while there are events.
pub struct Messages(Subscription);

/// What is to be sent to the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// A JSON object with the members `id`, `event`, `data` and `retry`, each if the event has it.
    Event(Vec<u8>),
    /// The same, and the subscription ends with it.
    Last(Vec<u8>, End),
    /// Something that the client answers.
    Heartbeat,
}

impl Messages {
    /// The events of a subscription of which nothing has been sent.
    pub fn new(mut subscription: Subscription) -> Messages {
        subscription.answers_heartbeats();
        Messages(subscription)
    }

    /// The next message; `None` at the end.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Message>> {
        self.0.poll_next(context).map(|next| {
            let bytes: Bytes = next?;
            if bytes == HEARTBEAT {
                return Some(Message::Heartbeat);
            }
            let text = text(&bytes);
            Some(match self.0.end() {
                Some(end) => Message::Last(text, end),
                None => Message::Event(text),
            })
        })
    }
}

/// The JSON of an event: a member for each of its fields.
fn text(event: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(event.len() + 16);
    let mut retry = None;
    let mut has_data = false;
    for line in event.split(|byte| *byte == b'\n') {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let (name, value) = (&line[..colon], &line[colon + 1..]);
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match name {
            b"data" if has_data => {
                // A line break between two parts of the JSON.
                text.push(b'\n');
                text.extend_from_slice(value);
            }
            b"data" => {
                has_data = true;
                member(&mut text, b"data");
                text.extend_from_slice(value);
            }
            b"retry" => retry = Some(value),
            name => {
                member(&mut text, name);
                string(&mut text, value);
            }
        }
    }
    if let Some(retry) = retry {
        member(&mut text, b"retry");
        text.extend_from_slice(retry);
    }
    text.push(b'}');
    text
}

fn member(text: &mut Vec<u8>, name: &[u8]) {
    text.push(if text.is_empty() { b'{' } else { b',' });
    text.push(b'"');
    text.extend_from_slice(name);
    text.extend_from_slice(b"\":");
}

/// A string without control characters, as ids and names of events are.
fn string(text: &mut Vec<u8>, value: &[u8]) {
    text.push(b'"');
    for byte in value {
        if matches!(byte, b'"' | b'\\') {
            text.push(b'\\');
        }
        text.push(*byte);
    }
    text.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{self, Event};

    #[test]
    fn each_field_is_a_member() {
        let json = |bytes: &[u8]| String::from_utf8(text(bytes)).unwrap();
        let named = Event::new("e-1", Some("a \"b\"\\: ü"), b" {\"x\":\r\n [1, \": \"]\n}");
        assert_eq!(
            json(&named.bytes()),
            "{\"id\":\"e-1\",\"event\":\"a \\\"b\\\"\\\\: ü\",\"data\": {\"x\":\n\n [1, \": \"]\n}}"
        );
        assert_eq!(json(&named.with_id("e-1.2"))[..13], *"{\"id\":\"e-1.2\"");
        assert_eq!(json(&Event::new("e-1", None, b"null").bytes()), "{\"id\":\"e-1\",\"data\":null}");
        assert_eq!(json(&event::start("e-1", 2000, false)), "{\"id\":\"e-1\",\"retry\":2000}");
        assert_eq!(
            json(&event::start("e-1", 2000, true)),
            "{\"id\":\"e-1\",\"event\":\"lost\",\"data\":{},\"retry\":2000}"
        );
        assert_eq!(json(&event::lost("e-1")), "{\"id\":\"e-1\",\"event\":\"lost\",\"data\":{}}");
        assert_eq!(json(&event::drain(7)), "{\"event\":\"drain\",\"data\":{},\"retry\":7}");
    }
}
