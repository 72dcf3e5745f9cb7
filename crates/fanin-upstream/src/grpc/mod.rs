//! What is known of a gRPC upstream's services: their methods, the messages that these take and give, and how a message becomes
//! JSON and back.
//!
//! It is known from `.proto` files or from a descriptor set when the upstream is set up, or asked of the server itself at the
//! first call of a service. The first two are checked against flows before anything runs; the third
//! cannot be, because whether a configuration is right must not depend on a server being there.

mod convert;
mod describe;
mod frame;
mod message;
mod method;
mod reflection;
mod services;
mod shape;
mod status;

pub use method::Method;
pub use services::Services;
pub use shape::{Mismatch, Shape, misfit, nearest};

pub(crate) use convert::convert;
pub(crate) use frame::{Frames, PREFIX};
pub(crate) use message::{decode, encode};
pub(crate) use method::Methods;
pub(crate) use reflection::{DOUBTFUL, MOST_FILES, OLD, Reflected, Round};
pub(crate) use status::{Code, Status, timeout};
