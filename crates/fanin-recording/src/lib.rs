//! Recordings: some requests of a running server with their calls, what those were answered and after how long.
//!
//! - `message`: what a recording has, as protobuf messages. `file`: how they are written and read.
//! - `rules`: which values are secret. `scrub`: removes them from a request, wherever they appear. `json_values`: finds values of JSON by their place.
//!
//! The crate must not know flows, upstreams, or who records.

mod file;
#[doc(hidden)]
pub mod fuzzing;
mod json_values;
mod message;
mod rules;
mod scrub;

pub use file::{BLOCK, Finished, ReadError, Recording, Writer, length};
pub use message::{Answer, Call, Exchange, Footer, Header, Pair, Request, Response};
pub use rules::{HEADERS, JSON, QUERY, RuleError, Rules};
pub use scrub::{Removed, Scrubber};
