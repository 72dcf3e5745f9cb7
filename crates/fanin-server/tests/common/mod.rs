//! An application whose routes do what tests need, and a client that sends exact bytes.
#![allow(dead_code, reason = "each test file uses a part")]

mod client;
pub mod streams;

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use fanin_config::{AccessLog, Server};
use fanin_server::{
    Activity, Application, Exit, Handle, LoadError, Loader, Options, Priority, Report, Request, Response, RouteSpec,
    Worker, WorkerContext, start,
};
use http::{HeaderValue, Method, StatusCode};
use serde_json::json;
use tokio::sync::Semaphore;

pub use client::{Client, Reply, connect};

/// What a test may look at and change while its server runs.
#[derive(Debug)]
pub struct Shared {
    /// What the next load gives.
    pub next: Mutex<Result<Setup, LoadError>>,
    /// `GET /limiter` requests that have begun.
    pub begun: AtomicUsize,
    /// `GET /limiter` requests that ended without an answer.
    pub dropped: AtomicUsize,
    /// `GET /detach` requests that ran to their end although the client had left.
    pub finished: AtomicUsize,
    /// Lets `GET /limiter` and `POST /upload` requests go, and each part of `GET /stream/gated`.
    pub limiter: Semaphore,
    /// Where the loader says files are.
    pub watch: Option<PathBuf>,
}

/// One configuration.
#[derive(Clone, Debug)]
pub struct Setup {
    pub server: Server,
    pub routes: Vec<RouteSpec>,
    /// What `GET /greeting` says.
    pub greeting: &'static str,
}

impl Default for Setup {
    fn default() -> Setup {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let server = Server {
            listen: vec![any],
            admin: Some(any),
            workers: 2,
            access_log: AccessLog::Off,
            drain_timeout: Duration::from_secs(5),
            // A build for tests on a busy machine would often be too slow for the default.
            queueing: None,
            ..Server::default()
        };
        let get = |path: &str| RouteSpec::new(Method::GET, path);
        let routes = vec![
            get("/hello"),
            get("/greeting"),
            get("/items/{id}"),
            get("/files/{*rest}"),
            get("/limiter"),
            get("/detach"),
            get("/big"),
            get("/headers"),
            get("/partial"),
            get("/panic"),
            get("/panic-later"),
            get("/hold"),
            get("/work"),
            get("/status/{code}"),
            get("/stream/{kind}"),
            RouteSpec { timeout: Duration::from_millis(50), ..get("/never") },
            RouteSpec { limit: 1, max_waiting: 1, ..get("/limited") },
            RouteSpec { limit: 1, max_waiting: 1, timeout: Duration::from_millis(100), ..get("/limited-briefly") },
            RouteSpec { limit: 1, max_waiting: 1, priority: Priority::Low, ..get("/limited-low") },
            RouteSpec::new(Method::POST, "/echo"),
            RouteSpec { stream_body: true, ..RouteSpec::new(Method::POST, "/upload") },
            RouteSpec::new(Method::PUT, "/hello"),
            RouteSpec { max_body: 10, ..RouteSpec::new(Method::POST, "/small") },
        ];
        Setup { server, routes, greeting: "hello" }
    }
}

/// A running server. Dropping it drains it.
pub struct TestServer {
    pub shared: Arc<Shared>,
    pub handle: Option<Handle>,
    pub address: SocketAddr,
    pub admin: SocketAddr,
}

impl TestServer {
    pub fn start() -> TestServer {
        TestServer::with(|_| ())
    }

    pub fn with(change: impl FnOnce(&mut Setup)) -> TestServer {
        TestServer::watching(None, change)
    }

    pub fn watching(watch: Option<PathBuf>, change: impl FnOnce(&mut Setup)) -> TestServer {
        let mut setup = Setup::default();
        change(&mut setup);
        let shared = Arc::new(Shared {
            next: Mutex::new(Ok(setup)),
            begun: AtomicUsize::new(0),
            dropped: AtomicUsize::new(0),
            finished: AtomicUsize::new(0),
            limiter: Semaphore::new(0),
            watch,
        });
        let handle = start(TestLoader(shared.clone()), Options { signals: false, ..Options::default() }).unwrap();
        let (address, admin) = (handle.addresses()[0], handle.admin().unwrap());
        TestServer { shared, handle: Some(handle), address, admin }
    }

    pub fn connect(&self) -> Client {
        Client::connect(self.address)
    }

    /// One request on a connection of its own.
    pub fn get(&self, path: &str) -> Reply {
        self.connect().get(path)
    }

