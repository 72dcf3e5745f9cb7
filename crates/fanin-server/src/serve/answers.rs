//! What the server answers by itself.

use std::time::Duration;

use http::header::ALLOW;
use http::{HeaderName, HeaderValue, StatusCode};

use crate::admission::Refusal;
use crate::path::PathError;
use crate::{Problem, RequestId, Response};

/// Why the application is not asked, or not listened to.
#[derive(Debug)]
pub(super) enum Answer {
    Host,
    Path(PathError),
    NotFound,
    NotAllowed {
        allow: HeaderValue,
    },
    TimeoutHeader(HeaderName),
    PriorityHeader(HeaderName),
    TooLarge {
        limit: usize,
    },
    BodyTimeout,
    BodyBroken(String),
    Refused(Refusal),
    /// The request came too late, or the application overran its deadline.
    Deadline,
    Panic,
    /// The application answered what cannot be sent.
    BadResponse,
}

impl Answer {
    pub(super) fn response(&self, id: RequestId) -> Response {
        let bad = |detail: String| {
            Problem::new(StatusCode::BAD_REQUEST, "bad-request", "The request is not valid").detail(detail)
        };
        let problem = match self {
            Answer::Host => bad("exactly one Host header is needed".into()),
            Answer::Path(error) => bad(error.detail().into()),
            Answer::NotFound => Problem::new(StatusCode::NOT_FOUND, "no-route", "No route has this path"),
            Answer::NotAllowed { .. } => Problem::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "method-not-allowed",
                "The path has no route for this method",
            ),
            Answer::TimeoutHeader(name) => bad(format!("the header {name} is not a whole number of milliseconds")),
            Answer::PriorityHeader(name) => {
                bad(format!("the header {name} is none of critical, normal, low, background"))
            }
            Answer::TooLarge { limit } => {
                Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body-too-large", "The request's body is too large")
                    .detail(format!("at most {limit} bytes are taken"))
                    .member("limit", *limit)
            }
            Answer::BodyTimeout => {
                Problem::new(StatusCode::REQUEST_TIMEOUT, "body-timeout", "The request's body did not arrive in time")
            }
            Answer::BodyBroken(detail) => bad(format!("the body could not be read: {detail}")),
            Answer::Refused(refusal) => {
                Problem::new(StatusCode::SERVICE_UNAVAILABLE, "overloaded", "The server is overloaded")
                    .detail(refusal.detail())
                    .member("reason", refusal.reason())
                    .retry_after(Duration::from_secs(1))
            }
            Answer::Deadline => Problem::new(StatusCode::GATEWAY_TIMEOUT, "deadline", "The request's deadline passed"),
            Answer::Panic | Answer::BadResponse => {
                Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "The server has a fault")
            }
        };
        let mut response = Response::from(problem.request(id));
        if let Answer::NotAllowed { allow } = self {
            response.headers.insert(ALLOW, allow.clone());
        }
        response
    }
}
