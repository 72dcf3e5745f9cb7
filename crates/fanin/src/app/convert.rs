//! The server's requests for the flows, and the flows' replies for the server.

use std::task::{Context, Poll};

use arcstr::ArcStr;
use bytes::Bytes;
use fanin_flow::{ClientUpload, Detail, FlowError, IncomingRequest, Incomplete, Limit, Reply, ReplyBody, ReplyStream};
use fanin_push::Subscription;
use fanin_server::{Aborted, Body, BodyStream, Problem, Report, Request, RequestId, Response, Upload, UploadError};
use http::{HeaderMap, StatusCode};
use http_body::Frame;

use super::guard;
use super::websocket::Handshake;
use crate::problem::problem;

/// A request for a flow. `names` are those of the route's path parameters.
pub(super) fn incoming(names: &[ArcStr], request: Request) -> IncomingRequest {
    let params = names.iter().zip(request.params.iter()).map(|(name, (_, value))| (name.clone(), ArcStr::from(value)));
    IncomingRequest {
        number: request.id.number(),
        known_id: request.known_id,
        params: params.collect(),
        method: request.method,
        uri: request.uri,
        headers: request.headers,
        body: request.body,
        upload: request.upload.map(|upload| Box::new(ClientBody(upload)) as Box<dyn ClientUpload>),
        remote: request.remote,
        identity: guard::identity(request.identity, request.certificate.as_deref()),
        start: request.start,
        deadline: request.deadline,
        trace: request.trace,
        permit: Some(Box::new(request.permit)),
        detail: Detail::Nothing,
    }
}

/// Converts a reply to a response.
pub(super) fn response(reply: Reply, id: RequestId) -> Response {
    respond(
        reply,
        |problem| problem.request(id),
        |headers, events| Response { headers, body: Body::stream(EventStream(events)), ..Response::default() },
    )
}

/// The same for a WebSocket's handshake: it opens one if the flow has subscribed. Any other response is sent as it is.
pub(super) fn handshake_response(reply: Reply, id: RequestId, handshake: Handshake) -> Response {
    respond(reply, |problem| problem.request(id), |headers, events| handshake.response(headers, *events))
}

/// `with_id` adds the request's id to a problem. `of_events` is the response to a subscription.
fn respond(
    reply: Reply,
    with_id: impl FnOnce(Problem) -> Problem,
    of_events: impl FnOnce(HeaderMap, Box<Subscription>) -> Response,
) -> Response {
    let report = Report {
        partial: reply.partial.is_some(),
        calls: reply.calls,
        upstream: reply.upstream,
        steps: reply.usage.steps,
        memory: reply.usage.memory,
        limit: reply.limit.map(Limit::name),
    };
    match reply.result {
        Ok(success) => {
            let body = match success.body {
                ReplyBody::Pieces(pieces) => match pieces.into_inner() {
                    Ok([body]) => Body::from(body),
                    Err(pieces) => Body::from(pieces.into_iter().collect::<Vec<Bytes>>()),
                },
                ReplyBody::Stream(stream) => Body::stream(StreamedBody(stream)),
                ReplyBody::Messages(messages) => Body::stream(StreamedBody(messages)),
                ReplyBody::Events(events) => return Response { report, ..of_events(success.headers, events) },
            };
            Response { status: success.status, headers: success.headers, body, report }
        }
        Err(error) => Response { report, ..with_id(problem(error)).into() },
    }
}

/// A flow's stream as the server sends it.
struct StreamedBody(Box<dyn ReplyStream>);

impl BodyStream for StreamedBody {
    fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Aborted>>> {
        let next = self.0.poll_next(context);
        next.map(|next| next.map(|next| next.map(Frame::data).map_err(|Incomplete(why)| Aborted(why))))
    }

    fn exact_len(&self) -> Option<u64> {
        self.0.exact_len()
    }