    pub fn admin_get(&self, path: &str) -> Reply {
        Client::connect(self.admin).get(path)
    }

    pub fn metrics(&self) -> String {
        self.admin_get("/metrics").text()
    }

    pub fn change(&self, change: impl FnOnce(&mut Setup)) {
        let mut next = self.shared.next.lock().unwrap();
        let mut setup = next.as_ref().cloned().unwrap_or_default();
        change(&mut setup);
        *next = Ok(setup);
    }

    pub fn break_next(&self, error: LoadError) -> Setup {
        let mut next = self.shared.next.lock().unwrap();
        std::mem::replace(&mut *next, Err(error)).unwrap()
    }

    pub fn handle(&self) -> &Handle {
        self.handle.as_ref().unwrap()
    }

    pub fn end(mut self) -> Exit {
        let handle = self.handle.take().unwrap();
        handle.drain();
        handle.wait()
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        if let Some(handle) = self.handle.take() {
            self.shared.limiter.add_permits(10_000);
            handle.drain();
            if !std::thread::panicking() {
                assert_eq!(handle.wait(), Exit::Drained);
            }
        }
    }
}

/// Waits until something holds; fails the test if it does not within some seconds.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..2000 {
        if holds() {
            return;
        }
        pause(Duration::from_millis(5));
    }
    panic!("not within 10 seconds: {what}");
}

/// Holds the calling thread, which in tests may.
#[allow(clippy::disallowed_methods, reason = "tests have threads of their own, and one test holds a worker on purpose")]
pub fn pause(duration: Duration) {
    std::thread::sleep(duration);
}

/// A value of the metrics page.
pub fn metric(page: &str, line: &str) -> f64 {
    let value = page.lines().find_map(|candidate| candidate.strip_prefix(line)?.strip_prefix(' '));
    value.unwrap_or_else(|| panic!("no line {line} in\n{page}")).parse().unwrap()
}

struct TestLoader(Arc<Shared>);

impl Loader for TestLoader {
    type App = TestApp;

    fn load(&self, _: Option<&Arc<TestApp>>) -> Result<TestApp, LoadError> {
        let setup = self.0.next.lock().unwrap().clone()?;
        Ok(TestApp { setup, shared: self.0.clone() })
    }

    fn watch(&self) -> Option<PathBuf> {
        self.0.watch.clone()
    }
}

struct TestApp {
    setup: Setup,
    shared: Arc<Shared>,
}

impl Application for TestApp {
    type Worker = TestWorker;

    fn server(&self) -> &Server {
        &self.setup.server
    }

    fn routes(&self) -> Vec<RouteSpec> {
        self.setup.routes.clone()
    }

    fn worker(self: &Arc<Self>, context: WorkerContext) -> TestWorker {
        TestWorker { app: self.clone(), activity: context.activity }
    }

    fn register_metrics(&self, registry: &mut prometheus_client::registry::Registry) {
        let gauge = prometheus_client::metrics::gauge::ConstGauge::new(42_i64);
        registry.register("test_application", "Shows that the application's metrics are there", gauge);
    }

    fn config(&self) -> String {
        json!({"greeting": self.setup.greeting}).to_string()
    }

    fn debug_pages(&self) -> Vec<fanin_server::PageLink> {
        vec![fanin_server::PageLink { href: "/debug/test", description: "a test" }]
    }

    fn debug_page(&self, _method: &Method, path: &str, query: Option<&str>) -> Option<fanin_server::DebugWork> {
        let body = format!("{path} {query:?} on {:?}", std::thread::current().name()).into_bytes();
        let made = move || fanin_server::DebugPage { kind: "text/plain", body };
        (path == "/debug/test").then(|| Box::new(made) as fanin_server::DebugWork)
    }

    fn describe(&self, activity: u64) -> String {
        format!("test activity {activity}")
    }
}

struct TestWorker {
    app: Arc<TestApp>,
    activity: Activity,
}

impl Worker for TestWorker {
    type Future = Pin<Box<dyn Future<Output = Response>>>;

    fn handle(&self, request: Request) -> Self::Future {
        let (app, activity) = (self.app.clone(), self.activity.clone());
        assert!(request.path() != "/panic", "expected by a test");
        Box::pin(async move { answer(app, activity, request).await })
    }
}

/// Counts if it is dropped before it is disarmed.
struct Alarm<'a>(Option<&'a AtomicUsize>);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if let Some(counter) = self.0 {
            counter.fetch_add(1, SeqCst);
        }
    }
}

