//! How long clients may take for the bodies of their requests, and for responses that are made while they are sent: a worker in paused time, with clients in the same
//! process: the system would take real time to pass bytes on.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use fanin_config::Server;
use h2::client::SendRequest;
use http::{Method, StatusCode};
use http_body::Frame;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use super::*;
use crate::access_log::{LogThread, WorkerLog};
use crate::admission::Limiters;
use crate::cache::Caches;
use crate::{Aborted, Body, BodyStream, Options, Request, Response, RouteSpec, connection};

const SECOND: Duration = Duration::from_secs(1);
/// Longer than any wait here.
const LONG: Duration = Duration::from_secs(100_000);

struct App(Server);

impl Application for App {
    type Worker = Answers;

    fn server(&self) -> &Server {
        &self.0
    }

    fn routes(&self) -> Vec<RouteSpec> {
        let post = |path: &str| RouteSpec { timeout: LONG, max_body: 8 << 20, ..RouteSpec::new(Method::POST, path) };
        let get = RouteSpec { timeout: LONG, ..RouteSpec::new(Method::GET, "/made/{parts}") };
        vec![post("/collected"), RouteSpec { stream_body: true, ..post("/streamed/{pause}") }, get]
    }

    fn worker(self: &Arc<App>, _: WorkerContext) -> Answers {
        Answers
    }
}

struct Answers;

impl Worker for Answers {
    type Future = Pin<Box<dyn Future<Output = Response>>>;

    fn handle(&self, request: Request) -> Self::Future {
        Box::pin(answer(request))
    }
}

/// A response of so many parts, after which it waits for more.
struct Made(usize);

impl BodyStream for Made {
    fn poll_frame(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Aborted>>> {
        match self.0.checked_sub(1) {
            Some(left) => self.0 = left,
            None => return Poll::Pending,
        }
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[b'a'; 1000])))))
    }
}

/// The number of bytes. After each part of an upload, the next one is not asked for during as many seconds as the path says.
async fn answer(request: Request) -> Response {
    if let Some(parts) = request.params.get("parts") {
        return Response { body: Body::stream(Made(parts.parse().unwrap())), ..Response::default() };
    }
    let Some(mut upload) = request.upload else {
        return Response::new(StatusCode::OK, request.body.len().to_string());
    };
    let pause = SECOND * request.params.get("pause").unwrap().parse().unwrap();
    let mut bytes = 0;
    loop {
        match poll_fn(|cx| upload.poll_part(cx)).await {
            Some(Ok(part)) => {
                bytes += part.len();
                sleep(pause).await;
            }
            Some(Err(error)) => return Response::new(StatusCode::REQUEST_TIMEOUT, error.to_string()),
            None => return Response::new(StatusCode::OK, bytes.to_string()),
        }
    }
}

/// A worker that runs.
#[derive(Clone)]
struct Served(Rc<WorkerState<App>>);

impl Served {
    fn connect(&self) -> DuplexStream {
        let (client, server) = tokio::io::duplex(64 << 10);
        connection::start_in_process(&self.0, server);
        client
    }

    async fn http2(&self) -> SendRequest<Bytes> {
        let (client, connection) = h2::client::handshake(self.connect()).await.unwrap();
        spawn_local(connection);
        client
    }

    fn slow_readers(&self) -> u64 {
        self.0.stats.timeouts[Closed::SlowReader as usize].get()
    }

    fn slow_senders(&self) -> u64 {
        self.0.stats.timeouts[Closed::SlowSender as usize].get()
    }
}

