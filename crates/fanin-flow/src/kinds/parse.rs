//! Captures the arguments of a call, for every kind of upstream.

use fanin_lang::{Failure, HostCall};

use super::upstream_object::{Backend, UpstreamObject};
use super::{files, http, model};
use crate::call::{Arguments, CallOptions};

/// Captures a call's arguments and options.
///
/// # Errors
/// Wrong arguments. The call is not sent.
pub(crate) fn parse(object: &UpstreamObject, call: &HostCall<'_>) -> Result<(Arguments, CallOptions), Failure> {
    let name = object.upstream.name();
    match &*object.backend {
        Backend::Http => http::parse(object, call),
        Backend::Grpc(grpc) => grpc.parse(name, call),
        Backend::Sql(sql) => sql.parse(name, call),
        Backend::Files => files::parse(name, call),
        Backend::Model => model::parse(name, call),
    }
}
