//! Streams of gRPC servers that are not collected, from a server that does what it is told, frame by frame.

use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use fanin_config::{GrpcCompression, HttpVersion};
use fanin_testbed::Server as Testbed;
use fanin_upstream::{
    Answer, Bodies, BodySlot, CallContext, CallError, ErrorKind, Request, StreamBounds, StreamedBody,
};
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, HeaderValue, Method};
use tokio::sync::Semaphore;
use tokio::task::spawn_local;

use crate::common::{Client, Server, client, in_time, no_policies, raw, run, until};

/// Bytes of `fanin.probe.Number { value: 1 }` with its prefix.
const ONE: &[u8] = &[0, 0, 0, 0, 2, 8, 1];
/// The same as JSON.
const JSON: &str = r#"{"value":"1","ballast":""}"#;

/// Serves HTTP/2. `handle` gets each request, its body and the way to answer.
async fn far<F, A>(window: u32, handle: F) -> Server
where
    F: Fn(http::Request<RecvStream>, SendResponse<Bytes>) -> A + Clone + 'static,
    A: Future<Output = ()> + 'static,
{
    raw(move |stream| {
        let handle = handle.clone();
        async move {
            let mut builder = h2::server::Builder::new();
            let Ok(mut connection) = builder.initial_window_size(window).handshake(stream).await else { return };
            while let Some(Ok((request, respond))) = connection.accept().await {
                spawn_local(handle(request, respond));
            }
        }
    })
    .await
}

/// Starts an answer of gRPC.
fn begin(respond: &mut SendResponse<Bytes>) -> SendStream<Bytes> {
    let head = http::Response::builder().header("content-type", "application/grpc").header("x-head", "h");
    respond.send_response(head.body(()).unwrap(), false).unwrap()
}

fn end(stream: &mut SendStream<Bytes>, status: &'static str, message: &'static str) {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static(status));
    trailers.insert("grpc-message", HeaderValue::from_static(message));
    trailers.insert("x-trailer", HeaderValue::from_static("t"));
    stream.send_trailers(trailers).unwrap();
}

fn data(stream: &mut SendStream<Bytes>, bytes: &[u8]) {
    stream.send_data(Bytes::copy_from_slice(bytes), false).unwrap();
}

fn grpc(server: &Server, change: impl FnOnce(&mut fanin_config::Upstream)) -> Client {
    client(&server.url(), |config| {
        config.grpc = std::mem::take(&mut config.urls);
        config.http = HttpVersion::Http2;
        config.proto = vec![Testbed::protos().join("probe.proto")];
        no_policies(config);
        change(config);
    })
}

async fn call(
    client: &Client,
    method: &str,
    bounds: StreamBounds,
    context: CallContext,
) -> Result<(Answer, Box<StreamedBody>), CallError> {
    let slot = BodySlot::new(bounds);
    let bodies = Bodies { answer: Some(slot.clone()), ..Bodies::default() };
    let request = Request {
        method: Method::GET,
        path_and_query: format!("/fanin.probe.Probe/{method}"),
        headers: HeaderMap::new(),
        body: Bytes::from_static(if method == "Count" {
            b"{\"to\":3}"
        } else if method == "Echo" {
            b"{}"
        } else {
            b"[]"
        }),
    };
    let answer = client.upstream.stream(&client.worker, request, context, bodies).await;
    let body = slot.take();
    assert_eq!(answer.is_ok(), body.is_some(), "a body comes with an answer and only with one");
    Ok((answer?, body.expect("a body")))
}

async fn stream(client: &Client) -> Result<(Answer, Box<StreamedBody>), CallError> {
    call(client, "Count", StreamBounds::default(), in_time().safe()).await
}

async fn next(body: &mut StreamedBody) -> Option<Result<Bytes, ErrorKind>> {
    poll_fn(|cx| body.poll_part(cx)).await
}

/// The number of messages, and why it ended early.
async fn rest(body: &mut StreamedBody) -> (usize, Option<ErrorKind>) {
    let mut messages = 0;
    loop {
        match next(body).await {
            Some(Ok(message)) => {
                assert_eq!(message, JSON);
                messages += 1;
            }
            Some(Err(kind)) => return (messages, Some(kind)),
            None => return (messages, None),
        }
    }
}

fn ended(client: &Client, outcome: &str) -> f64 {
    client.metric(&format!("fanin_upstream_streams_total{{upstream=\"u\",outcome=\"{outcome}\"}}"))
}

