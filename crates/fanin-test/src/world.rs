//! What one test runs in: the compiled flows, which all tests share, upstreams of its own, stubs in place of backends, and virtual time.
//!
//! The runtime's clock is paused: it advances only when everything waits, to the next moment at which something happens. No socket is
//! opened. Policies, batches and caches are those of the server.

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use fanin_flow::{ClientIdentity, Detail, FlowError, Flows, IncomingRequest, Reply, ReplyBody, WorkerFlows};
use fanin_lang::Program;
use fanin_push::Channels;
use fanin_server::{Problem, Response};
use fanin_static::{Requested, Static};
use fanin_upstream::{Upstreams, WorkerClient};
use futures_util::future::join_all;
use http::header::{CONTENT_TYPE, HOST};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use tokio::runtime::Runtime;
use tokio::task::LocalSet;
use tokio::time::Instant;

use crate::deviate::Deviations;
use crate::error::TestError;
use crate::response::{Received, Sent};
use crate::script::{Script, Shared};
use crate::setting::Setting;
use crate::stub::Stubs;

/// The largest streamed body that a test collects.
const MAX_STREAM: usize = 64 << 20;
/// How long a test waits for the first fetch of a snapshot.
const SNAPSHOT_WAIT: Duration = Duration::from_secs(30);

/// A request that a test sends.
pub(crate) struct TestRequest {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// Who sends it: what the checks of the route would have found.
    pub(crate) identity: Option<ClientIdentity>,
    /// How long after the others it is sent.
    pub(crate) after: Duration,
}

/// One test's flows and upstreams.
pub(crate) struct World {
    setting: Arc<Setting>,
    pub(crate) shared: Rc<Shared>,
    // Before the runtime: what they drop may look for it.
    worker: WorkerFlows,
    client: Rc<WorkerClient>,
    upstreams: Upstreams,
    local: LocalSet,
    runtime: Runtime,
    has_begun: bool,
}

impl World {
    /// A new world. `program` is the test's own.
    ///
    /// # Errors
    /// The configuration has changed since it was checked.
    pub(crate) fn new(setting: &Arc<Setting>, program: &Program, seed: u64) -> Result<World, TestError> {
        World::of(setting, setting.flows()?, program, seed)
    }

