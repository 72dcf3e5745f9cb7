//! The server over real sockets, a feature a file; what counts the process's threads is a program of its own.
//! One program: each file alone would compile the server and its runtime anew.

#[path = "../common/mod.rs"]
mod common;

mod admin;
mod admission;
mod bad_input;
mod client_address;
mod client_limits;
mod disconnect;
mod drain;
mod fast_rejection;
mod haproxy;
mod http2;
mod malformed;
mod observe;
mod reload;
mod resets;
mod routes;
mod slow_readers;
mod slow_senders;
mod streams;
mod tls;
