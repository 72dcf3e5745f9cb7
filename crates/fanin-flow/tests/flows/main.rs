//! Tests of flows in paused time, one feature a file. `tests/threads.rs` runs most of them on the threads executor.
//! They are one program, so that the crate is linked once.

#[path = "../common/mod.rs"]
mod common;

mod batches;
mod cache_equivalence;
mod effects;
mod explanations;
mod failure;
mod grpc;
mod item_cache;
mod json_bodies;
mod large_bodies;
mod merge_equivalence;
mod parallel;
mod permit_reuse;
mod progressive;
mod push;
mod requests;
mod sequential_waits;
mod shop;
mod single_flight;
mod snapshots;
mod sql;
mod unsafe_paths;
