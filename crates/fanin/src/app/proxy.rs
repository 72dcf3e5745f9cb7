//! Routes that pass their requests on to an upstream as they are, without a flow.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use fanin_config::HttpVersion;
use fanin_flow::{ClientUpload, FlowError};
use fanin_server::{Aborted, Body, BodyStream, Permit, Report, Request, RequestId, Response};
use fanin_tracecontext::CallParent;
use fanin_upstream::{
    Answer, Bodies, BodySlot, CallContext, CallError, ErrorKind, StreamBounds, StreamedBody, Upload, UploadBroken,
    UploadSlot, Upstream, WorkerClient,
};
use http::header::{CONTENT_LENGTH, EXPECT, HOST};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use http_body::Frame;

use super::convert::ClientBody;
use super::request_record::RequestRecord;
use crate::problem;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// The upstream of a route.
#[derive(Clone, Debug)]
pub(super) struct Proxied {
    upstream: Arc<Upstream>,
    /// Clients speak TLS with us.
    is_secure: bool,
}

impl Proxied {
    pub(super) fn new(upstream: &Arc<Upstream>, is_secure: bool) -> Proxied {
        Proxied { upstream: upstream.clone(), is_secure }
    }

    /// Whether bodies of requests are passed on while they come.
    pub(super) fn streams_bodies(&self) -> bool {
        self.upstream.config().http == HttpVersion::Http1
    }
}

/// Why the client's body is not complete, once it has failed.
type Failure = Rc<RefCell<Option<FlowError>>>;

/// Passes a request on, and the answer back.
pub(super) async fn serve(
    proxied: Proxied,
    client: Rc<WorkerClient>,
    request: Request,
    mut record: RequestRecord,
) -> Response {
    let (id, is_head) = (request.id, request.method == Method::HEAD);
    let failure = Failure::default();
    let path = request.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str).to_owned();
    let upload = request.upload.filter(|upload| upload.announced() != Some(0));
    let context = CallContext {
        deadline: request.deadline,
        request_started: request.start,
        timeout: None,
        safe: request.method.is_safe() && upload.is_none() && request.body.is_empty(),
        operation: None,
        trace: request.trace.clone().map(|request| CallParent { request, call: 0, first: 0 }),
        attempts: None,
    };
    let slot = BodySlot::new(StreamBounds::default());
    let upload =
        upload.map(|body| UploadSlot::new(Box::new(Passed { body: ClientBody(body), failure: failure.clone() })));
    let bodies = Bodies { answer: Some(slot.clone()), request: upload };
    let sent = fanin_upstream::Request {
        method: request.method,
        path_and_query: path,
        headers: outgoing(request.headers, request.uri.host(), request.remote.ip(), proxied.is_secure),
        body: request.body,
    };
    let permit = request.permit;
    let called = proxied.upstream.stream(&client, sent, context, bodies).await;
    let response = match called {
        Ok(answer) => passed_back(answer, slot.take(), is_head, permit),
        Err(error) => failed(&error, failure.take(), id),
    };
    record.answered(response.status);
    response
}

/// The headers of the client's request as the upstream gets them. Those of the connection are left out by the upstream's client.
fn outgoing(mut headers: HeaderMap, authority: Option<&str>, client: std::net::IpAddr, is_secure: bool) -> HeaderMap {
    let host = headers.remove(HOST).or_else(|| HeaderValue::from_str(authority?).ok());
    // Headers that the client's `Connection` names are for us alone (RFC 9110, 7.6.1).
    let named: Vec<HeaderName> = headers
        .get_all(http::header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named.iter().chain([&EXPECT, &CONTENT_LENGTH]) {
        headers.remove(name);
    }
    if let Some(host) = host {
        headers.insert(FORWARDED_HOST, host);
    }
    if let Ok(client) = HeaderValue::from_str(&client.to_string()) {
        headers.insert(FORWARDED_FOR, client);
    }
    headers.insert(FORWARDED_PROTO, HeaderValue::from_static(if is_secure { "https" } else { "http" }));
    headers
}

fn passed_back(answer: Answer, body: Option<Box<StreamedBody>>, is_head: bool, permit: Permit) -> Response {
    let announced = || answer.headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok();
    let status = answer.status;
    let report = Report { calls: 1, upstream: answer.elapsed, ..Report::default() };
    // Nobody reads the body of a response that has none.
    let has_none = matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let body = match body.filter(|_| !has_none) {
        Some(body) => {
            let len = if is_head { announced() } else { body.announced() };
            Body::stream(PassedBack { body, len, _permit: permit, report: Some(report) })
        }
        None => Body::empty(),
    };
    let report = if body.is_stream() { Report::default() } else { report };
    Response { status, headers: answer.headers.into_map(), body, report }
}

#[cold]
fn failed(error: &CallError, client: Option<FlowError>, id: RequestId) -> Response {
    if client.is_none() {
        tracing::warn!(request = %id, "{error}");
    }
    let problem = client.unwrap_or_else(|| FlowError::upstream(&error.upstream, error.kind));
    let report = Report { calls: 1, upstream: error.elapsed, ..Report::default() };
    Response { report, ..problem::problem(problem).request(id).into() }
}

/// The body of an answer on its way to the client. It holds the request's permit.
struct PassedBack {
    body: Box<StreamedBody>,
    len: Option<u64>,
    _permit: Permit,
    report: Option<Report>,
}

impl BodyStream for PassedBack {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Aborted>>> {
        self.body.poll_part(cx).map(|part| {
            part.map(|part| {
                part.map(Frame::data).map_err(|kind| {
                    Aborted(match kind {
                        ErrorKind::Timeout => "the upstream was silent for too long",
                        ErrorKind::TooLarge => "the answer is larger than max_stream",
                        _ => "the upstream broke off",
                    })
                })
            })
        })
    }

    fn exact_len(&self) -> Option<u64> {
        self.len
    }

    fn report(&mut self) -> Option<Report> {
        self.report.take()
    }
}

/// The client's body on its way to the upstream.
struct Passed {
    body: ClientBody,
    failure: Failure,
}

impl Upload for Passed {
    fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, UploadBroken>>> {
        self.body.poll_part(cx).map_err(|error| {
            self.failure.replace(Some(error));
            UploadBroken
        })
    }

    fn announced(&self) -> Option<u64> {
        self.body.announced()
    }
}
