//! What has been captured of a request, as the file has it.

use std::time::Duration;

use bytes::Bytes;
use fanin_flow::{RecordedAnswer, RecordedCall};
use fanin_recording::{Answer, Call, Exchange, Pair, Request, Response};
use fanin_trace::Sharing;
use fanin_upstream::{ErrorKind, ExchangeEnd, LoggedAttempt};
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use tokio::time::Instant;

use super::captured::{Captured, CapturedResponse};
use crate::problem::problem;

/// The request. `origin`: when the recording began.
///
/// # Errors
/// Why it cannot be repeated.
pub(super) fn request(captured: &Captured, origin: Instant) -> Result<Request, &'static str> {
    let of = &captured.request;
    let mut request = Request {
        arrived_us: micros(of.start.saturating_duration_since(origin)),
        queued_us: micros(of.queued),
        took_us: micros(captured.took),
        method: of.method.to_string(),
        target: of.uri.to_string(),
        headers: pairs(&of.headers),
        body: of.body.clone(),
        remote: of.remote.to_string(),
        principal: of.identity.as_ref().and_then(|identity| identity.principal.as_ref()).map(ToString::to_string),
        claims: of.identity.as_ref().and_then(|identity| Some(identity.claims.as_ref()?.bytes().clone())),
        timeout_us: of.timeout.map(micros),
        route: of.route.to_string(),
        response: Some(response(captured)),
        ..Request::default()
    };
    let Some(record) = &captured.record else { return Ok(request) };
    if let Some(why) = record.unrepeatable() {
        return Err(why);
    }
    let calls: Vec<RecordedCall<'_>> = record.recorded_calls().collect();
    for (at, call) in calls.iter().enumerate() {
        request.calls.push(self::call(call));
        exchanges(call, at, of.start, &mut request.exchanges)?;
    }
    Ok(request)
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn pairs(headers: &HeaderMap) -> Vec<Pair> {
    let pair = |name: &str, value: &[u8]| Pair { name: name.to_owned(), value: Bytes::copy_from_slice(value) };
    headers.iter().map(|(name, value)| pair(name.as_str(), value.as_bytes())).collect()
}

fn response(captured: &Captured) -> Response {
    let partial = captured.partial.clone();
    match &captured.response {
        CapturedResponse::Success { status, headers, body } => Response {
            status: status.as_u16().into(),
            headers: pairs(headers),
            body: body.as_ref().map(|pieces| pieces.concat().into()).unwrap_or_default(),
            without_body: body.is_none(),
            partial,
            error: None,
        },
        CapturedResponse::Error(error) => {
            let response: fanin_server::Response = problem(error.clone()).into();
            Response {
                status: response.status.as_u16().into(),
                headers: pairs(&response.headers),
                body: response.body.to_bytes(),
                without_body: false,
                partial,
                error: Some(error.kind.to_owned()),
            }
        }
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn call(call: &RecordedCall<'_>) -> Call {
    let sharing = match call.sharing {
        Sharing::Alone => "",
        Sharing::Cache => "cache",
        Sharing::Snapshot => "snapshot",
        Sharing::SingleFlight => "single-flight",
        Sharing::Batch { .. } | Sharing::SharedBatch => "batch",
    };
    Call {
        upstream: call.upstream.to_owned(),
        operation: call.operation.map(str::to_owned),
        method: lossy(call.method),
        path: lossy(call.path_and_query),
        body: Bytes::copy_from_slice(call.body),
        keys: call.keys.iter().map(|key| lossy(key)).collect(),
        outcome: call.outcome.clone(),
        sharing: sharing.to_owned(),
        made_us: micros(call.made),
        sent_us: call.sent.map(micros),
        ended_us: call.ended.map(micros),
    }
}

/// The requests that a call made, and its own answer if others had a part in it.
fn exchanges(call: &RecordedCall<'_>, at: usize, start: Instant, to: &mut Vec<Exchange>) -> Result<(), &'static str> {
    let position = u32::try_from(at).unwrap_or(u32::MAX);
    let attempts = call.attempts();
    let has_own = attempts.iter().any(|attempt| attempt.exchange.is_some());
    for attempt in attempts {
        to.extend(exchange(call, &attempt, start, position)?);
    }
    // A cache may have had some of the keys.
    if (!has_own && call.sharing != Sharing::Alone) || !call.keys.is_empty() {
        to.extend(shared(call, position));
    }
    Ok(())
}

fn exchange(
    call: &RecordedCall<'_>,
    attempt: &LoggedAttempt,
    start: Instant,
    position: u32,
) -> Result<Option<Exchange>, &'static str> {
    let Some(of) = &attempt.exchange else { return Ok(None) };
    let since = |time: Instant| micros(time.saturating_duration_since(start));
    let mut exchange = Exchange {
        upstream: call.upstream.to_owned(),
        operation: of.operation.and(call.operation).map(str::to_owned),
        method: of.method.to_string(),
        path: of.path_and_query.clone(),
        headers: pairs(&of.headers),
        body: of.body.clone(),
        effect: !of.safe,
        wanted_us: since(attempt.wanted),
        begun_us: since(attempt.begun),
        ended_us: attempt.ended.map(since),
        call: position,
        ..Exchange::default()
    };
    match &of.end {
        ExchangeEnd::Open => {}
        ExchangeEnd::Streamed => return Err("it passes an answer on without collecting it"),
        ExchangeEnd::Answer { status, headers, body } => {
            let (headers, body) = match headers.contains_key(CONTENT_ENCODING) {
                false => (pairs(headers), body.clone()),
                // What is compressed could hide a secret: the decoded answer takes its place.
                true => match call.answer() {
                    Some(RecordedAnswer::Answer { headers, body: Some(body), .. }) if call.keys.is_empty() => {
                        let mut headers = headers;
                        headers.remove(CONTENT_ENCODING);
                        headers.remove(CONTENT_LENGTH);
                        (pairs(&headers), body)
                    }
                    _ => return Err("an answer came compressed, unasked"),
                },
            };
            exchange.answer = Some(Answer { status: status.as_u16().into(), headers, body });
        }
        ExchangeEnd::Failed { kind: ErrorKind::Cancelled, .. } => {}
        ExchangeEnd::Failed { kind, detail } => {
            exchange.failure = Some(kind.as_str().to_owned());
            exchange.detail = Some(detail.clone());
        }
    }
    Ok(Some(exchange))
}

/// A call's own answer.
fn shared(call: &RecordedCall<'_>, position: u32) -> Option<Exchange> {
    let mut exchange = Exchange {
        upstream: call.upstream.to_owned(),
        operation: call.operation.map(str::to_owned),
        method: lossy(call.method),
        path: lossy(call.path_and_query),
        body: Bytes::copy_from_slice(call.body),
        wanted_us: micros(call.made),
        begun_us: micros(call.sent.unwrap_or(call.made)),
        ended_us: call.ended.map(micros),
        shared: true,
        call: position,
        keys: call.keys.iter().map(|key| lossy(key)).collect(),
        single: call.single,
        ..Exchange::default()
    };
    match call.answer()? {
        RecordedAnswer::Answer { status, headers, body } => {
            exchange.absent = body.is_none();
            let body = body.unwrap_or_default();
            exchange.answer = Some(Answer { status: status.as_u16().into(), headers: pairs(&headers), body });
        }
        RecordedAnswer::Failed { kind, detail } => {
            exchange.failure = Some(kind.as_str().to_owned());
            exchange.detail = Some(detail);
        }
    }
    Some(exchange)
}
