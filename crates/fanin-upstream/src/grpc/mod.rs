//! gRPC services: their methods and messages, and messages as JSON.
//!
//! The descriptors come from `.proto` files or a descriptor set when the upstream is built, or from server reflection
//! at the first call of a service. Flows are checked against the first two before anything runs. They are not checked
//! against reflection, because a valid configuration must not depend on a running server.
//!
//! - `describe`, `reflection`: where descriptors come from.
//! - `method`, `services`: what they contain. `served`: those that routes serve.
//! - `wrong_field`: the field of a served request that cannot be read.
//! - `transcode`: messages to JSON and back, as routes need it at each call.
//! - `message`, `shape`, `frame`, `status`, `convert`: conversion, checks of JSON, and the protocol's own forms.

mod convert;
mod describe;
mod frame;
pub(crate) mod fuzz;
mod message;
mod method;
mod reflection;
mod served;
mod services;
mod shape;
mod status;
pub(crate) mod transcode;
mod wrong_field;

pub use convert::off_worker;
pub use method::Method;
pub use served::{Form, Served};
pub use services::Services;
pub use shape::{Mismatch, Shape, find_mismatch, nearest};
pub use status::{DETAILS, code_named, error_names};

pub(crate) use convert::convert;
pub(crate) use frame::{Frame, Frames, PREFIX};
pub(crate) use message::{decode, decode_one, encode};
pub(crate) use method::Methods;
pub(crate) use reflection::{MAX_AGE, MAX_AGE_ON_MISMATCH, MAX_FILES, Reflection, RoundAnswer};
pub(crate) use status::{Code, Status, timeout};
