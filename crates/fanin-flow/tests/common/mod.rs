//! Flows over scripted upstreams in paused time: each test defines the answers and their delays.
#![allow(dead_code)]

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fanin_config::Config;
use fanin_flow::{CallFuture, Caller, Detail, FlowError, Flows, IncomingRequest, Reply, WorkerFlows};
use fanin_upstream::{Answer, CallContext, CallError, ErrorKind, Fault, Request, Upstream, Upstreams};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use tokio::runtime::Handle;
use tokio::time::Instant;

/// What a scripted upstream does with one request.
pub struct Script {
    pub delay: Duration,
    pub status: u16,
    pub body: String,
    pub kind: Option<&'static str>,
    pub error: Option<ErrorKind>,
}

pub fn after(ms: u64, body: impl Into<String>) -> Script {
    Script {
        delay: Duration::from_millis(ms),
        status: 200,
        body: body.into(),
        kind: Some("application/json"),
        error: None,
    }
}

impl Script {
    pub fn status(mut self, status: u16) -> Script {
        self.status = status;
        self
    }

    pub fn kind(mut self, kind: &'static str) -> Script {
        self.kind = Some(kind);
        self
    }

    /// Without a content type.
    pub fn untyped(mut self) -> Script {
        self.kind = None;
        self
    }

    pub fn error(mut self, kind: ErrorKind) -> Script {
        self.error = Some(kind);
        self
    }
}

type Answers = dyn Fn(&str, &Request) -> Script;

struct Scripted {
    answers: Rc<Answers>,
    events: Rc<RefCell<Vec<String>>>,
    start: Instant,
}

/// Records a call that was dropped before it ended.
struct Guard {
    events: Rc<RefCell<Vec<String>>>,
    name: String,
    ended: bool,
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.ended {
            self.events.borrow_mut().push(format!("cancelled {}", self.name));
        }
    }
}

impl Caller for Scripted {
    fn call(&self, upstream: &Arc<Upstream>, request: Request, context: CallContext) -> CallFuture {
        let script = (self.answers)(upstream.name(), &request);
        let name = format!("{} {}{}", request.method, upstream.name(), request.path_and_query);
        let body = String::from_utf8_lossy(&request.body).into_owned();
        let at = self.start.elapsed().as_millis();
        let shown = if body.is_empty() { name.clone() } else { format!("{name} {body}") };
        self.events.borrow_mut().push(format!("{at} {shown}"));
        let mut guard = Guard { events: self.events.clone(), name, ended: false };
        let upstream = upstream.name().clone();
        let ranged = request.headers.contains_key("range");
        Box::pin(async move {
            // Capture the whole guard, not only its flag.
            let guard = &mut guard;
            let error = |kind, elapsed| CallError {
                upstream: upstream.clone(),
                kind,
                fault: Fault::Upstream,
                retry: false,
                elapsed,
                detail: "scripted".into(),
            };
            let timeout = context.timeout.unwrap_or(Duration::from_secs(3600));
            let end = context.deadline.min(Instant::now() + timeout);
            let done = Instant::now() + script.delay;
            tokio::time::sleep_until(done.min(end)).await;
            guard.ended = true;
            if done > end {
                return Err(error(ErrorKind::Timeout, timeout));
            }
            if let Some(kind) = script.error {
                return Err(error(kind, script.delay));
            }
            let mut headers = HeaderMap::new();
            if let Some(kind) = script.kind {
                headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
            }
            headers.insert("etag", HeaderValue::from_static("\"x\""));
            headers.insert("x-from", HeaderValue::from_str(&upstream).unwrap());
            Ok(Answer {
                status: StatusCode::from_u16(script.status).unwrap(),
                headers: headers.into(),
                body: Bytes::from(script.body),
                elapsed: script.delay,
                unrequested_part: script.status == 206 && !ranged,
            })
        })
    }
}

/// One loaded flow file with upstreams `a`, `b`, `c` and `orders`.
pub struct Setup {
    pub flows: WorkerFlows,
    pub all: Arc<Flows>,
    pub upstreams: Arc<Upstreams>,
    answers: Rc<Answers>,
    paths: Vec<String>,
    pub events: Rc<RefCell<Vec<String>>>,
    start: Instant,
    timeout: Duration,
    _dir: tempfile::TempDir,
}

