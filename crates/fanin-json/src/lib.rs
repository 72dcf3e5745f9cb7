//! JSON documents as received: validated once, read in place, spliced byte for byte.
//!
//! [`Doc::parse`] validates a body in one pass. Most documents are then only passed on: [`Doc::bytes`] are the
//! received bytes, with every digit and every escape. Reading inside ([`Doc::root`], [`Node`]) builds an index of
//! the document, once. Any part can be spliced as received ([`Node::raw_bytes`]). [`Writer`] writes JSON.
//!
//! - `scan`: the grammar, one pass; `swar`: fast search within strings; `unescape`, `number`: scalars;
//! - `doc`, `tape`: a validated document and its index; `node`: reading it;
//! - `pull`: the pull parser; `write`, `indent`: writing; `assemble`: splicing.
//!
//! This crate must not know of flows, values of the language, or HTTP.
//!
//! ```
//! # fn main() -> Result<(), fanin_json::JsonError> {
//! let doc = fanin_json::Doc::parse(r#" {"ids": [1001, 1.50]} "#.into(), 128)?;
//! let ids = doc.root().get("ids").expect("it is there");
//! assert_eq!(ids.index(0).and_then(|id| id.as_i64()), Some(1001));
//! assert_eq!(ids.raw(), b"[1001, 1.50]");
//! # Ok(())
//! # }
//! ```
//!
//! # What is accepted
//! RFC 8259, strictly: nothing after the value but whitespace, no byte order mark, no control
//! characters in strings, valid UTF-8. Where the RFC leaves a choice: a key written more than once
//! counts once, with its last value (the bytes keep both); a surrogate without its other half stays
//! in the bytes and reads as U+FFFD; numbers may have any size and are converted only when asked.
//! Depth is bounded by the caller and costs no recursion.
//!
//! # Why our own validator
//! Other parsers need a second pass for what is required here. sonic-rs does not check what it skips (`"\u12G4"` passes)
//! and overflows the stack on 100,000 brackets. simd-json unescapes in place, so the received bytes are lost.
//! `examples/validate_speed.rs` compares the speed. Short strings are scanned in words of eight bytes, long ones in blocks that
//! the compiler vectorises. `simdutf8` checks bodies with a byte outside ASCII.

mod assemble;
mod doc;
mod error;
mod indent;
mod node;
mod number;
mod pull;
mod scan;
mod swar;
mod tape;
mod unescape;
mod write;

pub use assemble::Assembler;
pub use doc::Doc;
pub use error::{JsonError, JsonErrorKind};
pub use indent::{indent, indented_len};
pub use node::{Cursor, Kind, Node};
pub use number::Number;
pub use pull::{Event, PullParser};
pub use write::{NotFinite, Writer, write_float, write_int, write_str};
