//! Requests that have ended, as records for the export of spans.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use fanin_config::{Config, Upstream, UpstreamKind};
use fanin_flow::FlowRecord;
use fanin_otlp::{AttemptRecord, CallRecord, Kind, RequestRecord, UpstreamRecord};
use fanin_server::RequestEnd;
use fanin_trace::{Attempt, CallTrace, Sharing};

/// What records of requests name: routes and upstreams.
pub(super) struct Names {
    upstreams: HashMap<String, Arc<UpstreamRecord>>,
    /// Path and gRPC method of each route.
    routes: Vec<(Arc<str>, Option<Arc<str>>)>,
}

impl Names {
    pub(super) fn of(config: &Config) -> Names {
        let routes = config.routes.iter();
        Names {
            upstreams: config.upstreams.values().map(|one| (one.name.clone(), Arc::new(upstream(one)))).collect(),
            routes: routes.map(|route| (route.path.as_str().into(), route.grpc.as_deref().map(Arc::from))).collect(),
        }
    }

    /// The record of a request.
    pub(super) fn record(&self, end: &RequestEnd<'_>) -> RequestRecord {
        let calls = end.trace.take_record().and_then(|calls| calls.downcast::<Calls>().ok());
        let (route, rpc) = end.route.and_then(|route| self.routes.get(route)).cloned().unzip();
        RequestRecord {
            context: end.trace.clone(),
            started: SystemTime::now() - end.duration,
            duration: end.duration,
            method: end.method.clone(),
            path: end.path.to_owned(),
            secure: end.secure,
            route,
            rpc: rpc.flatten(),
            status: end.status,
            client: end.remote,
            version: end.version,
            calls: calls.map(|calls| self.calls(&calls.0)).unwrap_or_default(),
        }
    }

    /// The calls of which something is known besides that they were not sent.
    fn calls(&self, record: &FlowRecord) -> Vec<CallRecord> {
        let calls = record.calls();
        let each = |(call, number): (&CallTrace, u32)| {
            Some(CallRecord {
                number,
                upstream: self.upstreams.get(&*call.upstream)?.clone(),
                operation: call.operation.clone(),
                target: call.target.clone(),
                line: call.line.clone(),
                sent: call.sent?,
                ended: call.ended,
                outcome: call.outcome.clone(),
                shared: shared(call.sharing),
                done_by: first_of_batch(&calls, call, number),
                made_by: record.made_by(number as usize),
                attempts: call.attempts.iter().map(attempt).collect(),
            })
        };
        calls.iter().zip(0..).filter_map(each).collect()
    }
}

/// The calls of a flow, until its request has ended.
pub(super) struct Calls(pub(super) Arc<FlowRecord>);

fn shared(sharing: Sharing) -> Option<&'static str> {
    match sharing {
        Sharing::Alone => None,
        Sharing::Cache => Some("cache"),
        Sharing::Snapshot => Some("snapshot"),
        Sharing::SingleFlight => Some("single_flight"),
        Sharing::Batch { .. } => Some("batch"),
        Sharing::SharedBatch => Some("shared_batch"),
    }
}

fn attempt(attempt: &Attempt) -> AttemptRecord {
    AttemptRecord {
        kind: attempt.kind.clone(),
        number: attempt.number,
        begun: attempt.begun,
        ended: attempt.ended,
        endpoint: Some(attempt.endpoint.clone()),
        outcome: attempt.outcome.clone(),
    }
}

/// The call whose span stands for the request of a batch: its first. The others link to it.
fn first_of_batch(calls: &[CallTrace], call: &CallTrace, number: u32) -> Option<u32> {
    let Sharing::Batch { batch, .. } = call.sharing else { return None };
    let is_same = |other: &CallTrace| matches!(other.sharing, Sharing::Batch { batch: of, .. } if of == batch);
    let first = calls.iter().position(is_same)? as u32;
    (first != number).then_some(first)
}

fn upstream(upstream: &Upstream) -> UpstreamRecord {
    let url = upstream.endpoints().first();
    let namespace = || url.map(|url| url.path().trim_start_matches('/').to_owned()).filter(|name| !name.is_empty());
    let (kind, namespace) = match upstream.kind() {
        UpstreamKind::Http => (Kind::Http, None),
        UpstreamKind::Grpc => (Kind::Grpc, None),
        UpstreamKind::Postgres => (Kind::Database("postgresql"), namespace()),
        UpstreamKind::Mysql => (Kind::Database("mysql"), namespace()),
        UpstreamKind::Files | UpstreamKind::Model => (Kind::Local, None),
    };
    UpstreamRecord {
        name: upstream.name.clone(),
        kind,
        scheme: url.map_or("http", |url| url.scheme()).to_owned(),
        host: url.and_then(|url| url.host_str()).unwrap_or_default().to_owned(),
        port: url.and_then(|url| url.port_or_known_default()),
        namespace,
    }
}
