//! What a suspended flow takes, by itself and with its call in the client, without the buffers of connections and sockets.
//!
//! Flows of `bench/inflight` are started in this process, as the server starts them, and none of their calls gets an answer.
//! What the process grows by, divided by the flows, is the figure. By itself a flow is the request as it sees it, the machine's
//! part, and the call as the flow knows it; the call's future does nothing. With its call it is on the real client, and the
//! upstream is a socket that takes connections and says nothing: the request to the upstream, what the policies keep of the call,
//! its timers and its place in the pool's queue come in addition. Some hundred of those calls have been sent and carry their
//! HTTP/2 stream besides; the others wait for a connection, because a silent peer has allowed no more. Not counted is what
//! waits around the flow: the client's connection or stream, and the server's record of the request.

use std::future::Future;
use std::net::TcpListener;
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use bytes::Bytes;
use fanin_config::Config;
use fanin_flow::{CallFuture, Caller, Flows, IncomingRequest};
use fanin_upstream::{CallContext, Request, Upstream, Upstreams, WorkerClient};
use http::{HeaderMap, HeaderValue, Method, Uri, header};
use tokio::time::Instant;

use crate::{Failure, process};

/// Flows that run first, so that what a worker needs once is not counted.
const WARM: usize = 1000;
const ROUTE: &str = "/never";

/// A client that holds nothing of a call but that nobody answers it.
struct Silence;

impl Caller for Silence {
    fn call(&self, _: &Arc<Upstream>, _: Request, _: CallContext) -> CallFuture {
        Box::pin(std::future::pending())
    }
}

/// Bytes of one suspended flow, out of `count`; `alone`: without what the client keeps of its call.
pub fn bytes(count: usize, alone: bool) -> Result<f64, Failure> {
    let silent = TcpListener::bind("127.0.0.1:0")?;
    let address = silent.local_addr()?.to_string();
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("inflight");
    let wrong = |what: String| Failure::Wrong(what);
    let config = Config::load_with(&dir, &|name| (name == "FANIN_BENCH_SECOND").then(|| address.clone()))
        .map_err(|error| wrong(error.to_string()))?;
    let upstreams =
        Upstreams::new(config.upstreams.values()).map_err(|errors| wrong(format!("upstreams: {errors:?}")))?;
    let flows = Flows::load(&config, &upstreams).map_err(|errors| wrong(format!("flows: {errors:?}")))?;
    let flows = Arc::new(flows);
    let index = config.routes.iter().position(|route| route.path == ROUTE);
    let index = index.ok_or_else(|| wrong(format!("no route {ROUTE}")))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build_local(Default::default())?;
    runtime.block_on(async {
        let caller: Rc<dyn Caller> = if alone { Rc::new(Silence) } else { Rc::new(WorkerClient::new()) };
        let worker = flows.worker(caller, Box::new(|_| ()), fanin_flow::Detail::Nothing);
        let mut suspended = Vec::with_capacity(count + WARM);
        let mut context = Context::from_waker(Waker::noop());
        let mut start = |count: usize| -> Result<(), Failure> {
            for _ in 0..count {
                let mut flow = worker.run(index, incoming());
                if Pin::new(&mut flow).poll(&mut context).is_ready() {
                    return Err(wrong("a flow ended that was to wait".into()));
                }
                suspended.push(flow);
            }
            Ok(())
        };
        start(WARM)?;
        // The connections are made; their buffers are not the flows'.
        tokio::time::sleep(Duration::from_millis(100)).await;
        let before = process::usage(std::process::id())?;
        start(count)?;
        let after = process::usage(std::process::id())?;
        Ok(after.rss.saturating_sub(before.rss) as f64 / count as f64)
    })
}

/// A request as it comes from the server.
fn incoming() -> IncomingRequest {
    let mut headers = HeaderMap::new();
    headers.insert(header::HOST, HeaderValue::from_static("127.0.0.1:8080"));
    headers.insert(header::ACCEPT, HeaderValue::from_static("*/*"));
    let start = Instant::now();
    IncomingRequest {
        known_id: None,
        number: 0,
        method: Method::GET,
        uri: Uri::from_static(ROUTE),
        params: Vec::new(),
        headers,
        body: Bytes::new(),
        upload: None,
        remote: ([127, 0, 0, 1], 5555).into(),
        identity: None,
        start,
        deadline: start + Duration::from_secs(600),
        trace: None,
        // As large as the server's.
        permit: Some(Box::new(0u64)),
        detail: fanin_flow::Detail::Nothing,
    }
}
