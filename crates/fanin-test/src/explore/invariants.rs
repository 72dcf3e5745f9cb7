//! What must hold in every case, whatever the flow is for.

use std::time::Duration;

use fanin_trace::CallTrace;

use super::caught::Caught;
use super::change::{Case, Change};
use super::context::Context;
use super::not_found;
use super::violation::{Violation, is_for};
use crate::host::TestHost;
use crate::response::Received;
use crate::stub::{End, split};

/// Invariants by name, and what each says. All but the last need no option.
pub const INVARIANTS: [(&str, &str); 10] = [
    ("no-500", "no answer of a backend makes the flow fail"),
    ("optional", "while optional calls alone deviate, the status is the healthy one"),
    ("partial", "a response without the answer of an optional call names its upstream"),
    ("deadline", "a response comes within the timeout of its route"),
    (not_found::NAME, "a 404 for what the client's path names is no failure of the server"),
    ("effects-once", "an effect that may have been executed is not sent again"),
    ("effects-guarded", "no effect is sent after a required call above it has failed"),
    ("order", "the order in which answers arrive does not change the response"),
    ("plan", "there are no more calls than the plan of the route says"),
    ("stubs", "every call has a stub"),
];
/// The name of the bound on calls, which an option sets.
const MAX_CALLS: &str = "max-calls";

/// Outcomes of calls that failed for another reason than their status.
const FAILED: [&str; 9] =
    ["timeout", "refused", "connect", "protocol", "decode", "too_large", "limit", "breaker", "status"];

/// The clock counts in milliseconds, rounded up.
const TICKS: Duration = Duration::from_millis(2);

/// All violations of a run.
pub(crate) fn check(context: &Context<'_>, host: &TestHost, case: &Case, caught: &[Caught]) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut caught = caught.iter();
    let calls: Vec<Vec<CallTrace>> = host.received.iter().map(|one| one.calls()).collect();
    for (at, (one, calls)) in host.received.iter().zip(&calls).enumerate() {
        found.extend(no_500(at, one, &mut caught));
        found.extend(deadline(context, at, one));
        found.extend(partial(at, one, calls));
        found.extend(guarded(at, calls));
        found.extend(within_plan(context, at, one, calls));
    }
    found.extend(optional(context, host, case, &calls));
    found.extend(not_found::not_found(context, host, case, &calls));
    found.extend(once(host));
    found.extend(order(context, host, case));
    let problem = host.world.shared.stubs.problems.borrow().first().cloned();
    found.extend(problem.map(|what| Violation {
        invariant: "stubs",
        what,
        place: String::new(),
        // A call without a stub fails a test by itself.
        lines: Vec::new(),
    }));
    found.retain(|one| !context.options.without.contains(one.invariant));
    found
}

fn no_500<'a>(at: usize, one: &Received, caught: &mut impl Iterator<Item = &'a Caught>) -> Option<Violation> {
    if one.status.as_u16() != 500 {
        return None;
    }
    let own = one.error.as_ref().filter(|error| error.kind == "flow").and_then(|_| caught.next());
    let what = match (own, &one.error) {
        (Some(caught), _) => format!("status 500: {}", caught.message),
        (None, Some(error)) => format!("status 500: {}: {}", error.kind, error.detail),
        (None, None) => "status 500".to_owned(),
    };
    let line = format!("assert_true(responses()[{at}].status != 500, \"the flow fails\")");
    let place = own.map(|caught| caught.place.clone()).unwrap_or_default();
    Some(Violation { place, ..Violation::new("no-500", what, line) })
}

fn deadline(context: &Context<'_>, at: usize, one: &Received) -> Option<Violation> {
    let routes = &context.suite.setting.config.routes;
    let timeout = routes.iter().find(|route| route.label() == one.route)?.timeout;
    if one.elapsed <= timeout + TICKS {
        return None;
    }
    let (took, most) = (one.elapsed.as_secs_f64() * 1e3, timeout.as_secs_f64() * 1e3);
    let line = format!("assert_true(responses()[{at}].elapsed <= {most}, \"it is late\")");
    Some(Violation::new("deadline", format!("the response took {took} ms; its route has {most} ms"), line))
}

/// A failed optional call is marked.
fn partial(at: usize, one: &Received, calls: &[CallTrace]) -> Option<Violation> {
    if !one.status.is_success() {
        return None;
    }
    let marked: Vec<&str> = one.partial.iter().flat_map(|names| names.split(',')).map(str::trim).collect();
    let failed = |call: &&CallTrace| !call.required && FAILED.contains(&call.outcome.as_str()) && !is_refused(call);
    let lacks = calls.iter().filter(failed).find(|call| !marked.contains(&&*call.upstream))?;
    let name = &lacks.upstream;
    let line = format!("assert_in({name:?}, responses()[{at}].partial)");
    let what = format!("{} failed ({}), and the response does not name it", lacks.name(), lacks.outcome);
    Some(Violation::new("partial", what, line))
}

/// Whether a call was answered with a 4xx, which `optional` does not cover.
fn is_refused(call: &CallTrace) -> bool {
    let last = call.attempts.last().map(|attempt| attempt.outcome.as_str());
    call.outcome == "status" && last.is_none_or(|status| status.starts_with('4') && !["408", "429"].contains(&status))
}