#[test]
fn messages_come_one_by_one_and_the_permit_is_held_to_the_end() {
    run(async {
        let gate = Rc::new(Semaphore::new(0));
        let opened = gate.clone();
        let server = far(1 << 16, move |request, mut respond| {
            let gate = opened.clone();
            async move {
                assert!(
                    !request.headers().contains_key("grpc-timeout"),
                    "the call's timeout is not that of its stream"
                );
                let mut stream = begin(&mut respond);
                for _ in 0..3 {
                    gate.acquire().await.unwrap().forget();
                    data(&mut stream, ONE);
                }
                end(&mut stream, "0", "");
            }
        })
        .await;
        let client = grpc(&server, |_| {});
        gate.add_permits(1);
        let (answer, mut body) = stream(&client).await.unwrap();
        assert_eq!((answer.status.as_u16(), &answer.headers["x-head"]), (200, &HeaderValue::from_static("h")));
        for at in 0..3 {
            assert_eq!(next(&mut body).await.unwrap().unwrap(), JSON, "{at}");
            assert_eq!(client.gauge("in_flight"), 1.0);
            gate.add_permits(1);
        }
        assert!(body.ending().is_none());
        assert!(next(&mut body).await.is_none());
        let ending = body.ending().expect("it has ended");
        assert_eq!((ending.code, &ending.trailers["x-trailer"]), ("OK", &HeaderValue::from_static("t")));
        assert!(next(&mut body).await.is_none(), "also when it is polled again");
        assert_eq!((client.gauge("in_flight"), ended(&client, "complete")), (0.0, 1.0));
        assert_eq!(client.metric("fanin_upstream_stream_bytes_total{upstream=\"u\"}"), 3.0 * JSON.len() as f64);
    });
}

