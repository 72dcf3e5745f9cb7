//! What goes for any transport: deadlines, policies, reload, snapshots, a file each.
//! One program: each file alone would compile the client and its runtime anew.

#[path = "../common/mod.rs"]
mod common;

mod deadline;
mod policy;
mod reload;
mod snapshot;
