//! gRPC calls of one message each way: its framing of a message, its status in the trailers.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue, TE};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};

use crate::attempt::AttemptResult;
use crate::error::LoadError;

/// Makes a request with a message as its body a gRPC call.
pub(crate) fn dress(request: &mut http::Request<Full<Bytes>>, timeout: Duration) -> Result<(), LoadError> {
    // `Full` knows its length, and is read to its end without waiting.
    let length = request.body().size_hint().exact().and_then(|length| u32::try_from(length).ok());
    let length = length.ok_or_else(|| LoadError::Plan("the message is larger than gRPC allows".to_owned()))?;
    let mut framed = BytesMut::with_capacity(5 + length as usize);
    framed.put_u8(0);
    framed.put_u32(length);
    framed.extend_from_slice(&whole(request.body_mut()));
    *request.body_mut() = Full::new(framed.freeze());
    *request.method_mut() = http::Method::POST;
    let headers = request.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(TE, HeaderValue::from_static("trailers"));
    headers.insert("grpc-timeout", timeout_value(timeout));
    Ok(())
}

fn whole(body: &mut Full<Bytes>) -> Bytes {
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};
    match Pin::new(body).poll_frame(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Some(Ok(frame))) => frame.into_data().unwrap_or_default(),
        _ => Bytes::new(),
    }
}

/// At most eight digits and a unit.
fn timeout_value(timeout: Duration) -> HeaderValue {
    let (count, unit) = match timeout.as_micros() {
        micros @ ..100_000_000 => (micros, 'u'),
        micros @ ..100_000_000_000 => (micros / 1000, 'm'),
        micros => ((micros / 1_000_000).min(99_999_999), 'S'),
    };
    // Digits and a letter are always a header's value.
    HeaderValue::from_str(&format!("{count}{unit}")).unwrap_or(HeaderValue::from_static("1S"))
}

/// Reads a whole answer. Its status is what HTTP has for gRPC's code; an answer without one is broken.
pub(crate) async fn read(response: http::Response<Incoming>) -> AttemptResult {
    let status = response.status();
    // An answer that failed at once has it in its head.
    let mut code = code_of(response.headers());
    let mut body = response.into_body();
    let mut bytes = 0;
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return AttemptResult::Broken };
        bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
        if let Some(trailers) = frame.trailers_ref() {
            code = code_of(trailers).or(code);
        }
    }
    match (code, status.is_success()) {
        (Some(code), true) => AttemptResult::Answer { status: http_status(code), bytes },
        (None, false) => AttemptResult::Answer { status: status.as_u16(), bytes },
        _ => AttemptResult::Broken,
    }
}

fn code_of(headers: &HeaderMap) -> Option<u16> {
    headers.get("grpc-status")?.to_str().ok()?.parse().ok()
}

/// What HTTP has for a gRPC code, by the table in google/rpc/code.proto.
fn http_status(code: u16) -> u16 {
    match code {
        0 => 200,
        1 => 499,
        3 | 9 | 11 => 400,
        4 => 504,
        5 => 404,
        6 | 10 => 409,
        7 => 403,
        8 => 429,
        12 => 501,
        14 => 503,
        16 => 401,
        _ => 500,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_has_its_five_bytes_and_its_time() {
        let mut request = http::Request::new(Full::new(Bytes::from_static(b"abc")));
        dress(&mut request, Duration::from_millis(50)).expect("it fits");
        assert_eq!(request.headers()["grpc-timeout"], "50000u");
        assert_eq!(whole(request.body_mut()), Bytes::from_static(b"\0\0\0\0\x03abc"));
        for (seconds, text) in [(99, "99000000u"), (100, "100000m"), (200_000, "200000S"), (u64::MAX, "99999999S")] {
            assert_eq!(timeout_value(Duration::from_secs(seconds)), text);
        }
    }
}
