//! gRPC against a server of Python's grpcio.

mod messages;
mod servers;

use std::rc::Rc;
use std::sync::{LazyLock, Mutex};
use std::time::Duration;

use crate::common::{Version, run, serve};
use fanin_testbed::Server;
use fanin_upstream::{Answer, CallContext, CallError, ErrorKind, Fault, Request, Upstreams, WorkerClient};
use http::{HeaderMap, HeaderValue, Method};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

/// One server for all tests that do not stop it. It ends with the process.
static SERVER: LazyLock<Mutex<Server>> = LazyLock::new(|| Mutex::new(Server::grpc()));

fn server() -> String {
    SERVER.lock().unwrap().url.clone()
}

struct Probe {
    upstreams: Upstreams,
    worker: Rc<WorkerClient>,
}

fn parse(url: &str, more: &str) -> Vec<fanin_config::Upstream> {
    let text = format!("[upstreams.probe]\ngrpc = {url:?}\n{more}");
    let config = fanin_config::Config::parse(&text, "fanin.toml", &Server::protos(), &|_| None);
    config.unwrap_or_else(|error| panic!("{error}")).upstreams.into_values().collect()
}

impl Probe {
    /// With descriptors of the `.proto` file and further keys.
    fn new(more: &str) -> Probe {
        Probe::at(&server(), &format!("timeout = '60s'\nproto = 'probe.proto'\n{more}"))
    }

    fn at(url: &str, more: &str) -> Probe {
        Probe { upstreams: Upstreams::new(&parse(url, more)).unwrap(), worker: WorkerClient::new() }
    }

    async fn send(&self, method: &str, body: Value, context: CallContext) -> Result<Answer, CallError> {
        self.with(method, body, HeaderMap::new(), context).await
    }

    async fn with(
        &self,
        method: &str,
        body: Value,
        headers: HeaderMap,
        context: CallContext,
    ) -> Result<Answer, CallError> {
        let path = if method.contains('.') { format!("/{method}") } else { format!("/fanin.probe.Probe/{method}") };
        let request = Request { method: Method::POST, path_and_query: path, headers, body: body.to_string().into() };
        self.upstreams.get("probe").unwrap().call(&self.worker, request, context).await
    }

    /// A call that changes nothing.
    async fn ask(&self, method: &str, body: Value) -> Result<Answer, CallError> {
        self.send(method, body, within(60).safe()).await
    }

    /// Its successful answer.
    async fn get(&self, method: &str, body: Value) -> Value {
        let answer = self.ask(method, body).await.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(answer.status, 200, "{:?}", answer.body);
        value(&answer)
    }

    async fn refused(&self, method: &str, body: Value) -> CallError {
        match self.ask(method, body).await {
            Err(error) => error,
            Ok(answer) => panic!("answered {} {:?}", answer.status, answer.body),
        }
    }
}

fn within(seconds: u64) -> CallContext {
    CallContext::new(Instant::now() + Duration::from_secs(seconds))
}

fn value(answer: &Answer) -> Value {
    serde_json::from_slice(&answer.body).unwrap()
}
