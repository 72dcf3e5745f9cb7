//! What the server answers without the application.

use std::time::Duration;

use http::header::ALLOW;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use crate::admission::Refusal;
use crate::client::{Bound, WINDOW};
use crate::host::HostError;
use crate::path::PathError;
use crate::{Body, Problem, RequestId, Response};

/// Most header lines of a request; hyper refuses more in HTTP/1.1.
pub(super) const MAX_HEADERS: usize = 100;

/// Why the server answers instead of the application.
#[derive(Debug)]
pub(super) enum ServerResponse {
    Host(HostError),
    /// The body has a transfer coding other than chunked.
    TransferCoding,
    Path(PathError),
    TooManyHeaders,
    NotFound,
    /// No route is for the host.
    NoHost,
    /// OPTIONS on a known path.
    Options {
        allow: HeaderValue,
    },
    /// OPTIONS by which a browser asks whether a page may send a request, with the headers that tell.
    Preflight(Box<HeaderMap>),
    NotAllowed {
        allow: HeaderValue,
    },
    TimeoutHeader(HeaderName),
    PriorityHeader(HeaderName),
    TooLarge {
        limit: usize,
    },
    BodyTimeout,
    /// The body came slower than the minimum rate.
    BodyTooSlow,
    BodyBroken(String),
    Refused(Refusal),
    /// The application's guard has refused it.
    Guard(Box<Response>),
    /// The route's cache has it.
    Cached(Box<Response>),
    /// The client has too many of something.
    ClientLimit(Bound),
    /// The deadline had passed on arrival, or the application overran it.
    Deadline,
    Panic,
    /// The application returned a response that cannot be sent.
    BadResponse,
}

impl ServerResponse {
    pub(super) fn response(self, id: RequestId) -> Response {
        let bad = |detail: String| {
            Problem::new(StatusCode::BAD_REQUEST, "bad-request", "The request is not valid").detail(detail)
        };
        let problem = match &self {
            ServerResponse::Options { allow } => {
                let mut response = Response::new(StatusCode::NO_CONTENT, Body::empty());
                response.headers.insert(ALLOW, allow.clone());
                return response;
            }
            ServerResponse::Preflight(headers) => {
                return Response {
                    headers: (**headers).clone(),
                    ..Response::new(StatusCode::NO_CONTENT, Body::empty())
                };
            }
            ServerResponse::Guard(_) | ServerResponse::Cached(_) => return self.made(),
            ServerResponse::Host(error) => bad(error.detail().into()),
            ServerResponse::TransferCoding => {
                bad("the only transfer coding that is understood is chunked, once".into())
            }
            ServerResponse::Path(error) => bad(error.detail().into()),
            ServerResponse::TooManyHeaders => Problem::new(
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                "head-too-large",
                "The request's head is too large",
            )
            .detail(format!("at most {MAX_HEADERS} header lines are accepted")),
            ServerResponse::NotFound => Problem::new(StatusCode::NOT_FOUND, "no-route", "No route has this path"),
            ServerResponse::NoHost => {
                Problem::new(StatusCode::MISDIRECTED_REQUEST, "no-host", "No route is for this host")
            }
            ServerResponse::NotAllowed { .. } => Problem::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "method-not-allowed",
                "The path has no route for this method",
            ),
            ServerResponse::TimeoutHeader(name) => {
                bad(format!("the header {name} is not a whole number of milliseconds"))
            }
            ServerResponse::PriorityHeader(name) => {
                bad(format!("the header {name} is not one of critical, normal, low, background"))
            }
            ServerResponse::TooLarge { limit } => {
                Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body-too-large", "The request's body is too large")
                    .detail(format!("at most {limit} bytes are accepted"))
                    .member("limit", *limit)
            }
            ServerResponse::BodyTimeout => {
                Problem::new(StatusCode::REQUEST_TIMEOUT, "body-timeout", "The request's body did not arrive in time")
            }
            ServerResponse::BodyTooSlow => {
                Problem::new(StatusCode::REQUEST_TIMEOUT, "body-timeout", "The request's body did not arrive in time")
                    .detail("it came slower than the minimum rate")
            }
            ServerResponse::BodyBroken(detail) => bad(format!("the body could not be read: {detail}")),
            ServerResponse::Refused(refusal) => {
                Problem::new(StatusCode::SERVICE_UNAVAILABLE, "overloaded", "The server is overloaded")
                    .detail(refusal.detail())
                    .member("reason", refusal.reason())
                    .retry_after(Duration::from_secs(1))
            }
            ServerResponse::ClientLimit(bound) => {
                let (detail, after) = match bound {
                    Bound::Resets => ("the client reset too many requests on HTTP/2 connections", WINDOW),
                    _ => ("the client has too many requests in progress", Duration::from_secs(1)),
                };
                Problem::new(StatusCode::TOO_MANY_REQUESTS, "client-limit", "The client has reached a limit")
                    .detail(detail)
                    .member("reason", bound.label())
                    .retry_after(after)
            }
            ServerResponse::Deadline => {
                Problem::new(StatusCode::GATEWAY_TIMEOUT, "deadline", "The request's deadline passed")
            }
            ServerResponse::Panic | ServerResponse::BadResponse => {
                Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "The server has an internal error")
            }
        };
        let mut response = Response::from(problem.request(id));
        if let ServerResponse::NotAllowed { allow } = self {
            response.headers.insert(ALLOW, allow);
        }
        response
    }

    /// What the guard or the cache has made already.
    fn made(self) -> Response {
        match self {
            ServerResponse::Guard(response) | ServerResponse::Cached(response) => *response,
            _ => Response::default(),
        }
    }
}