const UPSTREAMS: &str = r#"
[upstreams.a]
url = "http://127.0.0.1:1"
[upstreams.b]
url = "http://127.0.0.1:1"
forward_headers = ["x-user"]
[upstreams.c]
url = "http://127.0.0.1:1"
query_lists = "comma"
[upstreams.c.operations.products]
path = "/products/{kind}"
ok = [404]
[upstreams.c.operations.rename]
method = "PUT"
path = "/products/{id}"
[upstreams.c.operations.find]
method = "POST"
path = "/find"
safe = true
[upstreams.orders]
url = "http://127.0.0.1:1"
"#;

/// Whether these tests run on the threads executor: `tests/threads.rs` includes these files.
pub fn threaded() -> bool {
    module_path!().starts_with("threads::")
}

const THREADS: &str = "executor = { threads = 400, waiting = 100 }\n";

/// A file that loads with the prelude `load("@upstreams", …)` and serves `flow` at `GET /`.
pub fn load(star: &str, more: &str) -> Result<(Arc<Flows>, tempfile::TempDir), Vec<String>> {
    let star = format!("load(\"@upstreams\", \"a\", \"b\", \"c\", \"orders\")\n{star}");
    load_toml(UPSTREAMS, &star, more).map(|(flows, _, dir)| (flows, dir))
}

type Loaded = (Arc<Flows>, Arc<Upstreams>, tempfile::TempDir);

/// The same with upstreams of its own.
pub fn load_toml(upstreams: &str, star: &str, more: &str) -> Result<Loaded, Vec<String>> {
    let dir = tempfile::tempdir().unwrap();
    let more = if threaded() && !more.contains("executor") { format!("{THREADS}{more}") } else { more.to_owned() };
    let toml = format!("{upstreams}\n[[routes]]\nmethod = \"GET\"\npath = \"/\"\nflow = \"flow.star:flow\"\n{more}\n");
    std::fs::write(dir.path().join("fanin.toml"), toml).unwrap();
    std::fs::write(dir.path().join("flow.star"), star).unwrap();
    let config = Config::load(dir.path()).map_err(|error| vec![error.to_string()])?;
    let upstreams = Arc::new(Upstreams::new(config.upstreams.values()).unwrap());
    match Flows::load(&config, &upstreams) {
        Ok(flows) => Ok((Arc::new(in_time(flows, &config)), upstreams, dir)),
        Err(problems) => Err(problems.iter().map(ToString::to_string).collect()),
    }
}

/// Makes the pools' threads follow the test's paused time. Tests in real time use the flows unchanged.
fn in_time(mut flows: Flows, config: &Config) -> Flows {
    if threaded() && Handle::try_current().is_ok() {
        flows.use_paused_time(config);
        WAIT_UNTIL_IDLE.with(|wait| *wait.borrow_mut() = Some(Box::new(flows.idle_waiter())));
    }
    flows
}

/// Flows over upstreams of the test's own, `load` statement included.
pub fn setup_toml(upstreams: &str, star: &str, answers: impl Fn(&str, &Request) -> Script + 'static) -> Setup {
    let loaded = load_toml(upstreams, star, "").unwrap_or_else(|problems| panic!("{}", problems.join("\n")));
    Setup::new(loaded, answers)
}

pub fn setup_with(star: &str, more: &str, answers: impl Fn(&str, &Request) -> Script + 'static) -> Setup {
    let star = format!("load(\"@upstreams\", \"a\", \"b\", \"c\", \"orders\")\n{star}");
    let loaded = load_toml(UPSTREAMS, &star, more).unwrap_or_else(|problems| panic!("{}", problems.join("\n")));
    Setup::new(loaded, answers)
}

pub fn setup(star: &str, answers: impl Fn(&str, &Request) -> Script + 'static) -> Setup {
    setup_with(star, "", answers)
}