    fn report(&mut self) -> Option<Report> {
        let summary = self.0.summary()?;
        Some(Report {
            partial: summary.partial,
            calls: summary.calls,
            upstream: summary.upstream,
            steps: summary.usage.steps,
            memory: summary.usage.memory,
            limit: summary.limit.map(Limit::name),
        })
    }
}

/// A subscription as a `text/event-stream`.
struct EventStream(Box<Subscription>);

impl BodyStream for EventStream {
    fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Aborted>>> {
        self.0.poll_next(context).map(|next| next.map(|event| Ok(Frame::data(event))))
    }
}

/// A request's body as a flow passes it on.
pub(super) struct ClientBody(pub(super) Box<Upload>);

impl ClientUpload for ClientBody {
    fn poll_part(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, FlowError>>> {
        self.0.poll_part(context).map_err(|error| {
            let (status, kind, title) = match &error {
                UploadError::TooLarge { .. } => {
                    (StatusCode::PAYLOAD_TOO_LARGE, "body-too-large", "The request's body is too large")
                }
                UploadError::Timeout | UploadError::TooSlow => {
                    (StatusCode::REQUEST_TIMEOUT, "body-timeout", "The request's body did not arrive in time")
                }
                UploadError::Broken(_) => (StatusCode::BAD_REQUEST, "bad-request", "The request cannot be understood"),
            };
            FlowError {
                status,
                kind,
                title,
                detail: error.to_string().into(),
                upstream: None,
                retry_after: None,
                rpc: None,
            }
        })
    }

    fn announced(&self) -> Option<u64> {
        self.0.announced()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use fanin_flow::{Success, Usage};
    use http::HeaderValue;
    use http::header::{CONTENT_TYPE, RETRY_AFTER};

    use super::*;

    fn sent(result: Result<Success, FlowError>, partial: Option<&str>) -> Response {
        let partial = partial.map(str::to_owned);
        let (usage, limit) = (Usage { steps: 5, memory: 6 }, Some(Limit::Steps));
        let upstream = Duration::from_millis(7);
        let reply = Reply { result, calls: 3, upstream, partial, usage, limit, record: None };
        respond(reply, |problem| problem, |_, _| unreachable!("no events"))
    }

    fn success(pieces: &[&'static str]) -> Success {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let body = ReplyBody::Pieces(pieces.iter().map(|piece| Bytes::from_static(piece.as_bytes())).collect());
        Success { status: StatusCode::CREATED, headers, body, rpc: None }
    }

    #[test]
    fn a_response_is_sent_as_it_is() {
        for pieces in [&[][..], &["{}"], &["{\"a\":", "1", "}"]] {
            let response = sent(Ok(success(pieces)), Some("reviews"));
            assert_eq!(response.status, StatusCode::CREATED);
            assert_eq!(response.headers[CONTENT_TYPE], "application/json");
            assert_eq!(response.body.to_bytes(), pieces.concat());
            let upstream = Duration::from_millis(7);
            let limit = Some("steps");
            assert_eq!(response.report, Report { partial: true, calls: 3, upstream, steps: 5, memory: 6, limit });
        }
        assert!(!sent(Ok(success(&[])), None).report.partial);
    }

    #[test]
    fn an_error_becomes_a_problem() {
        let error = FlowError {
            status: StatusCode::SERVICE_UNAVAILABLE,
            kind: "upstream-limit",
            title: "Too many calls to an upstream",
            detail: "search: limit".into(),
            upstream: Some("search".into()),
            retry_after: Some(Duration::from_millis(1500)),
            rpc: None,
        };
        let response = sent(Err(error), None);
        assert_eq!(response.status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(response.headers[CONTENT_TYPE], "application/problem+json");
        assert_eq!(response.headers[RETRY_AFTER], "2");
        assert_eq!(response.report.calls, 3);
        let body: serde_json::Value = serde_json::from_slice(&response.body.to_bytes()).expect("JSON");
        assert_eq!(body["type"], "urn:fanin:problem:upstream-limit");
        assert_eq!((&body["detail"], &body["upstream"]), (&"search: limit".into(), &"search".into()));
    }
}
