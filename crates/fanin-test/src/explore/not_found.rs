//! A backend does not have what the client's path names: that is no failure of the server.

use fanin_trace::CallTrace;

use super::change::{Case, Change};
use super::context::Context;
use super::violation::{Violation, is_for};
use crate::host::TestHost;
use crate::stub::split;
use crate::world::host_of;

/// The name of the invariant.
pub(super) const NAME: &str = "not-found";

/// A 404 for what a path parameter of the route names does not become a 5xx.
pub(super) fn not_found(
    context: &Context<'_>,
    host: &TestHost,
    case: &Case,
    calls: &[Vec<CallTrace>],
) -> Option<Violation> {
    for (slot, _) in case.iter().filter(|(_, change)| *change == Change::Status(404)) {
        for (at, (one, calls)) in host.received.iter().zip(calls).enumerate() {
            let failed = one.error.as_ref().filter(|error| error.status.is_server_error());
            if failed.is_none_or(|error| error.upstream.as_ref() != Some(&slot.upstream)) {
                continue;
            }
            let (method, path) = one.sent.place();
            let Ok(found) = context.suite.setting.finder.find(&method, &host_of(&one.sent.headers), path) else {
                continue;
            };
            let is_named = |part: &str| !part.is_empty() && found.params.iter().any(|(_, value)| **value == *part);
            let asks = |call: &&CallTrace| call.required && is_for(slot, call);
            let mut targets = calls.iter().filter(asks).filter_map(|call| Some(call.target.split_once(' ')?.1));
            if targets.any(|target| split(target).0.split('/').any(is_named)) {
                let what = format!("status {} although {slot} is only answered with 404", one.status.as_u16());
                let line = format!("assert_true(responses()[{at}].status < 500, \"what is not there is no failure\")");
                return Some(Violation::new(NAME, what, line));
            }
        }
    }
    None
}
