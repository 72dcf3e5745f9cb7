//! Real servers on loopback, and a worker to call them from.
#![allow(dead_code, missing_docs, reason = "each test file uses a part")]

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use bytes::Bytes;
use fanin_upstream::{Answer, CallContext, CallError, Request, Upstream, Upstreams, WorkerClient};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, LocalSet, spawn_local};
use tokio::time::Instant;

pub type Response = http::Response<Full<Bytes>>;

/// Longer than any test takes unless something hangs.
pub const LONG: Duration = Duration::from_secs(120);

/// Runs a test on a worker's kind of runtime.
pub fn run<F: Future<Output = ()>>(test: F) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, async {
        tokio::time::timeout(LONG, test).await.expect("the test hangs");
    });
}

/// A server that counts. Dropping it closes its listener and its connections.
pub struct Server {
    pub address: SocketAddr,
    pub connections: Arc<AtomicUsize>,
    pub requests: Arc<AtomicUsize>,
    tasks: Vec<JoinHandle<()>>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Server {
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn connections(&self) -> usize {
        self.connections.load(SeqCst)
    }

    pub fn requests(&self) -> usize {
        self.requests.load(SeqCst)
    }
}

#[derive(Clone, Copy, PartialEq)]
pub enum Version {
    One,
    Two,
}

/// Serves with hyper. `answer` answers each request.
pub async fn serve<F, A>(version: Version, answer: F) -> Server
where
    F: Fn(http::Request<Incoming>) -> A + 'static,
    A: Future<Output = Response> + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    serve_on(listener, version, answer)
}

pub fn serve_on<F, A>(listener: TcpListener, version: Version, answer: F) -> Server
where
    F: Fn(http::Request<Incoming>) -> A + 'static,
    A: Future<Output = Response> + 'static,
{
    let address = listener.local_addr().unwrap();
    let (connections, requests) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counted = connections.clone();
    let counted_requests = requests.clone();
    let answer = Rc::new(answer);
    let task = spawn_local(async move {
        let mut serving = tokio::task::JoinSet::new();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            counted.fetch_add(1, SeqCst);
            let (answer, requests) = (answer.clone(), counted_requests.clone());
            serving.spawn_local(async move {
                let service = service_fn(move |request| {
                    requests.fetch_add(1, SeqCst);
                    let answer = answer(request);
                    async move { Ok::<_, Infallible>(answer.await) }
                });
                let io = TokioIo::new(stream);
                let _ = match version {
                    Version::One => hyper::server::conn::http1::Builder::new().serve_connection(io, service).await,
                    Version::Two => {
                        hyper::server::conn::http2::Builder::new(LocalExecutor)
                            .max_concurrent_streams(200)
                            .serve_connection(io, service)
                            .await
                    }
                };
            });
        }
    });
    Server { address, connections, requests, tasks: vec![task] }
}

#[derive(Clone, Copy)]
pub struct LocalExecutor;

impl<F: Future + 'static> hyper::rt::Executor<F> for LocalExecutor {
    fn execute(&self, future: F) {
        spawn_local(async move {
            future.await;
        });
    }
}

pub fn executor() -> TokioExecutor {
    TokioExecutor::new()
}

/// Passes each connection to `handle`.
pub async fn raw<F, A>(handle: F) -> Server
where
    F: Fn(TcpStream) -> A + 'static,
    A: Future<Output = ()> + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = connections.clone();
    let task = spawn_local(async move {
        let mut handling = tokio::task::JoinSet::new();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            counted.fetch_add(1, SeqCst);
            handling.spawn_local(handle(stream));
        }
    });
    Server { address, connections, requests: Arc::default(), tasks: vec![task] }
}

/// Reads a request's head.
pub async fn read_head(stream: &mut TcpStream) -> Option<String> {
    use tokio::io::AsyncReadExt;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    String::from_utf8(head).ok()
}

/// One upstream and one worker.
pub struct Client {
    pub upstreams: Upstreams,
    pub upstream: Arc<Upstream>,
    pub worker: Rc<WorkerClient>,
}

pub fn config(url: &str) -> fanin_config::Upstream {
    let mut config = fanin_config::Upstream::new("u", url.parse().unwrap());
    config.timeout = Duration::from_secs(20);
    config.connect_timeout = Duration::from_secs(10);
    config
}

/// An upstream of one or more endpoints.
pub fn client_of(servers: &[&Server], change: impl FnOnce(&mut fanin_config::Upstream)) -> Client {
    client(&servers[0].url(), |config| {
        config.urls = servers.iter().map(|server| server.url().parse().unwrap()).collect();
        change(config);
    })
}

/// Turns off everything that might send more than one request for a call.
pub fn no_policies(config: &mut fanin_config::Upstream) {
    config.retry = None;
    config.breaker = None;
    config.ejection = false;
}

pub fn client(url: &str, change: impl FnOnce(&mut fanin_config::Upstream)) -> Client {
    let mut config = config(url);
    change(&mut config);
    let upstreams = Upstreams::new([&config]).unwrap();
    let upstream = upstreams.get("u").unwrap().clone();
    Client { upstreams, upstream, worker: WorkerClient::new() }
}

pub fn in_time() -> CallContext {
    CallContext::new(Instant::now() + LONG)
}

impl Client {
    pub fn call(&self, request: Request) -> impl Future<Output = Result<Answer, CallError>> + use<> {
        self.upstream.call(&self.worker, request, in_time())
    }

    pub fn get(&self, path: &str) -> impl Future<Output = Result<Answer, CallError>> + use<> {
        self.call(Request::get(path))
    }

    /// A metric's value, by the start of its line.
    pub fn metric(&self, line: &str) -> f64 {
        let mut registry = prometheus_client::registry::Registry::default();
        self.upstreams.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let value = text.lines().find_map(|one| one.strip_prefix(line)).map(|rest| rest.trim().parse().unwrap());
        value.unwrap_or(0.0)
    }

    pub fn calls(&self, outcome: &str) -> f64 {
        self.metric(&format!("fanin_upstream_calls_total{{upstream=\"u\",outcome=\"{outcome}\"}}"))
    }

    pub fn gauge(&self, name: &str) -> f64 {
        self.metric(&format!("fanin_upstream_{name}{{upstream=\"u\"}}"))
    }
}

pub fn text(body: impl Into<Bytes>) -> Response {
    http::Response::new(Full::new(body.into()))
}

/// Runs everything that is ready, until `done`.
pub async fn until(mut done: impl FnMut() -> bool) {
    while !done() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
