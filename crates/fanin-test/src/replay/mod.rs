//! `fanin replay`: recorded requests run with another configuration, in virtual time, and what differs.
//!
//! A world lives for many requests: they begin when they did, so that they share batches, caches and limits as they did. Each thread has
//! a world of its own, for a part of the recording's time.
//!
//! - `timeline`: virtual time that is exact to the microsecond. `world`: flows and upstreams of one thread. `play`: one request.
//! - `answers`: the recorded answers. `batches`: answers of batches from the items of others. `player`: answers attempts from them.
//! - `compare`, `ignore`: what of a request differs, and what may. `figures`: what comes of many requests. `run`: all threads.
//! - `overrides`: other values of configuration keys. `advice`: what the recording says about timeouts, limits and linger.
//! - `report`: the results for people and programs. `as_test`: a recorded request as a test.

mod advice;
mod answers;
mod as_test;
mod batches;
mod compare;
mod effect;
mod figures;
mod ignore;
mod inner;
mod overrides;
mod play;
mod player;
mod report;
mod run;
mod timeline;
mod world;

pub use advice::Advice;
pub use as_test::as_test;
pub use compare::{Difference, What};
pub use figures::{Figures, Side};
pub use ignore::Ignore;
pub use report::{json, text};
pub use run::{Replay, ReplayOptions, ReplayRun};
