//! Status codes of gRPC as HTTP statuses, and its form of a deadline.

use std::time::Duration;

use fanin_json::Writer;
use http::StatusCode;
use http::header::{HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use percent_encoding::percent_decode;

use crate::error::{ERROR_HEADER, error_header_value};

const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
/// The details of a status: `google.rpc.Status` in base64.
pub const DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");
const PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

/// The status codes and their HTTP statuses, as gateways map them (`google.rpc.Code`).
const CODES: [(&str, u16); 17] = [
    ("OK", 200),
    ("CANCELLED", 499),
    ("UNKNOWN", 500),
    ("INVALID_ARGUMENT", 400),
    ("DEADLINE_EXCEEDED", 504),
    ("NOT_FOUND", 404),
    ("ALREADY_EXISTS", 409),
    ("PERMISSION_DENIED", 403),
    ("RESOURCE_EXHAUSTED", 429),
    ("FAILED_PRECONDITION", 400),
    ("ABORTED", 409),
    ("OUT_OF_RANGE", 400),
    ("UNIMPLEMENTED", 501),
    ("INTERNAL", 500),
    ("UNAVAILABLE", 503),
    ("DATA_LOSS", 500),
    ("UNAUTHENTICATED", 401),
];

/// The number and the HTTP status of a code's name, such as `NOT_FOUND`.
pub fn code_named(name: &str) -> Option<(u8, StatusCode)> {
    let number = CODES.iter().position(|(known, _)| *known == name)?;
    // There are 17.
    let code = Code(number as u8);
    Some((code.0, code.http()))
}

/// The names of the codes of errors.
pub fn error_names() -> impl Iterator<Item = &'static str> {
    CODES[1..].iter().map(|(name, _)| *name)
}

/// One of the 17 codes. Others count as UNKNOWN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code(u8);

impl Code {
    pub const OK: Code = Code(0);
    pub const UNKNOWN: Code = Code(2);
    pub const UNIMPLEMENTED: Code = Code(12);

    pub fn name(self) -> &'static str {
        CODES[usize::from(self.0)].0
    }

    pub fn http(self) -> StatusCode {
        // All numbers in the table are valid statuses.
        StatusCode::from_u16(CODES[usize::from(self.0)].1).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    fn parse(text: &[u8]) -> Code {
        let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
        Code(number.filter(|number| usize::from(*number) < CODES.len()).unwrap_or(Code::UNKNOWN.0))
    }

    /// The code of an answer that is not gRPC, for example of a proxy: the mapping that gRPC defines for clients.
    pub fn of_http(status: StatusCode) -> Code {
        Code(match status.as_u16() {
            400 => 13,
            401 => 16,
            403 => 7,
            404 => 12,
            429 | 502 | 503 | 504 => 14,
            _ => 2,
        })
    }
}

/// The status that a server ended a call with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Status {
    pub code: Code,
    pub message: String,
}

impl Status {
    pub fn new(code: Code, message: impl Into<String>) -> Status {
        Status { code, message: message.into() }
    }

    /// Takes the status out of trailers, or out of a head without trailers. `None` if there is none.
    pub fn take(from: &mut HeaderMap) -> Option<Status> {
        let code = Code::parse(from.remove(STATUS)?.as_bytes());
        let message = from.remove(MESSAGE).map(|text| percent_decode(text.as_bytes()).decode_utf8_lossy().into_owned());
        // A server's pushback becomes `Retry-After`, so that it is not retried before.
        if let Some(pause) = from.remove(PUSHBACK) {
            let pause: Option<u64> = pause.to_str().ok().and_then(|pause| pause.parse().ok());
            from.insert(RETRY_AFTER, HeaderValue::from(pause.unwrap_or(u64::from(u32::MAX)).div_ceil(1000)));
        }
        Some(Status { code, message: message.unwrap_or_default() })
    }

    /// Code and message, for logs.
    pub fn text(&self) -> String {
        match self.message.as_str() {
            "" => self.code.name().to_owned(),
            message => format!("{}: {message}", self.code.name()),
        }
    }

    /// The body of an answer with this status, and its headers.
    #[cold]
    pub fn refusal(&self, headers: &mut HeaderMap) -> Vec<u8> {
        headers.insert(ERROR_HEADER, error_header_value(&self.text()));
        let mut body = Vec::new();
        let mut out = Writer::new(&mut body);
        out.begin_object();
        out.key("code");
        out.str(self.code.name());
        out.key("message");
        out.str(&self.message);
        out.end_object();
        body
    }
}

/// A duration as `grpc-timeout`: at most eight digits and a unit. Rounded down, so that the server stops in time, but never to 0. `None`: it
/// is longer than the header can say, some three years, and so is no deadline.
pub(crate) fn timeout(left: Duration) -> Option<HeaderValue> {
    const MOST: u128 = 99_999_999;
    let (number, unit) = match left {
        left if left.as_micros() <= MOST => (left.as_micros().max(1), 'u'),
        left if left.as_millis() <= MOST => (left.as_millis(), 'm'),
        left if u128::from(left.as_secs()) <= MOST => (left.as_secs().into(), 'S'),
        _ => return None,
    };
    // Digits and a letter are a valid value.
    HeaderValue::try_from(format!("{number}{unit}")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_have_eight_digits_and_are_not_nothing() {
        for (left, text) in [
            (Duration::from_nanos(10), "1u"),
            (Duration::from_micros(1_999), "1999u"),
            (Duration::from_secs(99), "99000000u"),
            (Duration::from_secs(100), "100000m"),
            (Duration::from_secs(200_000), "200000S"),
            (Duration::from_secs(99_999_999), "99999999S"),
        ] {
            assert_eq!(timeout(left).unwrap(), text);
        }
        assert_eq!(timeout(Duration::from_secs(100_000_000)), None);
    }

    #[test]
    fn statuses_are_read_and_shown() {
        let mut trailers = HeaderMap::new();
        assert_eq!(Status::take(&mut trailers), None);
        trailers.insert(STATUS, HeaderValue::from_static("5"));
        trailers.insert(MESSAGE, HeaderValue::from_static("no %C3%B6ne %zz"));
        trailers.insert(PUSHBACK, HeaderValue::from_static("1001"));
        let status = Status::take(&mut trailers).unwrap();
        assert_eq!(status, Status::new(Code(5), "no öne %zz"));
        assert_eq!((trailers.len(), &trailers[RETRY_AFTER]), (1, &HeaderValue::from_static("2")));
        assert_eq!(status.code.http(), 404);
        let mut headers = HeaderMap::new();
        assert_eq!(status.refusal(&mut headers), "{\"code\":\"NOT_FOUND\",\"message\":\"no öne %zz\"}".as_bytes());
        assert_eq!(headers[ERROR_HEADER].as_bytes(), "NOT_FOUND: no öne %zz".as_bytes());
        for (text, name) in
            [("0", "OK"), ("16", "UNAUTHENTICATED"), ("17", "UNKNOWN"), ("-1", "UNKNOWN"), ("", "UNKNOWN")]
        {
            assert_eq!(Code::parse(text.as_bytes()).name(), name, "{text:?}");
        }
        assert_eq!(Code::of_http(StatusCode::BAD_GATEWAY).name(), "UNAVAILABLE");
    }
}
