//! One run of an exploration, with its deviations.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use bytes::Bytes;
use fanin_config::{Upstream, UpstreamKind};
use fanin_lang::Failure;

use super::caught;
use super::change::{Case, Slot, rule};
use super::changes::Seen;
use super::context::Context;
use super::invariants;
use super::violation::Violation;
use crate::host::TestHost;
use crate::response::Received;
use crate::run_test::{call, seed_of};
use crate::stub::SentRequest;
use crate::world::World;

/// How a case ended.
#[derive(Debug, Default)]
pub(crate) struct CaseRun {
    pub(crate) violations: Vec<Violation>,
    /// Requests in the order in which they were sent.
    pub(crate) seen: Vec<Seen>,
    /// Runs with the same signature were alike: the same responses, and the same requests at the same times.
    pub(crate) signature: u64,
    /// All its requests ended because a required call had failed.
    pub(crate) is_ended: bool,
    /// The last responses with their calls, if something was violated.
    pub(crate) evidence: String,
    pub(crate) routes: Vec<String>,
    pub(crate) statuses: Vec<u16>,
    pub(crate) bodies: Vec<Bytes>,
}

/// Runs a case.
pub(crate) fn run_case(context: &Context<'_>, case: &Case) -> CaseRun {
    let Context { suite, test, options, .. } = context;
    caught::take();
    let seed = seed_of(options.seed, &test.id());
    let world = match World::new(&suite.setting, &suite.program, seed) {
        Ok(world) => world,
        Err(error) => {
            return CaseRun { violations: vec![Violation::by_itself(error.to_string())], ..CaseRun::default() };
        }
    };
    *world.shared.deviations.0.borrow_mut() = case.iter().map(rule).collect();
    let mut host = TestHost {
        world,
        program: suite.program.clone(),
        snapshots: context.snapshots.clone(),
        name: test.name.clone(),
        received: Vec::new(),
        output: String::new(),
        assertions: 0,
    };
    let mut failed = None;
    for function in test.setup.into_iter().chain([test.function]) {
        if let Err(failure) = call(suite, &mut host, function, Vec::new()) {
            failed = Some(failure);
            break;
        }
    }
    let mut violations = Vec::new();
    violations.extend(failed.map(|failure| of_assertion(&failure)));
    if violations.is_empty() {
        violations.extend(always(context, &mut host));
    }
    let seen = seen(&host);
    violations.extend(invariants::check(context, &host, case, &caught::take()));
    finish(&host, violations, seen)
}

fn of_assertion(failure: &Failure) -> Violation {
    let place = failure.trace.last().map(|frame| &frame.position).or(failure.position.as_ref());
    let place = place.map_or_else(String::new, |place| format!("{}:{}", place.file, place.line));
    Violation { place, ..Violation::by_itself(failure.message.clone()) }
}

/// `always(req, result)` for each response.
fn always(context: &Context<'_>, host: &mut TestHost) -> Option<Violation> {
    let always = context.always?;
    let all = host.received.clone();
    for one in all {
        let args = vec![one.sent.value(), fanin_lang::Value::object(crate::response::ResponseObject(one.clone()))];
        if let Err(failure) = call(context.suite, host, always, args) {
            let lines = vec!["for found in responses():".to_owned(), "    always(found.sent, found)".to_owned()];
            return Some(Violation { lines, ..of_assertion(&failure) });
        }
    }
    None
}

fn finish(host: &TestHost, violations: Vec<Violation>, seen: Vec<Seen>) -> CaseRun {
    let mut hash = DefaultHasher::new();
    for one in &host.received {
        (one.status.as_u16(), &one.body, &one.partial, one.elapsed, one.is_complete).hash(&mut hash);
        one.error.as_ref().map(|error| (error.kind, &error.detail)).hash(&mut hash);
    }
    for one in &seen {
        (&one.slot, one.at, one.content).hash(&mut hash);
    }
    host.output.hash(&mut hash);
    let evidence = match violations.is_empty() {
        true => String::new(),
        false => host.received.iter().map(|one| one.describe()).collect::<Vec<_>>().join("\n"),
    };
    CaseRun {
        violations,
        seen,
        signature: hash.finish(),
        is_ended: !host.received.is_empty() && host.received.iter().all(|one| is_ended(one)),
        evidence,
        routes: host.received.iter().map(|one| one.route.clone()).collect(),
        statuses: host.received.iter().map(|one| one.status.as_u16()).collect(),
        bodies: host.received.iter().map(|one| one.body.clone()).collect(),
    }
}

/// Whether the failure of a required call is the response: the flow was told nothing of it, and went no further.
fn is_ended(one: &Received) -> bool {
    one.error.as_ref().is_some_and(|error| error.upstream.is_some())
}

/// What a request asks for, beyond its name.
fn content(sent: &SentRequest) -> u64 {
    let mut hash = DefaultHasher::new();
    (&sent.request.path_and_query, &sent.request.body).hash(&mut hash);
    hash.finish()
}

/// The requests that can be varied.
fn seen(host: &TestHost) -> Vec<Seen> {
    let shared = &host.world.shared;
    let mut numbers: HashMap<(String, Option<String>, String), u64> = HashMap::new();
    let mut found = Vec::new();
    for sent in shared.stubs.sent.borrow().iter().filter(|sent| !sent.is_start) {
        let kind = shared.config(&sent.request.upstream).map_or(UpstreamKind::Http, Upstream::kind);
        let (method, path) = named(sent, kind);
        let key = (sent.request.upstream.to_string(), method, path);
        let number = numbers.entry(key.clone()).or_insert(0);
        *number += 1;
        let Some(planned) = &sent.planned else { continue };
        let (upstream, method, path) = key;
        let healthy = planned.healthy.as_ref().filter(|(_, status, _)| status.is_success());
        found.push(Seen {
            slot: Slot { upstream, method, path, number: *number },
            kind,
            at: Duration::from_secs_f64(sent.at / 1e3),
            delay: planned.delay,
            left: sent.left,
            end: planned.end,
            body: healthy.map(|(_, _, body)| body.clone()),
            deviates: planned.deviates,
            content: content(sent),
        });
    }
    found
}

/// How `deviate(...)` names a request: its operation alone, or what was called and the path.
fn named(sent: &SentRequest, kind: UpstreamKind) -> (Option<String>, String) {
    let path = || crate::stub::split(&sent.request.path_and_query).0.to_owned();
    match (sent.request.operation, kind) {
        (Some(_), _) => (Some(sent.method.clone()), String::new()),
        (None, UpstreamKind::Http) => (Some(sent.method.clone()), path()),
        (None, _) => (None, path()),
    }
}
