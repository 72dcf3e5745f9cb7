//! I/O that the server, the models' port, the upstream transports and the links to brokers share.
//!
//! - [`write_coalescing`]: the small writes of one event loop iteration, made together.
//! - [`client_tls`]: certificates and roots of TLS clients, from files.
//! - [`min_rate`]: peers that take or send less than a minimum rate.
//!
//! This crate knows neither sockets nor what the other side sends over them, and does not depend on a runtime.

pub mod client_tls;
pub mod min_rate;
pub mod write_coalescing;
