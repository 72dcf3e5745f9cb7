//! The Open Inference Protocol, version 2: gRPC and HTTP on the same listeners.
//!
//! Each worker of the server has its own listening sockets and serves their connections on its own thread.
//! gRPC runs directly on hyper's HTTP/2. The protocol has unary calls only, so five bytes of framing and two trailers are
//! all that gRPC needs here, and no service has to be `Send`. Only the standard services of gRPC have streams.
//!
//! | module | content |
//! |---|---|
//! | `listener`, `serving` | listening sockets of one thread, drain |
//! | `connection`, `connection_state` | one connection: age, drain, slow readers |
//! | `service`, `in_flight` | state shared by all threads, permits, the in-flight budget |
//! | `read_body`, `reply`, `read_throttle` | request and response bodies, read throttling under overload |
//! | `grpc`, `framing`, `request_head` | gRPC requests, message framing, the part of a message that admission needs |
//! | `standard` | health and reflection |
//! | `rest`, `json_body`, `json_messages` | HTTP requests, tensors and messages as JSON |
//! | `large` | a thread for large messages |
//! | `methods`, `tensor_codec`, `status` | the methods themselves, tensors of gRPC messages, errors |

mod connection;
mod connection_state;
mod framing;
pub(crate) mod fuzz_entry;
mod grpc;
mod in_flight;
mod json_body;
mod json_messages;
mod large;
mod listener;
mod methods;
pub(crate) mod proto;
mod read_body;
mod read_throttle;
mod reply;
mod request_head;
mod rest;
mod service;
mod serving;
mod standard;
mod status;
mod tensor_codec;

pub use framing::parse_timeout;
pub use listener::{bind, serve};
pub use service::{INFER_PATH, MemoryPressure, Service};
pub use serving::Serving;
pub use tensor_codec::infer_message;
