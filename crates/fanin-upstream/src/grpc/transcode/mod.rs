//! Messages to JSON and back without a tree of values in between: the fields of each message are looked up once, when the services are
//! loaded.
//!
//! It converts what messages usually are. It returns `None` for everything else: maps, groups, extensions,
//! the types of `google.protobuf` with a form of their own, a message in several pieces, and whatever is invalid. Then the library's
//! conversion is used, which also knows what is wrong.
//!
//! - `layout`: the fields. `to_json`, `from_json`: the two directions. `wire`: numbers of the wire format. `fuzz`: held against the library.

mod from_json;
pub mod fuzz;
mod layout;
mod to_json;
mod wire;

use bytes::Bytes;
use fanin_json::Node;
use prost_reflect::MessageDescriptor;

pub(super) use layout::{Layouts, Style};
pub(super) use wire::{Reader, Wire};

/// Deepest nesting of messages: that of the library.
const DEEPEST: u32 = 100;

impl Layouts {
    /// A message as JSON, with all fields that cannot be absent. `None`: use the library.
    pub(super) fn to_json(&self, of: &MessageDescriptor, message: &[u8]) -> Option<Bytes> {
        let mut out = Vec::with_capacity(message.len() * 2 + 64);
        to_json::message(self, self.find(of)?, message, &mut out, DEEPEST)?;
        Some(out.into())
    }

    /// Appends the message that is an object of JSON. `None`: use the library; `out` may have grown.
    pub(super) fn append_message(&self, of: &MessageDescriptor, json: Node<'_>, out: &mut Vec<u8>) -> Option<()> {
        from_json::message(self, self.find(of)?, json, out, DEEPEST)
    }
}

#[cfg(test)]
mod tests;
