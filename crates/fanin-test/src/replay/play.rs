//! One recorded request, run again.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use fanin_flow::{ClientIdentity, Detail, FlowRecord, IncomingRequest, RecordedCall, Reply, ReplyBody};
use fanin_recording::Request;
use fanin_trace::Sharing;
use http::{HeaderMap, Method, StatusCode, Uri};
use tokio::time::Instant;

use super::compare::{self, Difference, Found, Got, What};
use super::inner::Inner;
use super::player::{Running, header_map};
use crate::values;
use crate::world::{collect, host_of, problem};

/// Why a request cannot be replayed.
type Skipped = String;

/// Runs a request that arrives at `at`, and notes what differs. `is_counted`: it is not only there for the others.
pub(crate) async fn play(inner: Rc<Inner>, number: usize, at: Instant, is_counted: bool) {
    let answers = inner.player.answers.clone();
    let recorded = answers.request(number);
    let queued = Duration::from_micros(recorded.queued_us);
    let mut start = at - queued;
    {
        let running = inner.player.running.borrow();
        while running.contains_key(&start) {
            start -= Duration::from_nanos(1);
        }
    }
    let running = Rc::new(Running::new(number));
    inner.player.running.borrow_mut().insert(start, running.clone());
    let result = run(&inner, recorded, start).await;
    let took = start.elapsed();
    inner.player.running.borrow_mut().remove(&start);
    if is_counted {
        note(&inner, number, recorded, &running, result, took);
    }
}

type Played = (Got, Option<std::sync::Arc<FlowRecord>>);

async fn run(inner: &Inner, recorded: &Request, start: Instant) -> Result<Played, Skipped> {
    let (method, uri) = (Method::from_bytes(recorded.method.as_bytes()), recorded.target.parse::<Uri>());
    let (Ok(method), Ok(uri)) = (method, uri) else { return Err("its target cannot be read".to_owned()) };
    let by_server = |status| Ok((Got { status, headers: HeaderMap::new(), body: Bytes::new() }, None));
    let setting = &inner.player.setting;
    let mut headers = header_map(&recorded.headers);
    let found = match setting.finder.find(&method, &host_of(&headers), uri.path()) {
        Ok(found) => found,
        Err(status) => return by_server(status),
    };
    let route = &setting.config.routes[found.route];
    if route.grpc.is_some() {
        return Err("its route serves gRPC".to_owned());
    }
    if route.flow.is_none() {
        return Err("its route has no flow".to_owned());
    }
    if let Some(rules) = &route.request_headers {
        rules.apply(&mut headers);
    }
    if recorded.body.len() > route.max_body {
        return by_server(StatusCode::PAYLOAD_TOO_LARGE);
    }
    let own = recorded.timeout_us.map(Duration::from_micros);
    let deadline = start + own.map_or(route.timeout, |own| own.min(route.timeout));
    let identity = identity(recorded);
    let upload = route.stream_body.then(|| crate::upload::WholeBody::boxed(recorded.body.clone()));
    let incoming = IncomingRequest {
        number: 0,
        known_id: None,
        method,
        uri,
        params: found.params.iter().map(|(name, value)| ((&**name).into(), (&**value).into())).collect(),
        headers,
        body: if route.stream_body { Bytes::new() } else { recorded.body.clone() },
        upload,
        identity,
        remote: recorded.remote.parse().unwrap_or_else(|_| ([127, 0, 0, 1], 40_000).into()),
        start,
        deadline,
        trace: None,
        permit: None,
        detail: Detail::Requests,
    };
    let flow = inner.flows.run(found.route, incoming);
    match tokio::time::timeout_at(deadline, flow).await {
        Ok(reply) => replied(reply).await,
        Err(_) => by_server(StatusCode::GATEWAY_TIMEOUT),
    }
}

fn identity(recorded: &Request) -> Option<Box<ClientIdentity>> {
    if recorded.principal.is_none() && recorded.claims.is_none() {
        return None;
    }
    let claims = recorded.claims.as_ref().and_then(|claims| values::document(claims));
    let principal = recorded.principal.as_deref().map(Into::into);
    Some(Box::new(ClientIdentity { principal, claims, auth: None, client: None }))
}

