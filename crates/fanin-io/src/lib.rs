//! I/O that the server, the models' port and the upstream transports share.
//!
//! - [`write_coalescing`]: the small writes of one event loop iteration, made together.
//! - [`min_rate`]: peers that take or send less than a minimum rate.
//!
//! This crate knows neither protocols nor sockets, and does not depend on a runtime.

pub mod min_rate;
pub mod write_coalescing;