/// No effect is sent after a required call above it has failed.
fn guarded(at: usize, calls: &[CallTrace]) -> Option<Violation> {
    let is_effect = |call: &CallTrace| {
        ["POST ", "PUT ", "PATCH ", "DELETE "].iter().any(|verb| call.target.starts_with(verb)) && call.sent.is_some()
    };
    for (number, effect) in calls.iter().enumerate().filter(|(_, call)| is_effect(call)) {
        let failed = |call: &&CallTrace| {
            call.required
                && FAILED.contains(&call.outcome.as_str())
                && call.ended <= effect.sent
                && call.ended.is_some()
        };
        if let Some(above) = calls[..number].iter().find(failed) {
            let what = format!("{} was sent although {} had failed", effect.name(), above.name());
            let name = effect.name();
            let line = format!(
                "assert_true(not [call for call in responses()[{at}].calls if call.upstream == {:?} and call.sent != None], \"{name} was sent\")",
                &*effect.upstream
            );
            return Some(Violation::new("effects-guarded", what, line));
        }
    }
    None
}

fn within_plan(context: &Context<'_>, at: usize, one: &Received, calls: &[CallTrace]) -> Option<Violation> {
    let sent = calls.iter().filter(|call| call.sent.is_some()).count();
    if let Some(most) = context.options.max_calls.filter(|most| sent > *most) {
        let line = format!("assert_true(len(responses()[{at}].calls) <= {most}, \"too many calls\")");
        return Some(Violation::new(MAX_CALLS, format!("{sent} calls; at most {most} are allowed"), line));
    }
    let most_calls = *context.plans.get(&one.route)?;
    let most = most_calls.filter(|most| sent > *most)?;
    let line = format!("assert_true(len(responses()[{at}].calls) <= {most}, \"too many calls\")");
    Some(Violation::new("plan", format!("{sent} calls; the plan says at most {most}"), line))
}

/// While optional calls alone deviate, the status stays.
fn optional(context: &Context<'_>, host: &TestHost, case: &Case, calls: &[Vec<CallTrace>]) -> Option<Violation> {
    let healthy = context.healthy.as_ref()?;
    // A flow may take 404 for an answer.
    if case.is_empty() || case.iter().any(|(_, change)| *change == Change::Status(404)) {
        return None;
    }
    for (slot, _) in case {
        let mut own = calls.iter().flatten().filter(|call| is_for(slot, call)).peekable();
        own.peek()?;
        if own.any(|call| call.required) {
            return None;
        }
    }
    let statuses = host.received.iter().map(|one| one.status.as_u16());
    let (at, (now, before)) = statuses.zip(&healthy.statuses).enumerate().find(|(_, (now, before))| now != *before)?;
    // A failure of the flow has an invariant of its own.
    if now == 500 {
        return None;
    }
    let line = format!("assert_equal(responses()[{at}].status, {before})");
    let what = format!("status {now} instead of {before}, although optional calls alone deviate");
    Some(Violation::new("optional", what, line))
}

/// An effect that may have been executed is not sent again.
fn once(host: &TestHost) -> Option<Violation> {
    let sent = host.world.shared.stubs.sent.borrow();
    let effects: Vec<_> = sent
        .iter()
        .filter(|one| !one.request.safe && !one.is_start && !one.request.headers.contains_key("idempotency-key"))
        .filter(|one| one.planned.as_ref().is_none_or(|planned| planned.end != End::NotSent))
        .collect();
    for (at, one) in effects.iter().enumerate() {
        let alike = effects[at..].iter().filter(|other| {
            let (one, other) = (&one.request, &other.request);
            one.upstream == other.upstream
                && one.method == other.method
                && one.path_and_query == other.path_and_query
                && one.body == other.body
        });
        // As many clients' requests may each have it once.
        let times = alike.count();
        if times > host.received.len().max(1) {
            let name = format!("{}.{}", one.request.upstream, one.method);
            let target = &one.request.upstream;
            let line = format!(
                "assert_true(len([sent for sent in requests({target}) if sent.effect and sent.path == {:?}]) <= {}, \"sent again\")",
                split(&one.request.path_and_query).0,
                host.received.len().max(1)
            );
            let what = format!("the effect {name} {} was sent {times} times", split(&one.request.path_and_query).0);
            return Some(Violation::new("effects-once", what, line));
        }
    }
    None
}

/// The order of answers does not change the response.
fn order(context: &Context<'_>, host: &TestHost, case: &Case) -> Option<Violation> {
    let healthy = context.healthy.as_ref().filter(|healthy| healthy.is_steady)?;
    if case.is_empty() || !case.iter().all(|(_, change)| change.is_order()) {
        return None;
    }
    let before = healthy.statuses.iter().zip(&healthy.bodies);
    let (at, (one, (_, body))) = host
        .received
        .iter()
        .zip(before)
        .enumerate()
        .find(|(_, (one, (status, body)))| one.status.as_u16() != **status || one.body != **body)?;
    let text = String::from_utf8_lossy(body);
    let line = format!("assert_equal(responses()[{at}].text, {text:?})");
    let what = format!("status {} and another body than in the healthy order", one.status.as_u16());
    Some(Violation::new("order", what, line))
}
