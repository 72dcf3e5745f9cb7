//! The records of requests and their calls, and how people see them.
//!
//! - `call`: one call. `request`: one request with its calls.
//! - `critical_path`: the calls that the response waited for, from the times alone.
//! - `waterfall`: the calls as bars under each other, for a terminal. `describe`: the whole request.
//! - `dump`: a file with the last requests of a server.
//!
//! As JSON, times are whole microseconds, and their names end in `_us`. The crate must not know how a request is run.

mod call;
mod critical_path;
mod describe;
mod dump;
mod micros;
mod request;
#[cfg(test)]
mod testing;
mod waterfall;

pub use call::{Attempt, CallTrace, Effect, SharedWith, Sharing};
pub use critical_path::mark_critical_path;
pub use describe::describe;
pub use dump::{Cause, Dump, date, fuzzing};
pub use request::{RequestTrace, Slice, Wait};
pub use waterfall::{draw, millis, shorten};
