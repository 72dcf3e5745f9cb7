//! `blocked-loop`: a callback that blocks its own event loop.

use std::future::{Ready, ready};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use fanin_config::{AccessLog, Server};
use fanin_server::{
    Application, BuildInfo, LoadError, Loader, Options, Request, Response, RouteSpec, Worker, WorkerContext,
};
use http::Method;
use serde::{Deserialize, Serialize};

use super::chart::{Axis, Series, bars};
use super::client::Client;
use super::error::LabError;
use super::outcome::{Found, Table, digits, quantile};
use super::process::{self, Served, pause};
use super::{Context, Experiment};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "blocked-loop",
    title: "A callback that blocks its own event loop",
    asked: "A retailer's orchestrator moved to a non-blocking client and ran a blocking continuation on an event-loop \
    thread. Within seconds all of production stopped: the thread waited for an answer that only it could receive. Can \
    a flow do that? Who notices when native code does?",
    run,
};

/// How long the blocked callback waits before it is let go: for ever, in production.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long native code holds its worker here.
const HELD: Duration = Duration::from_millis(200);

/// What one role saw.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Seen {
    /// The answer came while the callback waited for it.
    answered: bool,
    /// Milliseconds that it waited.
    waited: f64,
    /// What the log said.
    log: Vec<String>,
}

/// The measuring process.
pub(super) fn role(kind: &str) -> Result<Seen, LabError> {
    match kind {
        "callback" => callback(false),
        "callback-elsewhere" => callback(true),
        "native" => native(),
        _ => Err(LabError::Wrong(format!("there is no kind {kind:?}"))),
    }
}

/// A callback on an event loop asks for something over the same loop, and blocks until it comes. With `elsewhere` it blocks on a
/// thread of its own.
fn callback(elsewhere: bool) -> Result<Seen, LabError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(LabError::io("a runtime"))?;
    runtime.block_on(async {
        // The backend answers at once, on a thread of its own: nothing but the loop is in the way.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").map_err(LabError::io("listening"))?;
        let addr = listener.local_addr().map_err(LabError::io("listening"))?;
        std::thread::spawn(move || {
            if let Ok((mut stream, _)) = listener.accept() {
                let _ = std::io::Write::write_all(&mut stream, b"!");
            }
        });
        let (sender, answer) = channel();
        // The client: the loop is to connect, to read, and to pass on what came.
        tokio::spawn(async move {
            let Ok(mut stream) = tokio::net::TcpStream::connect(addr).await else { return };
            let mut byte = [0];
            let read = tokio::io::AsyncReadExt::read_exact(&mut stream, &mut byte).await;
            let _ = sender.send(read.is_ok());
        });
        let wait = move || {
            let start = Instant::now();
            let got = answer.recv_timeout(PATIENCE);
            (matches!(got, Ok(true)), start.elapsed().as_secs_f64() * 1e3)
        };
        let (answered, waited) = if elsewhere {
            tokio::task::spawn_blocking(wait).await.map_err(|error| LabError::wrong(error.to_string()))?
        } else {
            // This is the continuation on the loop's thread.
            wait()
        };
        Ok(Seen { answered, waited, log: Vec::new() })
    })
}

/// A server whose application has one native function that blocks, as a badly written extension would.
struct App(Server);
struct AppWorker(fanin_server::Activity);
struct AppLoader;

impl Loader for AppLoader {
    type App = App;

    fn load(&self, _: Option<&Arc<App>>) -> Result<App, LoadError> {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        Ok(App(Server {
            listen: vec![any],
            admin: Some(any),
            workers: 1,
            reload: false,
            access_log: AccessLog::Off,
            ..Server::default()
        }))
    }
}

impl Application for App {
    type Worker = AppWorker;

    fn server(&self) -> &Server {
        &self.0
    }

    fn routes(&self) -> Vec<RouteSpec> {
        vec![RouteSpec::new(Method::GET, "/held")]
    }

    fn worker(self: &Arc<Self>, context: WorkerContext) -> AppWorker {
        AppWorker(context.activity)
    }

    fn describe(&self, _: u64) -> String {
        "native function `resize_image` of the lab".to_owned()
    }
}

impl Worker for AppWorker {
    type Future = Ready<Response>;

    fn handle(&self, _: Request) -> Ready<Response> {
        self.0.set(1);
        pause(HELD);
        self.0.clear();
        ready(Response::json("{}"))
    }
}