async fn answer(app: Arc<TestApp>, activity: Activity, request: Request) -> Response {
    let shared = &app.shared;
    match request.path() {
        "/hello" | "/greeting" => Response::new(StatusCode::OK, app.setup.greeting),
        "/echo" | "/small" => Response::new(StatusCode::OK, request.body),
        "/limiter" | "/limited" | "/limited-briefly" | "/limited-low" => {
            shared.begun.fetch_add(1, SeqCst);
            let mut alarm = Alarm(Some(&shared.dropped));
            shared.limiter.acquire().await.unwrap().forget();
            alarm.0 = None;
            Response::new(StatusCode::OK, app.setup.greeting)
        }
        "/upload" => {
            shared.begun.fetch_add(1, SeqCst);
            shared.limiter.acquire().await.unwrap().forget();
            let mut upload = request.upload.expect("the route has it");
            let mut bytes = 0;
            loop {
                match poll_fn(|cx| upload.poll_part(cx)).await {
                    Some(Ok(part)) => bytes += part.len(),
                    Some(Err(error)) => break Response::new(StatusCode::REQUEST_TIMEOUT, error.to_string()),
                    None => break Response::new(StatusCode::OK, bytes.to_string()),
                }
            }
        }
        "/detach" => {
            let detached = Detached { shared: shared.clone(), permit: Some(request.permit) };
            shared.begun.fetch_add(1, SeqCst);
            std::future::pending::<()>().await;
            drop(detached);
            Response::default()
        }
        "/big" => {
            let pieces = (b'a'..=b'j').map(|letter| Bytes::from(vec![letter; 100_000])).collect::<Vec<_>>();
            Response::new(StatusCode::OK, pieces)
        }
        "/headers" => {
            let mut response = Response::json("{}");
            for (name, value) in
                [("connection", "x-secret"), ("content-length", "999"), ("transfer-encoding", "chunked")]
            {
                response.headers.insert(name, HeaderValue::from_static(value));
            }
            response.headers.append("set-cookie", HeaderValue::from_static("a=1"));
            response.headers.append("set-cookie", HeaderValue::from_static("b=2"));
            response
        }
        "/partial" => {
            let report = Report { partial: true, calls: 3, upstream: Duration::from_micros(1500), ..Report::default() };
            Response { report, ..Response::json("{}") }
        }
        "/panic-later" => {
            tokio::task::yield_now().await;
            panic!("expected by a test")
        }
        "/hold" => {
            activity.set(7);
            pause(Duration::from_millis(150));
            activity.clear();
            Response::default()
        }
        "/work" => {
            pause(Duration::from_millis(2));
            Response::default()
        }
        "/never" => std::future::pending().await,
        path if path.starts_with("/stream/") => {
            streams::response(shared.clone(), request.params.get("kind").unwrap(), request.permit)
        }
        path if path.starts_with("/status/") => {
            let code = request.params.get("code").unwrap().parse::<StatusCode>().unwrap();
            Response::new(code, "body")
        }
        _ => {
            let values = request.headers.get_all("x-repeated").iter().map(|value| value.to_str().unwrap());
            let left = request.deadline.duration_since(request.start).as_millis() as u64;
            Response::json(
                json!({
                    "method": request.method.as_str(),
                    "path": request.path(),
                    "query": request.query(),
                    "params": request.params.iter().collect::<std::collections::BTreeMap<_, _>>(),
                    "repeated": values.collect::<Vec<_>>(),
                    "remote": request.remote.to_string(),
                    "deadline_ms": left,
                    "id": request.id.to_string(),
                    "route": request.route,
                    "priority": request.priority.as_str(),
                })
                .to_string(),
            )
        }
    }
}

/// Does what a flow does that has begun to change something: when the client leaves, it goes on in a task of its own.
struct Detached {
    shared: Arc<Shared>,
    permit: Option<fanin_server::Permit>,
}

impl Drop for Detached {
    fn drop(&mut self) {
        let (shared, permit) = (self.shared.clone(), self.permit.take());
        tokio::task::spawn_local(async move {
            shared.limiter.acquire().await.unwrap().forget();
            shared.finished.fetch_add(1, SeqCst);
            drop(permit);
        });
    }
}

/// One request on a new connection; `None` if the server did not let it in.
pub fn attempt(address: SocketAddr) -> Option<u16> {
    use std::io::{Read, Write};
    let mut stream = connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(b"GET /hello HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").ok()?;
    let mut reply = String::new();
    // Reset before a byte of an answer: the socket was closed with us in the kernel's queue.
    stream.read_to_string(&mut reply).ok()?;
    reply.split(' ').nth(1).and_then(|status| status.parse().ok())
}