    /// The same with flows that are compiled from the same configuration.
    ///
    /// # Errors
    /// As [`World::new`].
    pub(crate) fn of(setting: &Arc<Setting>, flows: &Flows, program: &Program, seed: u64) -> Result<World, TestError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
        let local = LocalSet::new();
        fanin_flow::parse_inline();
        let entered = runtime.enter();
        let upstreams = setting
            .upstreams
            .anew()
            .map_err(|errors| TestError::Upstreams(errors.iter().map(ToString::to_string).collect()))?;
        let flows = Arc::new(flows.anew(&upstreams, &Channels::new(setting.config.push.clone())));
        let shared = Rc::new(Shared {
            stubs: Stubs::default(),
            deviations: Deviations::default(),
            is_starting: false.into(),
            program: program.clone(),
            random: fastrand::Rng::with_seed(seed).into(),
            epoch: Some(Instant::now()).into(),
            setting: setting.clone(),
        });
        let client = WorkerClient::scripted(Rc::new(Script(shared.clone())), seed);
        let worker = flows.worker(Rc::new(client.clone()), Box::new(|_| {}), Detail::Full);
        drop(entered);
        Ok(World { setting: setting.clone(), shared, worker, client, upstreams, local, runtime, has_begun: false })
    }

    /// Sends requests together, and waits for all responses.
    ///
    /// # Errors
    /// A request that cannot be made.
    pub(crate) fn send(&mut self, requests: Vec<TestRequest>) -> Result<Vec<Rc<Received>>, String> {
        self.begin()?;
        let (worker, setting) = (&self.worker, &self.setting);
        let sent = |one: &TestRequest| Sent::new(&one.method, &one.uri, one.headers.clone(), one.body.clone());
        let sent: Vec<Sent> = requests.iter().map(sent).collect();
        let all = requests.into_iter().map(|request| one(worker, setting, request));
        let all = self.local.block_on(&self.runtime, join_all(all));
        all.into_iter().zip(sent).map(|(one, sent)| one.map(|one| Rc::new(Received { sent, ..one }))).collect()
    }

    /// Lets virtual time pass.
    ///
    /// # Errors
    /// A snapshot cannot be fetched.
    pub(crate) fn pass(&mut self, time: Duration) -> Result<(), String> {
        self.begin()?;
        self.local.block_on(&self.runtime, async move { tokio::time::sleep(time).await });
        Ok(())
    }

    /// Milliseconds of virtual time since the test began.
    pub(crate) fn elapsed(&self) -> f64 {
        let _entered = self.runtime.enter();
        self.shared.now()
    }

    /// Fetches the snapshots, as a server does when it starts.
    fn begin(&mut self) -> Result<(), String> {
        if std::mem::replace(&mut self.has_begun, true) {
            return Ok(());
        }
        let waiting: Vec<_> = self.upstreams.iter().filter(|upstream| upstream.snapshot().is_some()).cloned().collect();
        if waiting.is_empty() {
            return Ok(());
        }
        self.shared.is_starting.set(true);
        let (client, upstreams) = (&self.client, &self.upstreams);
        self.local.block_on(&self.runtime, async move {
            client.refresh_snapshots(upstreams);
            let end = Instant::now() + SNAPSHOT_WAIT;
            while Instant::now() < end {
                let is_there = |upstream: &Arc<fanin_upstream::Upstream>| {
                    upstream.snapshot().is_none_or(|snapshot| snapshot.table().is_some())
                };
                if waiting.iter().all(is_there) {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
        // The test's clock starts when the server would be ready.
        let entered = self.runtime.enter();
        self.shared.epoch.set(Some(Instant::now()));
        self.shared.is_starting.set(false);
        drop(entered);
        Ok(())
    }
}

async fn one(worker: &WorkerFlows, setting: &Setting, request: TestRequest) -> Result<Received, String> {
    if !request.after.is_zero() {
        tokio::time::sleep(request.after).await;
    }
    let shown = format!("{} {}", request.method, request.uri);
    let found = match setting.finder.find(&request.method, &host_of(&request.headers), request.uri.path()) {
        Ok(found) => found,
        Err(status) => return Ok(Received::by_server(shown, status)),
    };
    let route = &setting.config.routes[found.route];
    if route.grpc.is_some() {
        return Err(format!("{shown}: tests cannot call a method of a route that serves gRPC"));
    }
    if let Some(upstream) = &route.proxy {
        return Err(format!("{shown}: tests cannot use a route with proxy, which has no flow; it asks {upstream}"));
    }
    if let Some(answer) = &setting.statics[found.route] {
        return Ok(without_flow(answer, shown, route.label(), &request, &found.params));
    }
    if request.body.len() > route.max_body {
        return Ok(Received::by_server(shown, StatusCode::PAYLOAD_TOO_LARGE));
    }
    let start = Instant::now();
    let upload = route.stream_body.then(|| crate::upload::WholeBody::boxed(request.body.clone()));
    let incoming = IncomingRequest {
        number: 0,
        known_id: None,
        method: request.method.clone(),
        uri: request.uri.clone(),
        params: found.params.iter().map(|(name, value)| ((&**name).into(), (&**value).into())).collect(),
        headers: {
            let mut headers = request.headers;
            if let Some(rules) = &route.request_headers {
                rules.apply(&mut headers);
            }
            headers
        },
        body: if route.stream_body { Bytes::new() } else { request.body },
        upload,
        identity: request.identity.map(Box::new),
        remote: ([127, 0, 0, 1], 40_000).into(),
        start,
        deadline: start + route.timeout,
        trace: None,
        permit: None,
        detail: Detail::Full,
    };
    let flow = worker.run(found.route, incoming);
    // The server answers at the deadline whatever the flow does.
    let reply = match tokio::time::timeout_at(start + route.timeout, flow).await {
        Ok(reply) => reply,
        Err(_) => return Ok(Received::late(shown, route.label(), start.elapsed())),
    };
    received(shown, route.label(), start, reply).await
}

/// The host that a request is for, without its port.
pub(crate) fn host_of(headers: &HeaderMap) -> String {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let authority: Option<http::uri::Authority> = host.parse().ok();
    authority.map(|authority| authority.host().to_ascii_lowercase()).unwrap_or_default()
}

/// The response of a route without a flow.
fn without_flow(
    answer: &Static,
    shown: String,
    route: String,
    request: &TestRequest,
    params: &[(Box<str>, Box<str>)],
) -> Received {
    let (method, headers) = (&request.method, &request.headers);
    let requested = Requested { method, path: request.uri.path(), query: request.uri.query(), headers };
    let params = || params.iter().map(|(name, value)| (&**name, &**value));
    let response = answer.at_once(requested, params()).unwrap_or_else(|| answer.blocking(requested, params()));
    let Response { status, headers, body, .. } = response;
    let body = if *method == Method::HEAD { Bytes::new() } else { body.to_bytes() };
    Received { route, headers, body, ..Received::by_server(shown, status) }
}

async fn received(request: String, route: String, start: Instant, reply: Reply) -> Result<Received, String> {
    let Reply { result, partial, mut record, .. } = reply;
    let mut is_complete = true;
    let (status, headers, body, error) = match result {
        Ok(success) => {
            let body = match success.body {
                ReplyBody::Pieces(pieces) => pieces.concat().into(),
                ReplyBody::Stream(mut stream) => {
                    let (body, complete) = collect(|cx| stream.poll_next(cx).map_err(|_| ())).await?;
                    is_complete = complete;
                    record = record.or(stream.summary().and_then(|summary| summary.record));
                    body
                }
                ReplyBody::Messages(mut stream) => {
                    let (body, complete) = collect(|cx| stream.poll_next(cx).map_err(|_| ())).await?;
                    is_complete = complete;
                    record = record.or(stream.summary().and_then(|summary| summary.record));
                    body
                }
                ReplyBody::Events(_) => return Err("tests cannot read the events of a subscription".to_owned()),
            };
            (success.status, success.headers, body, None)
        }
        Err(failed) => {
            let response = problem(&failed);
            (response.status, response.headers, response.body.to_bytes(), Some(failed))
        }
    };
    let elapsed = start.elapsed();
    let sent = Sent::default();
    Ok(Received { request, route, sent, status, headers, body, is_complete, partial, error, record, elapsed })
}

/// All bytes of a stream, and whether it ended as it should.
pub(crate) async fn collect(
    mut next: impl FnMut(&mut std::task::Context<'_>) -> std::task::Poll<Option<Result<Bytes, ()>>>,
) -> Result<(Bytes, bool), String> {
    let mut whole = BytesMut::new();
    loop {
        match poll_fn(&mut next).await {
            None => return Ok((whole.freeze(), true)),
            Some(Err(())) => return Ok((whole.freeze(), false)),
            Some(Ok(part)) if whole.len() + part.len() > MAX_STREAM => {
                return Err(format!("the body is longer than {MAX_STREAM} bytes"));
            }
            Some(Ok(part)) => whole.extend_from_slice(&part),
        }
    }
}

/// An error as the server sends it.
pub(crate) fn problem(error: &FlowError) -> Response {
    let mut problem = Problem::new(error.status, error.kind, error.title).detail(error.detail.clone());
    if let Some(upstream) = &error.upstream {
        problem = problem.member("upstream", upstream.clone());
    }
    if let Some(after) = error.retry_after {
        problem = problem.retry_after(after);
    }
    problem.into()
}

/// The `content-type` of JSON.
pub(crate) fn json_type() -> (http::HeaderName, HeaderValue) {
    (CONTENT_TYPE, HeaderValue::from_static("application/json"))
}
