//! What an application answers.

use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, StatusCode};

use crate::{Body, Problem, Report};

/// An answer to a request.
#[derive(Clone, Debug, Default)]
pub struct Response {
    /// The status; a 1xx becomes 500.
    pub status: StatusCode,
    /// Headers. `content-length` and the headers of one connection (`connection`, `transfer-encoding`, ...) are the
    /// server's: it drops them here and writes its own.
    pub headers: HeaderMap,
    /// The body.
    pub body: Body,
    /// What access log and metrics tell about it.
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
