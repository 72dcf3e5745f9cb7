//! Tests of flows in virtual time: `fanin test`, `fanin explore`.
//!
//! A test is a function of a `*_test.star` file. It says what backends answer (`stub`), sends requests to routes (`get`), and looks at
//! responses and calls. No socket is opened, and time passes only when everything waits. Policies, batches, caches and timeouts are
//! those of the server, because the same code runs: only the last step of a call, the transport, is a script.
//!
//! - `suite`: the tests of a folder. `discover`: its files. `runner`: runs them on several threads. `run_test`: one of them.
//! - `world`: what a test runs in. `script`: answers calls from stubs. `host`: what the functions of `@test` work on.
//! - `module`: these functions. `stub`, `pattern`, `delay`, `values`, `functions`: their arguments. `response`: their results.
//! - `explore`: runs a request with every call's outcome varied. `deviate`: what a request is answered instead of its stub's answer.
//! - `replay`: recorded requests with another configuration.
//! - `snapshots`, `difference`: values kept beside the tests. `coverage`, `report`: what comes out.
//!
//! The crate must not know sockets, connections or the command line.

mod coverage;
mod delay;
mod deviate;
mod difference;
mod discover;
mod error;
pub mod explore;
mod functions;
mod host;
mod module;
mod pattern;
pub mod replay;
pub mod report;
mod response;
mod run_test;
mod runner;
mod script;
mod setting;
mod snapshots;
mod stub;
mod suite;
mod upload;
mod values;
mod world;

pub use coverage::{Coverage, Share};
pub use discover::SUFFIX;
pub use error::TestError;
pub use module::module;
pub use run_test::{TestFailure, TestOutcome};
pub use runner::{RunOptions, TestRun};
pub use suite::Suite;
