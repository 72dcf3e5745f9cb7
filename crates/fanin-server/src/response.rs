//! The response of an application.

use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, UPGRADE};
use http::{HeaderMap, HeaderValue, StatusCode};

use crate::{Body, Problem, Report, Upgraded};

/// The response to a request.
#[derive(Debug, Default)]
pub struct Response {
    /// The status; a 1xx becomes 500, but for that of [`switching_protocols`](Response::switching_protocols).
    pub status: StatusCode,
    /// Headers. The server owns `content-length` and the connection headers (`connection`, `transfer-encoding`, …): it removes them here
    /// and writes its own.
    pub headers: HeaderMap,
    /// The body.
    pub body: Body,
    /// For access log and metrics.
    pub report: Report,
}

impl Response {
    /// A response without headers.
    pub fn new(status: StatusCode, body: impl Into<Body>) -> Response {
        Response { status, body: body.into(), ..Response::default() }
    }

    /// A 200 with `content-type: application/json`.
    pub fn json(body: impl Into<Body>) -> Response {
        let mut response = Response::new(StatusCode::OK, body);
        response.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response
    }

    /// A 101: the connection goes on in `protocol`. For requests that [can be upgraded](crate::Request::can_upgrade).
    pub fn switching_protocols(protocol: HeaderValue, upgraded: impl Upgraded) -> Response {
        let mut response = Response::new(StatusCode::SWITCHING_PROTOCOLS, Body::upgrade(upgraded));
        response.headers.insert(UPGRADE, protocol);
        response
    }

    /// An error.
    pub fn problem(problem: &Problem) -> Response {
        let mut response = Response::new(problem.status(), problem.to_json());
        response.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        response.headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(seconds) = problem.retry_after_seconds() {
            response.headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

impl From<Problem> for Response {
    fn from(problem: Problem) -> Response {
        Response::problem(&problem)
    }
}