/// `body_timeout` and `slow_sender_timeout` are 10 s, 512 bytes per second the least, unless changed.
fn served<F: Future<Output = ()>>(change: impl FnOnce(&mut Server), run: impl FnOnce(Served) -> F) {
    let mut server = Server { queueing: None, ..Server::default() };
    change(&mut server);
    let (limiters, caches) = (Arc::new(Limiters::new()), Arc::new(Caches::new()));
    let generation = Arc::new(Generation::new(Arc::new(App(server)), None, &limiters, &caches).unwrap());
    let metrics = Metrics::new(Options::default().build, 1, limiters, caches);
    let (log, _log_thread) = LogThread::start(&AccessLog::Off).unwrap();
    let (heartbeat, stats) = (Arc::<Heartbeat>::default(), metrics.worker(0));
    let runtime = Builder::new_current_thread().enable_all().start_paused(true).build_local(LocalOptions::default());
    runtime.unwrap().block_on(async move {
        let memory = MemoryPressure(metrics.memory.clone());
        let context = WorkerContext { index: 0, workers: 1, activity: Activity(heartbeat.clone()), memory };
        let generation = WorkerGeneration::new(generation, &metrics, context);
        let log = WorkerLog::new(log, stats.clone());
        let worker =
            WorkerState::new(generation, heartbeat, stats, log, Arc::new(AtomicUsize::new(1_000)), &metrics, 1);
        spawn_local(worker.timeouts.clone().run());
        spawn_local(worker.response_batch.writer());
        spawn_local(housekeeping(worker.clone()));
        run(Served(worker)).await;
    });
}

/// The response to a body that is sent in such parts, with a pause before each; and how long it took.
async fn post(server: &Served, path: &str, length: usize, parts: Vec<(Duration, Vec<u8>)>) -> (String, Duration) {
    let start = Instant::now();
    let (mut read, mut write) = tokio::io::split(server.connect());
    let head = format!("POST {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n");
    write.write_all(head.as_bytes()).await.unwrap();
    let sending = spawn_local(async move {
        for (pause, part) in parts {
            sleep(pause).await;
            if write.write_all(&part).await.is_err() {
                break;
            }
        }
        write
    });
    let mut response = String::new();
    read.read_to_string(&mut response).await.unwrap();
    sending.abort();
    (response, start.elapsed())
}

/// The same over HTTP/2: status and body.
async fn post_http2(client: SendRequest<Bytes>, path: &str, parts: Vec<(Duration, Vec<u8>)>) -> (StatusCode, String) {
    let request = http::Request::post(format!("http://test{path}")).body(()).unwrap();
    let (response, mut body) = client.ready().await.unwrap().send_request(request, false).unwrap();
    let sending = spawn_local(async move {
        for (pause, part) in parts {
            sleep(pause).await;
            if body.send_data(part.into(), false).is_err() {
                return;
            }
        }
        let _ = body.send_data(Bytes::new(), true);
    });
    let response = response.await.unwrap();
    sending.abort();
    let (status, mut body) = (response.status(), response.into_body());
    let mut text = Vec::new();
    while let Some(part) = body.data().await {
        text.extend_from_slice(&part.unwrap());
    }
    (status, String::from_utf8(text).unwrap())
}

fn every(pause: Duration, bytes: usize, count: usize) -> Vec<(Duration, Vec<u8>)> {
    vec![(pause, vec![b'a'; bytes]); count]
}

#[test]
fn a_body_that_trickles_is_answered_with_408() {
    // Nothing else bounds it.
    served(
        |server| server.body_timeout = LONG,
        async |server| {
            for (slow, path) in (1..).step_by(2).zip(["/collected", "/streamed/0"]) {
                let (response, took) = post(&server, path, 1_000_000, every(SECOND, 100, 1_000)).await;
                assert!(response.starts_with("HTTP/1.1 408 "), "{path}: {response}");
                assert!(response.contains("slower than the minimum rate"), "{path}: {response}");
                assert!((10 * SECOND..12 * SECOND).contains(&took), "{path}: {took:?}");
                assert_eq!(server.slow_senders(), slow, "{path}");
                let client = server.http2().await;
                let start = Instant::now();
                let (status, text) = post_http2(client.clone(), path, every(SECOND, 100, 1_000)).await;
                assert_eq!(status, StatusCode::REQUEST_TIMEOUT, "{path}");
                assert!(text.contains("slower than the minimum rate"), "{path}: {text}");
                assert!((10 * SECOND..12 * SECOND).contains(&start.elapsed()), "{path}: {:?}", start.elapsed());
                assert_eq!(server.slow_senders(), slow + 1, "{path}");
                // The connection goes on.
                let quick = post_http2(client, path, every(Duration::ZERO, 100, 3)).await;
                assert_eq!(quick, (StatusCode::OK, "300".to_owned()), "{path}");
            }
        },
    );
}

