//! A backend: HTTP/1.1 and HTTP/2 on one thread, answers after exact delays.

use std::collections::BinaryHeap;
use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::sync::oneshot;

use super::error::LabError;

/// What a stub answers.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    /// `None`: never.
    pub(crate) after: Option<Duration>,
    pub(crate) json: bool,
    pub(crate) body: Bytes,
}

impl Reply {
    pub(crate) fn json(after: Duration, body: impl Into<Bytes>) -> Reply {
        Reply { after: Some(after), json: true, body: body.into() }
    }
}

type Answers = dyn Fn(&str) -> Reply + Send + Sync;

/// A running stub. It serves until it is dropped.
pub(crate) struct Stub {
    pub(crate) addr: SocketAddr,
    end: Option<oneshot::Sender<()>>,
}

impl Stub {
    /// Serves on the cores of the current thread. `answers` gets path and query.
    pub(crate) fn start(
        http2: bool,
        answers: impl Fn(&str) -> Reply + Send + Sync + 'static,
    ) -> Result<Stub, LabError> {
        let failed = || LabError::io("starting a stub");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed())?;
        listener.set_nonblocking(true).map_err(failed())?;
        let addr = listener.local_addr().map_err(failed())?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed())?;
        let (end, ended) = oneshot::channel();
        let answers: Arc<Answers> = Arc::new(answers);
        let timer = Timer::start().map_err(failed())?;
        let serve = move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = accept(listener, http2, answers, timer) => {}
                    _ = ended => {}
                }
            });
        };
        std::thread::Builder::new().name("lab-stub".to_owned()).spawn(serve).map_err(failed())?;
        Ok(Stub { addr, end: Some(end) })
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.addr)
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        if let Some(end) = self.end.take() {
            let _ = end.send(());
        }
    }
}

async fn accept(listener: TcpListener, http2: bool, answers: Arc<Answers>, timer: Arc<Timer>) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        let _ = stream.set_nodelay(true);
        let (answers, timer) = (answers.clone(), timer.clone());
        tokio::spawn(async move {
            let service = service_fn(move |request| answer(answers.clone(), timer.clone(), request));
            let io = TokioIo::new(stream);
            // A caller that goes away in the middle is not this side's problem.
            if http2 {
                let _ = http2::Builder::new(TokioExecutor::new()).serve_connection(io, service).await;
            } else {
                let _ = http1::Builder::new().timer(TokioTimer::new()).serve_connection(io, service).await;
            }
        });
    }
}

async fn answer(
    answers: Arc<Answers>,
    timer: Arc<Timer>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let target = request.uri().path_and_query().map_or("/", |target| target.as_str());
    let reply = answers(target);
    match reply.after {
        Some(Duration::ZERO) => {}
        Some(after) => timer.wait(after).await,
        None => std::future::pending().await,
    }
    let mut response = Response::new(Full::new(reply.body));
    let kind = if reply.json { "application/json" } else { "text/plain" };
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    Ok(response)
}

/// A timer that is exact to the kernel's (some 60 microseconds). The runtime's counts whole milliseconds, and a stub that answers
/// "after 1.5 ms" would answer after 2 to 3.
struct Timer {
    state: Mutex<Due>,
    changed: Condvar,
}

#[derive(Default)]
struct Due {
    /// Earliest on top.
    heap: BinaryHeap<Entry>,
}

struct Entry {
    at: Instant,
    wake: oneshot::Sender<()>,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        self.at == other.at
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Entry) -> std::cmp::Ordering {
        other.at.cmp(&self.at)
    }
}

impl Timer {
    fn start() -> io::Result<Arc<Timer>> {
        let timer = Arc::new(Timer { state: Mutex::default(), changed: Condvar::new() });
        let weak = Arc::downgrade(&timer);
        let run = move || {
            // Ends when the stub is gone and its last wait has passed.
            while let Some(timer) = weak.upgrade() {
                timer.turn();
            }
        };
        std::thread::Builder::new().name("lab-timer".to_owned()).spawn(run)?;
        Ok(timer)
    }

    fn turn(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        while state.heap.peek().is_some_and(|entry| entry.at <= now) {
            if let Some(entry) = state.heap.pop() {
                let _ = entry.wake.send(());
            }
        }
        let wait = state.heap.peek().map_or(Duration::from_millis(200), |entry| entry.at - now);
        drop(self.changed.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner));
    }

    async fn wait(&self, time: Duration) {
        let (wake, woken) = oneshot::channel();
        let at = Instant::now() + time;
        if self.push(Entry { at, wake }) {
            self.changed.notify_one();
        }
        // The timer sends or, when the process ends, is gone.
        let _ = woken.await;
    }
    /// Whether it is now the first.
    fn push(&self, entry: Entry) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let first = state.heap.peek().is_none_or(|other| entry.at < other.at);
        state.heap.push(entry);
        first
    }
}
