//! Problem documents as the errors of a protocol.

use http::header::CONTENT_TYPE;

use super::Call;
use super::status::{Status, code_of};
use crate::Response;

/// Turns a problem document into the error of a call. Its headers stay, as metadata. Other responses stay as they are.
#[cold]
pub(crate) fn convert(call: Call, response: Response) -> Response {
    let is_problem = response.headers.get(CONTENT_TYPE).is_some_and(|kind| kind == "application/problem+json");
    if !is_problem {
        return response;
    }
    let problem: serde_json::Value = serde_json::from_slice(&response.body.to_bytes()).unwrap_or_default();
    let text = |key: &str| problem[key].as_str().filter(|text| !text.is_empty());
    let message = text("detail").or_else(|| text("title")).unwrap_or_default();
    let status = Status::new(code_of(response.status, text("type").unwrap_or_default()), message);
    Response { report: response.report, ..call.failed(&status, response.headers, response.status) }
}

#[cfg(test)]
mod tests {
    use http::StatusCode;
    use http::header::HeaderValue;

    use super::super::{Codec, Protocol};
    use super::*;
    use crate::Problem;

    fn call(protocol: Protocol) -> Call {
        Call { protocol, codec: Codec::Proto }
    }

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
            let problem = || Problem::new(status, kind, "Title").detail("50 % für\n").into();
            for protocol in [Protocol::Grpc, Protocol::GrpcWeb, Protocol::GrpcWebText] {
                let converted = convert(call(protocol), problem());
                assert_eq!(
                    (converted.status, &converted.headers["grpc-status"]),
                    (status, &HeaderValue::from_static(expected))
                );
                assert_eq!(converted.headers["grpc-message"], "50 %25 f%C3%BCr%0A");
                assert!(converted.body.is_empty());
            }
        }
    }

    #[test]
    fn connect_has_errors_as_json() {
        let problem = || Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not-grpc", "Title").into();
        let error = convert(call(Protocol::Connect), problem());
        assert_eq!(
            (error.status, &error.headers[CONTENT_TYPE]),
            (StatusCode::NOT_IMPLEMENTED, &"application/json".parse().unwrap())
        );
        assert_eq!(error.body.to_bytes(), r#"{"code":"unimplemented","message":"Title"}"#);
        let error = convert(call(Protocol::ConnectStream), problem());
        assert_eq!(error.headers[CONTENT_TYPE], "application/connect+proto");
        assert_eq!(error.body.to_bytes()[5..], *br#"{"error":{"code":"unimplemented","message":"Title"}}"#);
    }

    #[test]
    fn headers_of_a_problem_stay() {
        let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, "overloaded", "Title");
        let converted = convert(call(Protocol::Grpc), problem.retry_after(std::time::Duration::from_secs(3)).into());
        assert_eq!(
            (&converted.headers["retry-after"], &converted.headers["grpc-status"]),
            (&"3".parse().unwrap(), &14.into())
        );
    }
}
