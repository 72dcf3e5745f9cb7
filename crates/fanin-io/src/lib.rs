//! I/O that the server and the upstream transports share.
//!
//! - [`write_coalescing`]: the small writes of one event loop iteration, made together.
//!
//! This crate knows neither protocols nor sockets, and does not depend on a runtime.

pub mod write_coalescing;
