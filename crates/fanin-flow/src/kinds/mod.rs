//! The kinds of upstreams, a file each: their methods, and how the arguments of a call become a request.
//!
//! Every call becomes a [`Request`](fanin_upstream::Request), so that policies, single-flight, batches and traces share their code.
//! For an upstream that is not HTTP, the path names the statement or method, the body holds the parameters as JSON, and the
//! method is POST for an effect and GET otherwise.
//!
//! A new kind needs a file here with `method`, `parse` and, if it can check calls before they run, `review`; a variant of
//! `upstream_object::Backend`; and an arm in each `match` over it in `upstream_object` and `parse`.

mod effect;
mod files;
mod grpc;
mod http;
mod model;
pub(crate) mod operation;
mod parse;
mod request;
mod sql;
mod static_checks;
mod upstream_object;

pub(crate) use parse::parse;
pub(crate) use static_checks::NAMES as CALL_ARGUMENTS;
pub(crate) use upstream_object::{Backend, UpstreamObject};
