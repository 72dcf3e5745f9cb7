//! JSON documents as received: validated once, looked at in place, spliced as the very bytes.
//!
//! A body becomes a [`Doc`] by one validating pass ([`Doc::parse`]). Most documents are then only
//! passed on: [`Doc::bytes`] are the bytes that came, with every digit and every escape. Looking
//! inside ([`Doc::root`], [`Node`]) builds an index of the document, once; values are read in
//! place, and any part can be spliced as it came ([`Node::raw_bytes`]). [`Writer`] writes JSON.
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
//! # Why a validator of our own
//! Measured without target flags on x86-64 (`examples/validate_speed.rs`, and the others in the
//! same loop); nanoseconds a body:
//!
//! | | 1 KB item | 10 KB list | the same, Cyrillic | 27 KB of numbers | 13 KB indented |
//! |---|---|---|---|---|---|
//! | this crate | 510 | 3200 | 3700 | 26000 | 4700 |
//! | sonic-rs 0.5.10, lazy value | 680 | 3700 | 4100 | 30000 | 7900 |
//! | serde_json 1.0.154, ignored | 1100 | 6200 | 4300 | 30000 | 9800 |
//! | simd-json 0.17.3, tape | 1400 | 8300 | 6700 | 49000 | 9300 |
//!
//! The nearest, sonic-rs, does not check what it skips (`"\u12G4"` passes) and overflows the stack on
//! 100,000 brackets; simd-json unescapes in place, so the bytes that came are lost. Both would need
//! a pass of ours beside them, so that the one pass is ours: words of eight bytes in short strings,
//! blocks that the compiler vectorises in long ones, and UTF-8 is looked at (by `simdutf8`, which
//! picks instructions at run time) only in bodies with a byte outside ASCII.
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
