//! Capacity planning: `fanin lab` and `fanin size`.
//!
//! | module | content |
//! |---|---|
//! | [`lab`] | experiments that repeat published measurements; one file each, run on loopback |
//! | [`size`] | sizes a tier from its access logs: threads of a pool, or memory for coroutines |
//!
//! The two do not use each other. `size` must not know about Fanin's server: it reads any server's log. `lab` starts Fanin as a
//! process, except for experiments on suspended flows, which use fanin-flow directly.

pub mod lab;
pub mod size;

/// Readers of outside bytes, for the fuzz targets in `fuzz/` and their bounded runs in the tests.
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::size::fuzz_entry::access_log;
}