/// A whole folder with a configuration and flows of its own.
pub fn setup_routes(dir: tempfile::TempDir, answers: impl Fn(&str, &Request) -> Script + 'static) -> Setup {
    if threaded() {
        let file = dir.path().join("fanin.toml");
        let toml = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, toml.replace("[[routes]]\n", &format!("[[routes]]\n{THREADS}"))).unwrap();
    }
    let config = Config::load_with(dir.path(), &|_| None).unwrap_or_else(|error| panic!("{error}"));
    let upstreams = Arc::new(Upstreams::new(config.upstreams.values()).unwrap());
    let flows = Flows::load(&config, &upstreams).unwrap_or_else(|problems| panic!("{problems:?}"));
    let mut setup = Setup::new((Arc::new(in_time(flows, &config)), upstreams, dir), answers);
    setup.paths = config.routes.iter().map(|route| route.path.clone()).collect();
    setup
}

impl Setup {
    /// The number of the first route with this path.
    pub fn route(&self, path: &str) -> usize {
        self.paths.iter().position(|other| other == path).expect("a route")
    }

    fn new((all, upstreams, dir): Loaded, answers: impl Fn(&str, &Request) -> Script + 'static) -> Setup {
        let (events, start, answers): (Rc<RefCell<Vec<String>>>, _, _) =
            (Rc::default(), Instant::now(), Rc::new(answers));
        let caller = Scripted { answers: answers.clone(), events: events.clone(), start };
        let flows = all.worker(Rc::new(caller), Box::new(|_| {}), Detail::Full);
        Setup {
            flows,
            all,
            upstreams,
            answers,
            paths: Vec::new(),
            events,
            start,
            timeout: Duration::from_secs(10),
            _dir: dir,
        }
    }

    /// Another worker with the same flows and upstreams.
    pub fn worker(&self) -> WorkerFlows {
        let caller = Scripted { answers: self.answers.clone(), events: self.events.clone(), start: self.start };
        self.all.worker(Rc::new(caller), Box::new(|_| {}), Detail::Full)
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

    pub fn timeout(mut self, ms: u64) -> Setup {
        self.timeout = Duration::from_millis(ms);
        self
    }

    pub fn incoming(&self, uri: &str) -> IncomingRequest {
        incoming(uri, self.timeout)
    }

    pub async fn run(&self, uri: &str) -> Reply {
        self.flows.run(0, self.incoming(uri)).await
    }

    /// The body of a reply that must be a success.
    pub async fn text(&self, uri: &str) -> String {
        let reply = self.run(uri).await;
        let success = reply.result.unwrap_or_else(|error| panic!("{error:?}"));
        String::from_utf8(success.body.concat()).unwrap()
    }

    pub async fn error(&self, uri: &str) -> FlowError {
        self.run(uri).await.result.map(|success| success.body).expect_err("a success")
    }

    /// Milliseconds of virtual time since the setup.
    pub fn elapsed(&self) -> u128 {
        self.start.elapsed().as_millis()
    }

    pub fn events(&self) -> Vec<String> {
        self.events.borrow().clone()
    }
}

thread_local! {
    /// Blocks until all threads of the test's pools are idle.
    static WAIT_UNTIL_IDLE: RefCell<Option<Box<dyn Fn()>>> = const { RefCell::new(None) };
}

/// Runs a test on a local set in paused time.
pub fn paused<F: Future>(test: F) -> F::Output {
    // A timer may have woken a thread of a pool. Paused time must not advance before that thread is idle again.
    let rest = || WAIT_UNTIL_IDLE.with(|rest| rest.borrow().iter().for_each(|rest| rest()));
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().start_paused(true).on_thread_park(rest).build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, test)
}

/// A request with this timeout from now on.
pub fn incoming(uri: &str, timeout: Duration) -> IncomingRequest {
    let now = Instant::now();
    IncomingRequest {
        number: 0,
        known_id: None,
        method: Method::GET,
        uri: uri.parse().unwrap(),
        params: vec![("id".into(), "7".into())],
        headers: HeaderMap::new(),
        body: Bytes::new(),
        upload: None,
        remote: "127.0.0.1:5555".parse().unwrap(),
        identity: None,
        start: now,
        deadline: now + timeout,
        trace: None,
        permit: None,
        detail: Detail::Nothing,
    }
}