#[test]
fn a_body_that_comes_fast_enough_may_go_on() {
    served(
        |server| server.body_timeout = LONG,
        async |server| {
            for path in ["/collected", "/streamed/0"] {
                let (response, took) = post(&server, path, 300 * 600, every(SECOND, 600, 300)).await;
                assert!(response.starts_with("HTTP/1.1 200 ") && response.ends_with("180000"), "{path}: {response}");
                assert!(took >= 300 * SECOND, "{path}: {took:?}");
                let answer = post_http2(server.http2().await, path, every(SECOND, 600, 300)).await;
                assert_eq!(answer, (StatusCode::OK, "180000".to_owned()), "{path}");
            }
            assert_eq!(server.slow_senders(), 0);
        },
    );
}

#[test]
fn without_the_minimum_rate_only_silence_ends_an_upload() {
    served(
        |server| server.slow_sender_timeout = None,
        async |server| {
            let (response, took) = post(&server, "/streamed/0", 100, every(9 * SECOND, 1, 100)).await;
            assert!(response.starts_with("HTTP/1.1 200 ") && took >= 900 * SECOND, "{took:?}: {response}");
            let (response, took) = post(&server, "/streamed/0", 100, every(11 * SECOND, 1, 100)).await;
            assert!(response.starts_with("HTTP/1.1 408 "), "{response}");
            assert!(response.contains("did not arrive in time"), "{response}");
            assert!((10 * SECOND..11 * SECOND).contains(&took), "{took:?}");
            assert_eq!(server.slow_senders(), 0);
        },
    );
}

/// The server asks for the next part a minute after each, and the client sends it six seconds later.
#[test]
fn an_upload_that_the_server_takes_slowly_is_not_answered_with_408() {
    served(
        |_| (),
        async |server| {
            let parts = || [every(6 * SECOND, 6_000, 1), every(66 * SECOND, 6_000, 4)].concat();
            let (response, took) = post(&server, "/streamed/60", 30_000, parts()).await;
            assert!(response.starts_with("HTTP/1.1 200 ") && response.ends_with("30000"), "{took:?}: {response}");
            let answer = post_http2(server.http2().await, "/streamed/60", parts()).await;
            assert_eq!(answer, (StatusCode::OK, "30000".to_owned()));
            // Far more than fits into the buffers: the client can send only what the server takes.
            let whole = every(Duration::ZERO, 2 << 20, 1);
            let (response, _) = post(&server, "/streamed/20", 2 << 20, whole.clone()).await;
            assert!(response.starts_with("HTTP/1.1 200 ") && response.ends_with("2097152"), "{response}");
            let answer = post_http2(server.http2().await, "/streamed/20", whole).await;
            assert_eq!(answer, (StatusCode::OK, "2097152".to_owned()));
            assert_eq!(server.slow_senders(), 0);
        },
    );
}

/// Bodies that the server does not take use up the connection's flow control. The client cannot send another one then.
#[test]
fn a_body_is_not_slow_while_others_take_its_room() {
    served(
        |server| server.body_timeout = LONG,
        async |server| {
            let client = server.http2().await;
            let large = || spawn_local(post_http2(client.clone(), "/streamed/60", every(Duration::ZERO, 1 << 20, 1)));
            let all = [large(), large()];
            sleep(SECOND).await;
            let start = Instant::now();
            let small = post_http2(client.clone(), "/streamed/0", every(Duration::ZERO, 100, 1)).await;
            assert_eq!(small, (StatusCode::OK, "100".to_owned()));
            assert!(start.elapsed() > 30 * SECOND, "{:?}: it had to wait for the large ones", start.elapsed());
            for one in all {
                assert_eq!(one.await.unwrap(), (StatusCode::OK, (1 << 20).to_string()));
            }
            assert_eq!(server.slow_senders(), 0);
        },
    );
}

