//! Whole runs against real servers. Rates are low and only lower bounds of time are asserted, so a busy machine changes nothing.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use fanin_load::{Arrivals, LoadError, Outcome, Plan, Protocol, Request, Shape, parse_headers, run};
use http::{Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;

type Answer = (StatusCode, Duration, &'static str);

/// A server for both protocols, what it answers as a function of the request and its number, and a count of its connections.
async fn server(
    http2: bool,
    answer: impl Fn(usize, &http::request::Parts, &Bytes) -> Answer + Send + Sync + 'static,
) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let connections = Arc::new(AtomicUsize::new(0));
    let (count, answer, requests) = (Arc::clone(&connections), Arc::new(answer), Arc::new(AtomicUsize::new(0)));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            count.fetch_add(1, Ordering::Relaxed);
            let (answer, requests) = (Arc::clone(&answer), Arc::clone(&requests));
            let service = service_fn(move |request: http::Request<Incoming>| {
                let (answer, requests) = (Arc::clone(&answer), Arc::clone(&requests));
                async move {
                    let (parts, body) = request.into_parts();
                    let body = body.collect().await.unwrap().to_bytes();
                    let (status, after, body) = answer(requests.fetch_add(1, Ordering::Relaxed), &parts, &body);
                    tokio::time::sleep(after).await;
                    let mut response = Response::new(Full::new(Bytes::from_static(body.as_bytes())));
                    *response.status_mut() = status;
                    Ok::<_, Infallible>(response)
                }
            });
            let stream = TokioIo::new(stream);
            tokio::spawn(async move {
                if http2 {
                    hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                        .serve_connection(stream, service)
                        .await
                        .ok();
                } else {
                    hyper::server::conn::http1::Builder::new().serve_connection(stream, service).await.ok();
                }
            });
        }
    });
    (addr, connections)
}

fn ok(_: usize, _: &http::request::Parts, _: &Bytes) -> Answer {
    (StatusCode::OK, Duration::ZERO, "hello")
}

fn plan(addr: SocketAddr, rate: f64, ms: u64) -> Plan {
    Plan::new(
        Request::get(&format!("http://{addr}/path?x=1")).unwrap(),
        Shape::constant(rate, Duration::from_millis(ms)),
    )
}

async fn quiet(plan: &Plan) -> Outcome {
    run(plan, |_| {}).await.unwrap()
}

#[tokio::test]
async fn every_scheduled_request_is_sent_and_answered() {
    let (addr, connections) = server(false, ok).await;
    let mut plan = plan(addr, 200.0, 500);
    plan.progress = Duration::from_millis(50);
    let mut seen = 0;
    let outcome = run(&plan, |progress| seen = seen.max(progress.offered)).await.unwrap();
    assert_eq!((outcome.offered, outcome.good, outcome.bytes), (100, 100, 500));
    assert_eq!(outcome.status[&200], 100);
    assert_eq!(outcome.intervals.iter().map(|i| i.offered).collect::<Vec<_>>(), [20; 5]);
    assert!(seen > 0, "progress was told");
    assert!(connections.load(Ordering::Relaxed) <= outcome.most_in_flight, "connections are used again");
    assert!(outcome.text().contains("100.00 %"), "{}", outcome.text());
    assert_eq!(outcome.json()["status"]["200"], 100);
}

