//! I/O that the server, the models' port, the upstream transports and the links to brokers share.
//!
//! - [`write_coalescing`]: the small writes of one event loop iteration, made together.
//! - [`client_tls`]: certificates and roots of TLS clients, from files.
//! - [`min_rate`]: peers that take or send less than a minimum rate.
//! - [`job_thread`]: a thread for work that would hold a worker too long.
//!
//! This crate knows neither sockets nor what the other side sends over them, and needs no runtime.

pub mod client_tls;
pub mod job_thread;
pub mod min_rate;
pub mod write_coalescing;
