//! Errors as gRPC clients expect them: HTTP 200 and a gRPC status in the head, without a body ("Trailers-Only" in gRPC over HTTP/2).

use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use http::{StatusCode, Version};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use crate::{Body, Response};

const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

/// What `grpc-message` escapes, besides bytes that are not ASCII.
const ESCAPED: &AsciiSet = &CONTROLS.add(b'%');

/// Whether a request is a gRPC call. gRPC-Web has a content type of its own, and another form of errors.
#[inline]
pub(super) fn is_call(version: Version, headers: &HeaderMap) -> bool {
    version == Version::HTTP_2 && headers.get(CONTENT_TYPE).is_some_and(|kind| is_grpc(kind.as_bytes()))
}

fn is_grpc(kind: &[u8]) -> bool {
    kind.strip_prefix(b"application/grpc").is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';' | b' ')))
}

/// Turns a problem document into a gRPC status. Its headers stay, as metadata. Other responses stay as they are.
#[cold]
pub(super) fn convert(response: Response) -> Response {
    let is_problem = response.headers.get(CONTENT_TYPE).is_some_and(|kind| kind == "application/problem+json");
    if !is_problem {
        return response;
    }
    let problem: serde_json::Value = serde_json::from_slice(&response.body.to_bytes()).unwrap_or_default();
    let text = |key: &str| problem[key].as_str().filter(|text| !text.is_empty());
    let message = text("detail").or_else(|| text("title")).unwrap_or_default();
    let mut headers = response.headers;
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(STATUS, HeaderValue::from(code(response.status, text("type").unwrap_or_default())));
    if let Ok(message) = HeaderValue::try_from(utf8_percent_encode(message, ESCAPED).to_string()) {
        headers.insert(MESSAGE, message);
    }
    Response { status: StatusCode::OK, headers, body: Body::empty(), report: response.report }
}

/// The code of an HTTP status, as gateways map it (`google.rpc.Code`). A path that no route has is a method that is not implemented.
fn code(status: StatusCode, kind: &str) -> u16 {
    match (status.as_u16(), kind.rsplit(':').next().unwrap_or_default()) {
        (_, "no-route" | "method-not-allowed") => 12,
        (413 | 429 | 431, _) => 8,
        (400..=499, "body-timeout") => 4,
        (401, _) => 16,
        (403, _) => 7,
        (404, _) => 5,
        (409, _) => 10,
        (412, _) => 9,
        (415 | 501, _) => 12,
        (400..=499, _) => 3,
        (502 | 503, _) => 14,
        (504, _) => 4,
        (500, _) => 13,
        _ => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Problem;

    #[test]
    fn problems_become_statuses() {
        for (status, kind, expected) in [
            (400, "bad-request", "3"),
            (404, "no-route", "12"),
            (404, "abort", "5"),
            (429, "client-limit", "8"),
            (503, "overloaded", "14"),
            (504, "deadline", "4"),
            (500, "flow", "13"),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            let converted = convert(Problem::new(status, kind, "Title").detail("50 % für\n").into());
            assert_eq!(
                (converted.status, &converted.headers[STATUS]),
                (StatusCode::OK, &HeaderValue::from_static(expected))
            );
            assert_eq!(converted.headers[MESSAGE], "50 %25 f%C3%BCr%0A");
            assert!(converted.body.is_empty());
        }
    }

    #[test]
    fn headers_of_a_problem_stay() {
        let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, "overloaded", "Title");
        let converted = convert(problem.retry_after(std::time::Duration::from_secs(3)).into());
        assert_eq!(
            (&converted.headers["retry-after"], &converted.headers[STATUS]),
            (&"3".parse().unwrap(), &14.into())
        );
    }

    #[test]
    fn only_grpc_is_grpc() {
        for (kind, expected) in [
            ("application/grpc", true),
            ("application/grpc+proto", true),
            ("application/grpc; charset=utf-8", true),
            ("application/grpc-web", false),
            ("application/grpcx", false),
            ("application/json", false),
        ] {
            assert_eq!(is_grpc(kind.as_bytes()), expected, "{kind}");
        }
    }
}
