//! Answers that come compressed without being requested.

use std::io::Write;

use bytes::Bytes;
use fanin_config::HttpVersion;
use fanin_upstream::{CallError, ErrorKind, Fault, Request};
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use http::{Method, StatusCode};
use http_body_util::Full;

use crate::common::{Response, Version, client, no_policies, run, serve, text};

fn gzip(bytes: &[u8]) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap().into()
}

fn answer(status: u16, encoding: &'static str, body: Bytes) -> Response {
    let answer = http::Response::builder().status(status).header(CONTENT_TYPE, "text/x");
    answer.header(CONTENT_ENCODING, encoding).body(Full::new(body)).unwrap()
}

fn http_version(version: Version) -> HttpVersion {
    match version {
        Version::One => HttpVersion::Http1,
        Version::Two => HttpVersion::Http2,
    }
}

#[test]
fn a_compressed_answer_is_decoded_whatever_its_size_and_status() {
    run(async {
        for version in [Version::One, Version::Two] {
            for size in [1, 1000, 5_000_000] {
                let content: Vec<u8> = (0..size).map(|at: u32| (at % 251) as u8).collect();
                let body = gzip(&content);
                for status in [200, 404, 503] {
                    let body = body.clone();
                    let server = serve(version, move |_| {
                        let answer = answer(status, "gzip", body.clone());
                        async { answer }
                    })
                    .await;
                    let client = client(&server.url(), |config| {
                        no_policies(config);
                        config.http = http_version(version);
                    });
                    let answer = client.get("/").await.unwrap();
                    assert_eq!((answer.status.as_u16(), answer.body.len()), (status, content.len()));
                    assert!(answer.body == content);
                    assert_eq!(answer.headers.content_type(), Some(&b"text/x"[..]));
                    assert!(!answer.headers.contains_key(CONTENT_ENCODING));
                    assert!(!answer.headers.contains_key(CONTENT_LENGTH));
                    // The connection can be used for another call.
                    client.get("/").await.unwrap();
                    assert_eq!(server.connections(), 1);
                }
            }
        }
    });
}

#[test]
fn an_answer_that_is_too_large_decoded_is_refused() {
    run(async {
        let bomb = gzip(&vec![b'x'; 10_000_000]);
        assert!(bomb.len() < 20_000);
        let server = serve(Version::One, move |_| {
            let answer = answer(200, "gzip", bomb.clone());
            async { answer }
        })
        .await;
        for (max, fits) in [(1_000_000, false), (9_999_999, false), (10_000_000, true)] {
            let client = client(&server.url(), |config| config.max_answer = max);
            match client.get("/").await {
                Ok(answer) => assert!(fits && answer.body.len() == 10_000_000),
                Err(error) => assert_eq!((error.kind, fits), (ErrorKind::TooLarge, false), "{error}"),
            }
        }
    });
}

#[test]
fn an_undecodable_answer_fails_the_call_with_its_reason() {
    run(async {
        let cases = [
            (
                "compress",
                gzip(b"hello"),
                "content-encoding \"compress\"; only gzip, deflate, br and zstd can be decoded",
            ),
            ("gzip", gzip(b"hello").slice(..10), "the answer's gzip stream is broken: it ends too early"),
            ("gzip", Bytes::from_static(b"hello"), "the answer's gzip stream is broken: it has no gzip header"),
        ];
        for (encoding, body, expected) in cases {
            let server = serve(Version::One, move |_| {
                let answer = answer(200, encoding, body.clone());
                async { answer }
            })
            .await;
            let client = client(&server.url(), |_| ());
            let error = client.get("/").await.unwrap_err();
            assert_eq!((error.kind, error.fault, error.retry), (ErrorKind::Decode, Fault::Upstream, false));
            assert!(error.detail.contains(expected), "{error}");
            assert_eq!((server.requests(), client.calls("decode")), (1, 1.0));
        }
    });
}

#[test]
fn a_failure_that_cannot_be_decoded_keeps_its_status() {
    run(async {
        let server = serve(Version::One, |_| async { answer(404, "br", Bytes::from_static(b"\x1f")) }).await;
        let client = client(&server.url(), |_| ());
        let answer = client.get("/").await.unwrap();
        assert_eq!((answer.status, &*answer.body), (StatusCode::NOT_FOUND, &b"\x1f"[..]));
        assert_eq!(CallError::status(client.upstream.name(), &answer).detail, "status 404");
        let error = CallError::decode(client.upstream.name(), &answer, "expected a value, found byte 0x1F");
        assert_eq!(error.detail, "expected a value, found byte 0x1F: the answer is still compressed");
    });
}

#[test]
fn an_answer_without_a_body_keeps_its_headers() {
    run(async {
        let server = serve(Version::One, |request| {
            let is_head = request.method() == Method::HEAD;
            async move { if is_head { answer(200, "br", Bytes::new()) } else { text("hello") } }
        })
        .await;
        let client = client(&server.url(), |_| ());
        let request = Request { method: Method::HEAD, ..Request::get("/") };
        let answer = client.call(request).await.unwrap();
        assert_eq!((&answer.headers[CONTENT_ENCODING], &*answer.body), (&"br".parse().unwrap(), &b""[..]));
        assert_eq!(client.get("/").await.unwrap().body, "hello");
    });
}