/// Collects what is logged.
#[derive(Clone, Default)]
struct Log(Arc<std::sync::Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn native() -> Result<Seen, LabError> {
    let log = Log::default();
    let writer = log.clone();
    let subscriber =
        tracing_subscriber::fmt().with_ansi(false).without_time().with_writer(move || writer.clone()).finish();
    tracing::subscriber::set_global_default(subscriber).map_err(|error| LabError::wrong(error.to_string()))?;
    let options = Options { signals: false, build: BuildInfo { version: env!("CARGO_PKG_VERSION") } };
    let handle = fanin_server::start(AppLoader, options).map_err(|error| LabError::wrong(error.to_string()))?;
    let addr = *handle.addresses().first().ok_or_else(|| LabError::wrong("no address"))?;
    let start = Instant::now();
    let answered = Client::connect(addr)?.ok("/held").is_ok();
    let waited = start.elapsed().as_secs_f64() * 1e3;
    // The watchdog looks some times a second; it also says when the worker turns again.
    pause(Duration::from_millis(300));
    handle.drain();
    let _ = handle.wait();
    let text = log.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
    let lines = String::from_utf8_lossy(&text)
        .lines()
        .filter(|line| line.contains("resize_image"))
        .map(str::to_owned)
        .collect();
    Ok(Seen { answered, waited, log: lines })
}

const TOML: &str = "[[routes]]\npath = '/hog'\nflow = 'flow.star:hog'\ntimeout = '30s'\nmax_steps = 100000000\n\
    [[routes]]\npath = '/small'\nflow = 'flow.star:small'\n";
const STAR: &str = "
def hog(req):
    n = 0
    for i in range(20000000):
        n += i % 7
    return n

def small(req):
    return {\"ok\": True}
";

/// Milliseconds of small requests, with or without a flow that computes all the while on the same worker.
fn small_requests(served: &Served, hogs: bool, time: Duration) -> Result<Vec<f64>, LabError> {
    let hog = hogs.then(|| {
        let addr = served.addr;
        std::thread::spawn(move || Client::connect(addr).and_then(|mut client| client.get("/hog")))
    });
    let mut client = Client::connect(served.addr)?;
    let (mut took, start) = (Vec::new(), Instant::now());
    while start.elapsed() < time && hog.as_ref().is_none_or(|hog| !hog.is_finished()) {
        let begin = Instant::now();
        client.ok("/small")?;
        took.push(begin.elapsed().as_secs_f64() * 1e3);
        pause(Duration::from_millis(1));
    }
    if let Some(hog) = hog {
        let (status, _) = hog.join().unwrap_or_else(|_| Err(LabError::wrong("a thread panicked")))?;
        if status != 200 {
            return Err(LabError::Wrong(format!("the flow that computes was answered {status}")));
        }
    }
    took.sort_by(f64::total_cmp);
    Ok(took)
}

fn run(context: &Context) -> Result<Found, LabError> {
    let role = |kind: &str| process::role::<Seen>(&context.program, &["blocked-loop", kind]);
    let (blocked, elsewhere, native) = (role("callback")?, role("callback-elsewhere")?, role("native")?);
    let served = Served::start(&context.program, 1, TOML, STAR)?;
    let time = context.pick(Duration::from_secs(1), Duration::from_secs(5));
    let alone = small_requests(&served, false, time)?;
    let beside = small_requests(&served, true, time)?;

    let mut found = Found::default();
    let mut table = Table::new("who waits for whom", &["", "answered", "waited ms", "story"]);
    let yes = |answered: bool| if answered { "yes" } else { "never: deadlock" }.to_owned();
    table.row([
        "a callback blocks on its own event loop".into(),
        yes(blocked.answered),
        digits(blocked.waited),
        "all stood within seconds".into(),
    ]);
    table.row([
        "the same on a thread of its own".into(),
        yes(elsewhere.answered),
        digits(elsewhere.waited),
        String::new(),
    ]);
    table.row([
        "native code holds a Fanin worker for 200 ms".into(),
        yes(native.answered),
        digits(native.waited),
        String::new(),
    ]);
    let mut flows = Table::new(
        "small requests on one worker, ms, while a flow on the same worker counts to 20 million",
        &["", "requests", "p50", "p99", "longest"],
    );
    for (name, times) in [("alone", &alone), ("beside the counting flow", &beside)] {
        flows.row([
            name.to_owned(),
            times.len().to_string(),
            digits(quantile(times, 0.5)),
            digits(quantile(times, 0.99)),
            digits(quantile(times, 1.0)),
        ]);
    }
    found.tables = vec![table, flows];
    found.holds("the blocked callback deadlocks", yes(blocked.answered), !blocked.answered && elsewhere.answered);
    let named = native.log.iter().any(|line| line.contains("resize_image"));
    found.holds("the watchdog names native code that holds a worker", if named { "named" } else { "not named" }, named);
    let p99 = quantile(&beside, 0.99);
    let series =
        |times: &[f64]| vec![(0.0, quantile(times, 0.5)), (1.0, quantile(times, 0.99)), (2.0, quantile(times, 1.0))];
    let svg = bars(
        "Small requests on one worker: milliseconds",
        &["p50", "p99", "longest"],
        Axis::log("ms"),
        &[
            Series::new("alone", series(&alone)),
            Series::new("beside a flow that counts to 20 million", series(&beside)),
        ],
    );
    found.plots.push(("A flow cannot block its worker: its time slice is 200 us.".into(), svg));
    found.shows = format!(
        "A callback that blocks its event loop never gets its answer. A flow cannot block its worker: beside one that \
        counts to 20 million, small requests take {} ms at the 99th percentile. The watchdog names native code that \
        blocks a worker.",
        digits(p99)
    );
    found.measured(format!(
        "The deadlock uses a bare event loop: a callback on its thread waits for an answer that the same thread would \
        have to read. The test ends it after {} s. Then the callback waits on a thread of its own.",
        PATIENCE.as_secs()
    ));
    found.measured(
        "A flow cannot call a blocking function: its only I/O are calls, and a flow that must wait is suspended. So \
        only computing can hold a worker, which is measured. Native code is a test application on Fanin's server that \
        sleeps 200 ms on the worker.",
    );
    for line in native.log.iter().take(2) {
        found.note(format!("The watchdog's line: {}", line.trim()));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_callback_that_blocks_its_loop_is_not_answered() {
        let blocked = callback(false).unwrap();
        assert!(!blocked.answered && blocked.waited >= 999.0, "{blocked:?}");
        assert!(callback(true).unwrap().answered);
    }
}
