//! The messages between instances: an event, or a beat.
//!
//! ```text
//! "F" 1 kind origin                          kind: 0 a beat, 1 an event; origin: 8 bytes
//!   beat:   lost sent...                     8 bytes: the shards of which events were dropped; 8 bytes for each shard
//!   event:  sequence channel name data       8 bytes; lengths: 2 bytes of the channel, 1 byte of the name; then the texts
//! ```
//!
//! Numbers are in network byte order.

/// Channels are spread over so many shards by their name. Events of a shard are numbered, so a missing one is noticed, and then only the
/// channels of that shard are in doubt.
pub(crate) const SHARDS: usize = 64;

const MAGIC: [u8; 2] = [b'F', 1];
const BEAT: u8 = 0;
const EVENT: u8 = 1;
const HEAD: usize = 11;
/// Where the number of an event is.
const SEQUENCE: std::ops::Range<usize> = HEAD..HEAD + 8;
const EVENT_HEAD: usize = HEAD + 11;

/// Most bytes of a message whose event has so many bytes of data.
pub(crate) const fn max_len(max_event: usize) -> usize {
    let event = EVENT_HEAD + u16::MAX as usize + u8::MAX as usize;
    event.saturating_add(max_event)
}

/// The shard of a channel.
pub(crate) fn shard(channel: &str) -> usize {
    crc32fast::hash(channel.as_bytes()) as usize % SHARDS
}

/// A message as received.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Message<'m> {
    /// Which instance it comes from, as it was connected to this broker.
    pub(crate) origin: u64,
    pub(crate) kind: Kind<'m>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Kind<'m> {
    Beat(Box<Beat>),
    Event(Event<'m>),
}

/// A sign of life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Beat {
    /// The shards of which the origin has dropped events since a beat of it came through.
    pub(crate) lost: u64,
    /// The number of the last event of each shard that was sent or dropped.
    pub(crate) sent: [u64; SHARDS],
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Event<'m> {
    /// Its number within the origin's events of its shard.
    pub(crate) sequence: u64,
    pub(crate) channel: &'m str,
    pub(crate) name: Option<&'m str>,
    pub(crate) data: &'m [u8],
}

fn head(origin: u64, kind: u8, room: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(room);
    bytes.extend_from_slice(&MAGIC);
    bytes.push(kind);
    bytes.extend_from_slice(&origin.to_be_bytes());
    bytes
}

/// An event that has no number yet. The name of a channel has at most 256 bytes, that of an event 128.
pub(crate) fn event(origin: u64, channel: &str, name: Option<&str>, data: &[u8]) -> Vec<u8> {
    let name = name.unwrap_or_default();
    let mut bytes = head(origin, EVENT, EVENT_HEAD + channel.len() + name.len() + data.len());
    bytes.extend_from_slice(&[0; 8]);
    bytes.extend_from_slice(&(channel.len() as u16).to_be_bytes());
    bytes.push(name.len() as u8);
    for part in [channel.as_bytes(), name.as_bytes(), data] {
        bytes.extend_from_slice(part);
    }
    bytes
}

/// Gives an event its number.
pub(crate) fn number(event: &mut [u8], sequence: u64) {
    event[SEQUENCE].copy_from_slice(&sequence.to_be_bytes());
}

pub(crate) fn beat(origin: u64, beat: &Beat) -> Vec<u8> {
    let mut bytes = head(origin, BEAT, HEAD + 8 + 8 * SHARDS);
    bytes.extend_from_slice(&beat.lost.to_be_bytes());
    for sent in beat.sent {
        bytes.extend_from_slice(&sent.to_be_bytes());
    }
    bytes
}

/// Takes bytes from the front.
struct Bytes<'m>(&'m [u8]);

impl<'m> Bytes<'m> {
    fn take(&mut self, count: usize) -> Option<&'m [u8]> {
        let (front, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(front)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn number(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    fn text(&mut self, count: usize) -> Option<&'m str> {
        std::str::from_utf8(self.take(count)?).ok()
    }
}

/// Reads a message; `None` if it is none. Names and data of an event are not checked.
pub(crate) fn parse(bytes: &[u8]) -> Option<Message<'_>> {
    let mut bytes = Bytes(bytes);
    if bytes.array()? != MAGIC {
        return None;
    }
    let [kind] = bytes.array()?;
    let origin = bytes.number()?;
    let kind = match kind {
        BEAT => {
            let mut beat = Box::new(Beat { lost: bytes.number()?, sent: [0; SHARDS] });
            for sent in &mut beat.sent {
                *sent = bytes.number()?;
            }
            if !bytes.0.is_empty() {
                return None;
            }
            Kind::Beat(beat)
        }
        EVENT => {
            let sequence = bytes.number()?;
            let channel = u16::from_be_bytes(bytes.array()?);
            let [name] = bytes.array()?;
            let channel = bytes.text(channel.into())?;
            let name = bytes.text(name.into())?;
            Kind::Event(Event { sequence, channel, name: (!name.is_empty()).then_some(name), data: bytes.0 })
        }
        _ => return None,
    };
    Some(Message { origin, kind })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for name in [None, Some("goal")] {
            let mut bytes = event(7, "match:é", name, b"{\"a\": 1}");
            number(&mut bytes, 9);
            let event = Event { sequence: 9, channel: "match:é", name, data: b"{\"a\": 1}" };
            assert_eq!(parse(&bytes), Some(Message { origin: 7, kind: Kind::Event(event) }));
            assert!(bytes.len() <= max_len(8));
        }
        let mut one = Beat { lost: 5, sent: [0; SHARDS] };
        one.sent[63] = u64::MAX;
        assert_eq!(parse(&beat(7, &one)), Some(Message { origin: 7, kind: Kind::Beat(Box::new(one)) }));
    }

    #[test]
    fn what_is_cut_short_or_too_long_is_no_message() {
        let whole = event(7, "a", Some("b"), b"1");
        for end in 0..whole.len() - 1 {
            assert_eq!(parse(&whole[..end]), None, "{end}");
        }
        let whole = beat(7, &Beat { lost: 0, sent: [1; SHARDS] });
        for end in 0..whole.len() {
            assert_eq!(parse(&whole[..end]), None, "{end}");
        }
        assert_eq!(parse(&[&whole[..], b"x"].concat()), None);
        assert_eq!(parse(b"G\x01\x01"), None);
        assert_eq!(parse(&[&b"F\x01\x02"[..], &[0; 600]].concat()), None);
    }
}
