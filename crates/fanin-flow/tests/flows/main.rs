//! What flows do, a feature a file, in paused time on fibers; `tests/threads.rs` runs most of them on threads.
//! One program: each file alone would compile flows and their runtime anew.

#[path = "../common/mod.rs"]
mod common;

mod batches;
mod cached_equal;
mod effects;
mod failure;
mod grpc;
mod in_a_row;
mod kept_items;
mod lookups;
mod merged_equal;
mod parallel;
mod places;
mod requests;
mod sharing;
mod shop;
mod sql;
