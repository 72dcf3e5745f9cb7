//! Deadlines, policies, reloads and snapshots, over any transport. One program, because each file alone would compile
//! the client and its runtime again.

#[path = "../common/mod.rs"]
mod common;

mod deadline;
mod policy;
mod reload;
mod snapshot;