/// A byte for one of them every half a second: none of them waits for long before some part comes.
#[test]
fn bodies_that_trickle_in_turns_do_not_hide_each_other() {
    served(
        |_| (),
        async |server| {
            let client = server.http2().await;
            let all: Vec<_> = (0..8)
                .map(|turn| {
                    let mut parts = every(4 * SECOND, 1, 1_000);
                    parts[0].0 = turn * SECOND / 2;
                    let client = client.clone();
                    spawn_local(async move { post_http2(client, "/streamed/0", parts).await.0 })
                })
                .collect();
            let start = Instant::now();
            for one in all {
                assert_eq!(one.await.unwrap(), StatusCode::REQUEST_TIMEOUT);
            }
            assert!(start.elapsed() < 20 * SECOND, "{:?}", start.elapsed());
            assert_eq!(server.slow_senders(), 8);
        },
    );
}

#[test]
fn a_client_that_stops_to_read_a_stream_is_closed() {
    served(
        |_| (),
        async |server| {
            for (window, parts) in [(0, 1_000_000), (10_000, 1_000_000)] {
                let before = server.slow_readers();
                let mut builder = h2::client::Builder::new();
                let (client, connection) =
                    builder.initial_window_size(window).handshake(server.connect()).await.unwrap();
                let connection = spawn_local(connection);
                let request = http::Request::get(format!("http://test/made/{parts}")).body(()).unwrap();
                let (response, _): (_, h2::SendStream<Bytes>) =
                    client.ready().await.unwrap().send_request(request, true).unwrap();
                let body = response.await.unwrap().into_body();
                let start = Instant::now();
                let _closed = connection.await;
                assert!(start.elapsed() < 100 * SECOND, "{:?}", start.elapsed());
                assert_eq!(server.slow_readers(), before + 1, "{window} {parts}");
                drop(body);
            }
        },
    );
}

#[test]
fn a_client_that_reads_a_byte_a_second_is_closed() {
    served(
        |_| (),
        async |server| {
            let (mut read, mut write) = tokio::io::split(server.connect());
            write.write_all(b"GET /made/1000000 HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
            let begun = Instant::now();
            while server.slow_readers() == 0 {
                assert!(begun.elapsed() < 200 * SECOND, "it may go on");
                sleep(SECOND).await;
                let _byte = read.read_u8().await;
            }
            // What it holds at the server is gone: the rest is what the socket had.
            let mut rest = Vec::new();
            let _reset = read.read_to_end(&mut rest).await;
            assert!(rest.len() <= 64 << 10, "{}", rest.len());
        },
    );
}

#[test]
fn a_stream_that_its_client_reads_may_be_silent() {
    served(
        |_| (),
        async |server| {
            let client = server.http2().await;
            let request = http::Request::get("http://test/made/3").body(()).unwrap();
            let (response, _) = client.ready().await.unwrap().send_request(request, true).unwrap();
            let mut body = response.await.unwrap().into_body();
            let (mut read, mut write) = tokio::io::split(server.connect());
            write.write_all(b"GET /made/3 HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
            let mut bytes = 0;
            while bytes < 3000 {
                let part = body.data().await.unwrap().unwrap();
                body.flow_control().release_capacity(part.len()).unwrap();
                bytes += part.len();
            }
            let mut buffer = [0; 5000];
            assert!(read.read(&mut buffer).await.unwrap() > 0);
            let more = tokio::time::timeout(1000 * SECOND, poll_fn(|cx| body.poll_data(cx)));
            assert!(more.await.is_err(), "it goes on");
            assert_eq!(server.slow_readers(), 0);
        },
    );
}