async fn replied(reply: Reply) -> Result<Played, Skipped> {
    let Reply { result, mut record, .. } = reply;
    let success = match result {
        Err(error) => {
            let response = problem(&error);
            let got = Got { status: response.status, headers: response.headers, body: response.body.to_bytes() };
            return Ok((got, record));
        }
        Ok(success) => success,
    };
    let body = match success.body {
        ReplyBody::Pieces(pieces) => match pieces.into_inner() {
            Ok([body]) => body,
            Err(pieces) => pieces.concat().into(),
        },
        ReplyBody::Stream(mut stream) => {
            let (body, _) = collect(|cx| stream.poll_next(cx).map_err(|_| ())).await?;
            record = record.or(stream.summary().and_then(|summary| summary.record));
            body
        }
        ReplyBody::Messages(mut stream) => {
            let (body, _) = collect(|cx| stream.poll_next(cx).map_err(|_| ())).await?;
            record = record.or(stream.summary().and_then(|summary| summary.record));
            body
        }
        ReplyBody::Events(_) => return Err("it subscribes to events".to_owned()),
    };
    Ok((Got { status: success.status, headers: success.headers, body }, record))
}

fn note(
    inner: &Inner,
    number: usize,
    recorded: &Request,
    running: &Running,
    result: Result<Played, Skipped>,
    took: Duration,
) {
    let mut tally = inner.tally.borrow_mut();
    let (got, record) = match result {
        Ok(played) => played,
        Err(why) => {
            *tally.skipped.entry(why).or_default() += 1;
            return;
        }
    };
    let made: Vec<RecordedCall<'_>> = record.iter().flat_map(|record| record.recorded_calls()).collect();
    let mut found = Found::default();
    for call in running.missing.borrow().iter() {
        found.add(What::Missing, format!("not in the recording: {call}"));
        tally.misses(call);
    }
    compare::responses(recorded, &got, &inner.ignore, &mut found);
    compare::effects(recorded, &running.effects.borrow(), &mut found);
    compare::calls(recorded, &made, &mut found);

    if !tally.routes.contains_key(&recorded.route) {
        tally.routes.insert(recorded.route.clone(), super::figures::Figures::default());
    }
    let Some(figures) = tally.routes.get_mut(&recorded.route) else { return };
    figures.requests += 1;
    let before = &mut figures.before;
    let status = recorded.response.as_ref().map_or(0, |response| response.status);
    let local = |sharing: &str| matches!(sharing, "cache" | "snapshot");
    let times = recorded.calls.iter().map(|call| (call.sent_us, call.ended_us, local(&call.sharing)));
    before.add(Duration::from_micros(recorded.took_us), compare::rounds(times), (100..500).contains(&status));
    before.calls += recorded.calls.len() as u64;
    before.merged += recorded.calls.iter().filter(|call| !call.sharing.is_empty()).count() as u64;
    before.sent += recorded.exchanges.iter().filter(|exchange| !exchange.shared).count() as u64;
    let after = &mut figures.after;
    let micros = |time: Option<Duration>| time.map(|time| time.as_micros() as u64);
    let times = made.iter().map(|call| {
        (micros(call.sent), micros(call.ended), matches!(call.sharing, Sharing::Cache | Sharing::Snapshot))
    });
    after.add(took, compare::rounds(times), !got.status.is_server_error());
    after.calls += made.len() as u64;
    after.merged += made.iter().filter(|call| call.sharing != Sharing::Alone).count() as u64;
    after.sent += u64::from(running.sent.get());
    if found.what.is_empty() {
        return;
    }
    figures.differing += 1;
    found.what.sort_unstable();
    found.what.iter().for_each(|what| *figures.by.entry(*what).or_default() += 1);
    let difference = Difference {
        request: number,
        shown: format!("{} {}", recorded.method, recorded.target),
        route: recorded.route.clone(),
        what: found.what,
        lines: found.lines,
    };
    tally.differs(difference);
}