#[tokio::test]
async fn http2_shares_few_connections() {
    let (addr, connections) = server(true, |_, _, _| (StatusCode::OK, Duration::from_millis(20), "hello")).await;
    let mut plan = plan(addr, 1000.0, 300);
    plan.protocol = Protocol::Http2;
    plan.connections = 2;
    plan.arrivals = Arrivals::Poisson { seed: 3 };
    let outcome = quiet(&plan).await;
    assert_eq!(outcome.good, outcome.offered, "{}", outcome.text());
    assert!(outcome.offered > 200);
    assert_eq!(connections.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn waiting_behind_a_slow_answer_is_latency() {
    // One connection serves 20 requests a second; 100 a second are offered for half a second.
    let (addr, _) = server(false, |_, _, _| (StatusCode::OK, Duration::from_millis(50), "x")).await;
    let mut plan = plan(addr, 100.0, 500);
    plan.connections = 1;
    plan.timeout = Duration::from_secs(60);
    let outcome = quiet(&plan).await;
    assert_eq!(outcome.good, 50);
    // The last was due at 490 ms and could not be answered before 50 times 50 ms.
    assert!(outcome.latency.max >= 2000.0, "{}", outcome.text());
    assert!(outcome.latency.p50 >= 900.0, "{}", outcome.text());
}

#[tokio::test]
async fn method_headers_and_body_reach_the_server() {
    let (addr, _) = server(false, |_, parts, body| {
        let right = parts.method == "POST" && parts.uri == "/path?x=1" && parts.headers["x-key"] == "v" && body == "{}";
        (if right { StatusCode::CREATED } else { StatusCode::IM_A_TEAPOT }, Duration::ZERO, "")
    })
    .await;
    let request = Request::new(http::Method::POST, &format!("http://{addr}/path?x=1")).unwrap();
    let mut plan = plan(addr, 50.0, 100);
    plan.request = request.with_headers(parse_headers("X-Key: v").unwrap()).with_body("{}");
    assert_eq!(quiet(&plan).await.status[&201], 5);
}

#[tokio::test]
async fn refusals_late_answers_and_silence_are_told_apart() {
    let (addr, _) = server(false, |number, _, _| match number % 4 {
        0 => (StatusCode::OK, Duration::ZERO, "x"),
        1 => (StatusCode::SERVICE_UNAVAILABLE, Duration::ZERO, "x"),
        2 => (StatusCode::OK, Duration::from_millis(600), "x"),
        _ => (StatusCode::OK, Duration::from_secs(3600), "x"),
    })
    .await;
    let mut plan = plan(addr, 100.0, 400);
    plan.good_within = Some(Duration::from_millis(500));
    plan.timeout = Duration::from_secs(3);
    let outcome = quiet(&plan).await;
    assert_eq!((outcome.offered, outcome.refused.count, outcome.timeouts), (40, 10, 10), "{}", outcome.text());
    assert_eq!(outcome.good + outcome.late, 20);
    assert!(outcome.late >= 10);
}

#[tokio::test]
async fn a_full_generator_and_a_closed_port_are_told() {
    let (addr, _) = server(false, |_, _, _| (StatusCode::OK, Duration::from_secs(3600), "x")).await;
    let mut plan = plan(addr, 100.0, 300);
    plan.max_in_flight = 10;
    plan.timeout = Duration::from_secs(5);
    let outcome = quiet(&plan).await;
    assert_eq!((outcome.most_in_flight, outcome.timeouts, outcome.unsent), (10, 10, 20), "{}", outcome.text());
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let outcome = quiet(&self::plan(closed, 100.0, 100)).await;
    assert_eq!(outcome.connect_errors, 10);
}

#[tokio::test]
async fn a_dropped_run_ends_at_once() {
    let (addr, _) = server(false, ok).await;
    let plan = plan(addr, 1.0, 3_600_000);
    // Its pacer sleeps for a second at a time; dropping joins it, so this would hang if it could not be woken.
    assert!(tokio::time::timeout(Duration::from_millis(100), run(&plan, |_| {})).await.is_err());
}

#[tokio::test]
async fn who_is_refused_tries_again() {
    let (addr, _) = server(false, |number, _, _| match number % 2 {
        0 => (StatusCode::SERVICE_UNAVAILABLE, Duration::ZERO, "x"),
        _ => (StatusCode::OK, Duration::ZERO, "x"),
    })
    .await;
    let mut plan = plan(addr, 1.0, 1000);
    plan.retries = 2;
    plan.retry_pause = Duration::from_millis(20);
    let outcome = quiet(&plan).await;
    assert_eq!((outcome.offered, outcome.good, outcome.retried), (1, 1, 1), "{}", outcome.text());
}

#[tokio::test]
async fn a_server_that_closes_after_each_answer_is_no_failure() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let answers =
            ["HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nab", "HTTP/1.0 200 OK\r\n\r\nabc"];
        for answer in answers.iter().cycle() {
            let (mut stream, _) = listener.accept().await.unwrap();
            // The request is less than this, and comes in one piece.
            assert_ne!(stream.read(&mut [0; 1024]).await.unwrap(), 0);
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    let outcome = quiet(&plan(addr, 100.0, 200)).await;
    assert_eq!((outcome.good, outcome.bytes), (20, 50), "{}", outcome.text());
}

#[tokio::test]
async fn plans_that_cannot_be_run_are_refused() {
    let (addr, _) = server(false, ok).await;
    for spoil in [
        |plan: &mut Plan| plan.connections = 0,
        |plan: &mut Plan| plan.timeout = Duration::ZERO,
        |plan: &mut Plan| plan.shape = Shape::constant(-1.0, Duration::from_secs(1)),
    ] {
        let mut plan = plan(addr, 1.0, 100);
        spoil(&mut plan);
        assert!(matches!(run(&plan, |_| {}).await, Err(LoadError::Plan(_))));
    }
}

/// Bodies with trailers, which is how gRPC tells its status.
type Framed = http_body_util::StreamBody<
    futures_util::stream::Iter<std::vec::IntoIter<Result<hyper::body::Frame<Bytes>, Infallible>>>,
>;

#[tokio::test]
async fn grpc_codes_are_counted_as_statuses() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let count = Arc::new(AtomicUsize::new(0));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let count = Arc::clone(&count);
            let service = service_fn(move |request: http::Request<Incoming>| {
                let count = Arc::clone(&count);
                async move {
                    let (head, body) = request.into_parts();
                    let body = body.collect().await.unwrap().to_bytes();
                    assert_eq!((head.method.as_str(), head.uri.path()), ("POST", "/s/M"));
                    assert_eq!(head.headers["content-type"], "application/grpc");
                    assert_eq!(head.headers["te"], "trailers");
                    assert_eq!(body, Bytes::from_static(b"\0\0\0\0\x02hi"));
                    // In turns: fine, refused, and no status at all.
                    let turn = count.fetch_add(1, Ordering::Relaxed) % 3;
                    let mut frames = vec![Ok(hyper::body::Frame::data(Bytes::from_static(b"\0\0\0\0\0")))];
                    if turn < 2 {
                        let mut trailers = http::HeaderMap::new();
                        trailers.insert("grpc-status", http::HeaderValue::from_static(["0", "8"][turn]));
                        frames.push(Ok(hyper::body::Frame::trailers(trailers)));
                    }
                    let body: Framed = http_body_util::StreamBody::new(futures_util::stream::iter(frames));
                    Ok::<_, Infallible>(Response::new(body))
                }
            });
            tokio::spawn(async move {
                let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                server.serve_connection(TokioIo::new(stream), service).await.ok();
            });
        }
    });
    let request = Request::get(&format!("http://{addr}/s/M")).unwrap().with_body("hi");
    let mut plan = Plan::new(request, Shape::constant(90.0, Duration::from_secs(1)));
    plan.protocol = Protocol::Grpc;
    plan.connections = 2;
    let outcome = run(&plan, |_| {}).await.unwrap();
    assert_eq!((outcome.offered, outcome.good), (90, 30), "{}", outcome.text());
    assert_eq!(outcome.status.get(&200), Some(&30), "{}", outcome.text());
    assert_eq!(outcome.status.get(&429), Some(&30), "{}", outcome.text());
    assert!(outcome.text().contains("gRPC"), "{}", outcome.text());
}