#[test]
fn an_error_before_the_first_message_is_the_answer() {
    run(async {
        let server = far(1 << 16, |request, mut respond| async move {
            let mut stream = begin(&mut respond);
            match request.uri().path().ends_with("Squares") {
                true => end(&mut stream, "0", ""),
                false => end(&mut stream, "5", "none%21"),
            }
        })
        .await;
        let client = grpc(&server, |_| {});
        let (answer, mut body) = stream(&client).await.unwrap();
        assert_eq!((answer.status.as_u16(), &answer.headers["x-trailer"]), (404, &HeaderValue::from_static("t")));
        assert_eq!(answer.headers["fanin-error"], "NOT_FOUND: none!");
        assert_eq!(next(&mut body).await.unwrap().unwrap(), r#"{"code":"NOT_FOUND","message":"none!"}"#);
        assert!(next(&mut body).await.is_none());
        // A method that returns one message has no stream to pass on.
        let error = call(&client, "Echo", StreamBounds::default(), in_time().safe()).await.unwrap_err();
        assert!(error.detail.contains("Echo returns one message"), "{error}");
        // A stream without messages has succeeded.
        let (answer, mut body) = call(&client, "Squares", StreamBounds::default(), in_time().safe()).await.unwrap();
        assert_eq!((answer.status.as_u16(), rest(&mut body).await), (200, (0, None)));
        assert_eq!((client.calls("4xx"), client.gauge("in_flight")), (1.0, 0.0));
    });
}

#[test]
fn what_breaks_a_stream_has_one_outcome_each() {
    for (name, messages, kind, outcome, detail) in [
        ("ends half-way", 2, ErrorKind::Protocol, "protocol", "broke off after 2 messages"),
        ("no status", 2, ErrorKind::Protocol, "protocol", "without a status"),
        ("half a message", 1, ErrorKind::Protocol, "protocol", "ends in the middle of message 1"),
        ("half a prefix", 1, ErrorKind::Protocol, "protocol", "ends in the middle of message 1"),
        ("too large", 1, ErrorKind::TooLarge, "too_large", "has 1001 bytes, 1000 are allowed"),
        ("compressed", 1, ErrorKind::Protocol, "protocol", "which was not requested"),
        ("not a message", 1, ErrorKind::Decode, "protocol", "not a valid fanin.probe.Number"),
        ("hangs", 1, ErrorKind::Timeout, "timeout", "within 100 ms (stream_idle_timeout)"),
        ("late status", 1, ErrorKind::Status, "status", "UNAVAILABLE: gone"),
    ] {
        // Once after messages, and once as the first thing that comes.
        for first in [false, true] {
            run(async move {
                let reset = Rc::new(Cell::new(false));
                let seen = reset.clone();
                let server = far(1 << 16, move |_, mut respond| {
                    let reset = seen.clone();
                    async move {
                        let mut stream = begin(&mut respond);
                        for _ in 0..if first { 0 } else { messages } {
                            data(&mut stream, ONE);
                        }
                        match name {
                            "ends half-way" => {
                                // What was sent must arrive before the reset.
                                tokio::time::sleep(Duration::from_millis(200)).await;
                                stream.send_reset(Reason::INTERNAL_ERROR);
                            }
                            "no status" => stream.send_data(Bytes::new(), true).unwrap(),
                            "half a message" | "half a prefix" => {
                                data(&mut stream, if name == "half a prefix" { &ONE[..3] } else { &ONE[..6] });
                                end(&mut stream, "0", "");
                            }
                            "too large" => data(&mut stream, &[0, 0, 0, 3, 233, 1]),
                            "compressed" => data(&mut stream, &[1, 0, 0, 0, 1, 1]),
                            "not a message" => data(&mut stream, &[0, 0, 0, 0, 2, 0xff, 0xff]),
                            "late status" => end(&mut stream, "14", "gone"),
                            _ => {}
                        }
                        let _ = poll_fn(|cx| stream.poll_reset(cx)).await;
                        reset.set(true);
                    }
                })
                .await;
                let client = grpc(&server, |config| {
                    config.max_answer = 1000;
                    if name == "hangs" {
                        config.stream_idle_timeout = Duration::from_millis(100);
                    }
                });
                let answered = stream(&client).await;
                if first && name == "late status" {
                    assert_eq!(answered.unwrap().0.status, 503);
                    return;
                }
                // A stream that is open but quiet is an answer.
                let is_answer = !first || name == "hangs";
                match answered {
                    Err(error) if first => {
                        assert_eq!(error.kind, kind, "{name}: {error}");
                        let detail = detail.replace("message 1", "message 0").replace("2 messages", "0 messages");
                        assert!(error.detail.contains(&detail), "{name}: {error}");
                    }
                    Err(error) => panic!("{name}: {error}"),
                    Ok((_, mut body)) => {
                        assert!(is_answer, "{name}");
                        assert_eq!(rest(&mut body).await, (if first { 0 } else { messages }, Some(kind)), "{name}");
                        assert_eq!(ended(&client, outcome), 1.0, "{name}");
                        assert_eq!(
                            body.ending().map(|ending| ending.code),
                            (outcome == "status").then_some("UNAVAILABLE")
                        );
                    }
                }
                assert_eq!(client.gauge("in_flight"), 0.0, "{name}");
                if matches!(name, "too large" | "compressed" | "not a message" | "hangs") {
                    until(|| reset.get()).await;
                }
            });
        }
    }
}

#[test]
fn a_server_that_does_not_answer_or_does_not_read_ends_at_the_timeout() {
    run(async {
        let server = far(1, |_, respond| async move {
            std::future::pending::<()>().await;
            drop(respond);
        })
        .await;
        let client = grpc(&server, |_| {});
        let mut context = in_time().safe();
        context.timeout = Some(Duration::from_millis(300));
        let error = call(&client, "Count", StreamBounds::default(), context).await.unwrap_err();
        assert_eq!((error.kind, client.gauge("in_flight")), (ErrorKind::Timeout, 0.0), "{error}");
        assert_eq!(server.connections(), 1);
    });
}

#[test]
fn a_server_may_accept_a_call_long_before_it_has_a_message() {
    run(async {
        let gate = Rc::new(Semaphore::new(0));
        let opened = gate.clone();
        let server = far(1 << 16, move |_, mut respond| {
            let gate = opened.clone();
            async move {
                let mut stream = begin(&mut respond);
                gate.acquire().await.unwrap().forget();
                data(&mut stream, ONE);
                end(&mut stream, "7", "no more");
            }
        })
        .await;
        let client = grpc(&server, |_| {});
        let mut context = in_time().safe();
        context.timeout = Some(Duration::from_secs(1));
        let (answer, mut body) = call(&client, "Count", StreamBounds::default(), context).await.unwrap();
        assert_eq!(answer.status, 200);
        gate.add_permits(1);
        assert_eq!(rest(&mut body).await, (1, Some(ErrorKind::Status)));
        assert_eq!(body.ending().map(|ending| (ending.code, &*ending.message)), Some(("PERMISSION_DENIED", "no more")));
    });
}

#[test]
fn the_server_knows_the_timeout_of_a_stream_that_has_one() {
    run(async {
        let server = far(1 << 16, |request, mut respond| async move {
            let timeout = request.headers()["grpc-timeout"].to_str().unwrap().to_owned();
            let micros: u64 = timeout.strip_suffix('u').unwrap().parse().unwrap();
            assert!(micros <= 700_000, "{timeout}");
            let mut stream = begin(&mut respond);
            data(&mut stream, ONE);
            let _ = poll_fn(|cx| stream.poll_reset(cx)).await;
        })
        .await;
        let client = grpc(&server, |_| {});
        let bounds = StreamBounds { timeout: Some(Duration::from_millis(700)), ..StreamBounds::default() };
        let (_, mut body) = call(&client, "Count", bounds, in_time().safe()).await.unwrap();
        assert_eq!(rest(&mut body).await, (1, Some(ErrorKind::Timeout)));
    });
}

#[test]
fn a_reader_that_does_not_read_stops_the_server_and_one_that_leaves_cancels_the_call() {
    /// Messages of one frame.
    const PART: usize = 1000;
    run(async {
        let (sent, cancelled) = (Rc::new(Cell::new(0_usize)), Rc::new(Cell::new(false)));
        let seen = (sent.clone(), cancelled.clone());
        let server = far(1 << 16, move |_, mut respond| {
            let (sent, cancelled) = seen.clone();
            async move {
                let mut stream = begin(&mut respond);
                let part = Bytes::from(ONE.repeat(PART));
                loop {
                    stream.reserve_capacity(part.len());
                    while stream.capacity() < part.len() {
                        match poll_fn(|cx| stream.poll_capacity(cx)).await {
                            Some(Ok(_)) => {}
                            _ => return cancelled.set(true),
                        }
                    }
                    stream.send_data(part.clone(), false).unwrap();
                    sent.set(sent.get() + PART);
                    tokio::task::yield_now().await;
                }
            }
        })
        .await;
        let client = grpc(&server, |_| {});
        let (_, mut body) = stream(&client).await.unwrap();
        // The window of the stream. Of what comes, nothing is read but the part with the first message.
        let window = (1 << 20) / ONE.len();
        until(|| sent.get() >= window - 2 * PART).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        let before = sent.get();
        assert!(before <= window + 2 * PART, "{before} messages without a reader");
        for _ in 0..before + 10 * PART {
            assert_eq!(next(&mut body).await.unwrap().unwrap(), JSON);
        }
        assert!(sent.get() >= before + 10 * PART, "reading lets the server go on");
        assert!(!cancelled.get());
        drop(body);
        until(|| cancelled.get()).await;
        assert_eq!((ended(&client, "cancelled"), client.gauge("in_flight")), (1.0, 0.0));
    });
}

#[test]
fn bytes_are_bounded_and_messages_are_not_counted() {
    run(async {
        let server = far(1 << 16, |_, mut respond| async move {
            let mut stream = begin(&mut respond);
            for _ in 0..50 {
                data(&mut stream, ONE);
            }
            end(&mut stream, "0", "");
        })
        .await;
        let client = grpc(&server, |config| config.max_messages = 3);
        assert_eq!(rest(&mut stream(&client).await.unwrap().1).await, (50, None));
        let bounds = StreamBounds { max: Some(JSON.len() * 10), ..StreamBounds::default() };
        let (_, mut body) = call(&client, "Count", bounds, in_time().safe()).await.unwrap();
        assert_eq!(rest(&mut body).await, (10, Some(ErrorKind::TooLarge)));
    });
}

#[test]
fn compressed_messages_are_read_if_they_are_requested_and_bounded_after_it() {
    use std::io::Write;
    let packed = |bytes: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(bytes).unwrap();
        let packed = encoder.finish().unwrap();
        Bytes::from([&[1][..], &(packed.len() as u32).to_be_bytes(), &packed].concat())
    };
    let small = packed(&ONE[5..]);
    // 4 MB of zeros in field `ballast`.
    let bomb = packed(&[&[0x12, 0x80, 0x92, 0xf4, 0x01][..], &vec![0; 4_000_000]].concat());
    assert!(bomb.len() < 30_000);
    run(async move {
        let server = far(1 << 16, move |request, mut respond| {
            let (small, bomb) = (small.clone(), bomb.clone());
            async move {
                assert_eq!(request.headers()["grpc-encoding"], "gzip");
                assert_eq!(request.headers()["grpc-accept-encoding"], "identity,gzip");
                let head = http::Response::builder();
                let head = head.header("content-type", "application/grpc").header("grpc-encoding", "gzip");
                let mut stream = respond.send_response(head.body(()).unwrap(), false).unwrap();
                stream.send_data(small, false).unwrap();
                data(&mut stream, ONE);
                stream.send_data(bomb, false).unwrap();
                end(&mut stream, "0", "");
            }
        })
        .await;
        for (max, last) in [(1_000_000, Err(ErrorKind::TooLarge)), (8_000_000, Ok(()))] {
            let client = grpc(&server, |config| {
                config.compression = GrpcCompression::Gzip;
                config.max_answer = max;
            });
            let (_, mut body) = stream(&client).await.unwrap();
            for _ in 0..2 {
                assert_eq!(next(&mut body).await.unwrap().unwrap(), JSON);
            }
            assert_eq!(next(&mut body).await.unwrap().map(drop), last, "{max}");
        }
    });
}
