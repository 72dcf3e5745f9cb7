//! Each transport against real servers. One program, because each file alone would compile the client and its runtime
//! again.

#[path = "../common/mod.rs"]
mod common;

mod compressed;
mod differential;
mod files;
mod grpc;
mod grpc_streamed;
mod http1;
mod http2;
mod model;
mod mysql;
mod pool;
mod postgres;
mod smuggled_answers;
mod streamed;
mod tls;
