//! A loaded configuration as the server's application.
//!
//! - `load`: makes it from a folder. `proxy`: routes without a flow. `guard`: who may use a route. `worker`: one worker's part. `convert`: requests for flows, replies for
//!   the server. `spans`: requests that have ended, for their traces. `models`: the models of this process. `rpc`: routes that serve methods. `websocket`: events over
//!   WebSocket.

mod convert;
mod guard;
mod load;
mod models;
mod proxy;
mod request_record;
mod rpc;
mod spans;
mod websocket;
mod worker;

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, Mutex, Once, PoisonError};

use arcstr::ArcStr;
use fanin_auth::Guards;
use fanin_broker::{Broker, Target};
use fanin_config::{Config, Diagnostic, Tracing};
use fanin_flow::Flows;
use fanin_heap::Names;
use fanin_otlp::Export;
use fanin_push::Channels;
use fanin_server::{Application, DebugPage, DebugWork, Incident, PageLink, RouteSpec, WorkerContext};
use fanin_static::Static;
use fanin_tls::{ExpiryMetrics, Listener};
use fanin_tracecontext::Annotations;
use fanin_upstream::{Upstreams, WorkerClient};
use http::Method;
use prometheus_client::registry::Registry;

pub use load::{AppLoader, DryRun, Origin};
pub use worker::AppWorker;

use crate::logging;
use crate::recorder::{self, Kind, Recorder};
use crate::recording::{self, Recordings};

/// A configuration with its flows compiled and its upstreams set up. All workers share it.
pub struct App {
    config: Config,
    /// The configuration as `/config` shows it.
    masked: String,
    flows: Arc<Flows>,
    upstreams: Arc<Upstreams>,
    guards: Arc<Guards>,
    /// The guards of the generation before, until the first worker starts with this one.
    guards_before: Mutex<Option<Arc<Guards>>>,
    models: Option<Arc<models::ModelService>>,
    /// TLS of the models' listeners.
    models_tls: Option<Arc<Listener>>,
    /// Kept by reloads.
    channels: Arc<Channels>,
    /// Kept by reloads.
    broker: Arc<Broker>,
    /// The broker of this generation.
    target: Option<Target>,
    /// Done when the first worker starts with this generation.
    begin: Once,
    /// Done when a worker fetches the keys of issuers.
    fetch: Once,
    /// The upstreams of the generation before, until the first worker starts with this one.
    before: Mutex<Option<Arc<Upstreams>>>,
    /// What the files of flows have in them, in short.
    version: u64,
    /// The upstream of each route that passes its requests on.
    proxied: Vec<Option<proxy::Proxied>>,
    /// Names of each route's path parameters, in the pattern's order.
    params: Vec<Arc<[ArcStr]>>,
    /// What answers the routes that have no flow.
    statics: Vec<Option<Static>>,
    /// The methods of the routes that serve one, and the standard services of gRPC.
    methods: rpc::Methods,
    /// Kept by reloads.
    health: Arc<rpc::Health>,
    /// Kept by reloads.
    recorder: Arc<Recorder>,
    /// Kept by reloads.
    recordings: Arc<Recordings>,
    /// The name of each route.
    labels: Vec<Arc<str>>,
    /// Kept by reloads.
    export: Arc<Export>,
    /// Where spans of this generation are sent.
    spans: Option<fanin_otlp::Target>,
    names: spans::Names,
    /// Warnings about configuration and flows.
    warnings: Vec<Diagnostic>,
}

impl App {
    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The warnings.
    pub fn warnings(&self) -> &[Diagnostic] {
        &self.warnings
    }

    /// The link to other instances, for the end of the process.
    pub fn broker(&self) -> Arc<Broker> {
        self.broker.clone()
    }

    /// The last requests.
    pub fn recorder(&self) -> &Arc<Recorder> {
        &self.recorder
    }

    /// The export of spans, for the end of the process.
    pub fn export(&self) -> Arc<Export> {
        self.export.clone()
    }

    /// The first worker of this generation fetches the keys of issuers.
    fn fetch_keys(&self, client: &Rc<WorkerClient>) {
        self.fetch.call_once(|| {
            // The lock is held for a `take` only, which can't panic.
            let before = self.guards_before.lock().unwrap_or_else(PoisonError::into_inner).take();
            guard::fetch_keys(&self.guards, before.as_deref(), &self.upstreams, client);
        });
    }

    /// The flows.
    pub fn flows(&self) -> &Flows {
        &self.flows
    }
}

impl Application for App {
    type Worker = AppWorker;

    fn server(&self) -> &fanin_config::Server {
        &self.config.server
    }

    fn tracing(&self) -> Option<&Tracing> {
        self.config.tracing.as_ref()
    }

    fn records_traces(&self) -> bool {
        self.spans.is_some()
    }

    fn files(&self) -> Vec<PathBuf> {
        load::files_of(&self.config)
    }

    fn routes(&self) -> Vec<RouteSpec> {
        let mut routes = self.methods.routes(&self.config);
        for (at, route) in routes.iter_mut().enumerate() {
            route.guarded = self.guards.get(at).is_some();
            route.version = self.version;
            if let Some(proxied) = self.proxied.get(at).and_then(Option::as_ref) {
                route.stream_body = proxied.streams_bodies();
            }
        }
        routes
    }

    fn worker(self: &Arc<Self>, context: WorkerContext) -> AppWorker {
        self.begin.call_once(|| {
            self.broker.configure(self.target.as_ref());
            self.export.configure(self.spans.as_ref());
        });
        // The first worker that starts with this generation retires removed upstreams.
        // The lock is held for a `take` only, which can't panic.
        let before = self.before.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(before) = before {
            before.switch_to(&self.upstreams);
            self.channels.configure(self.config.push.clone());
            self.health.serves(&self.methods.services);
            self.recorder.configure(&self.config);
            if let (Some(side), Some(config)) = (&self.models, &self.config.models) {
                side.models().configure(config);
            }
        }
        if let Some(side) = &self.models {
            side.service().set_tls(self.models_tls.clone());
            side.serve_here(&context.memory);
        }
        AppWorker::new(self.clone(), context)
    }

    fn register_metrics(&self, registry: &mut Registry) {
        self.upstreams.register(registry);
        self.flows.register(registry);
        self.guards.register(registry);
        self.channels.register(registry);
        self.broker.register(registry);
        if self.spans.is_some() {
            self.export.register(registry);
        }
        self.recorder.register(registry);
        self.recordings.register(registry);
        logging::register(registry);
        if let Some(side) = &self.models {
            side.models().register(registry, Some(side.service()));
            let expiries = self.models_tls.as_ref().map_or_else(Vec::new, |tls| tls.expiries().to_vec());
            let name = "fanin_models_tls_expiry_timestamp_seconds";
            registry.register_collector(Box::new(ExpiryMetrics { name, expiries }));
        }
    }

    fn exemplars(&self, to: &mut Annotations) {
        self.upstreams.exemplars(to);
    }

    fn config(&self) -> String {
        self.masked.clone()
    }

    fn plans(&self) -> Option<DebugWork> {
        let flows = self.flows.clone();
        Some(Box::new(move || DebugPage {
            kind: "application/json",
            body: serde_json::json!(flows.plans()).to_string().into_bytes(),
        }))
    }

    fn debug_page(&self, method: &Method, path: &str, query: Option<&str>) -> Option<DebugWork> {
        if path.starts_with("/requests/recording") {
            let (upstreams, rules) = (&self.upstreams, &self.config.recorder);
            return recording::page(&self.recordings, upstreams, rules, method, path, query);
        }
        if path.starts_with("/requests") {
            return recorder::page(&self.recorder, method, path, query);
        }
        fanin_heap::every()?;
        let as_text = || DebugPage { kind: "text/plain; charset=utf-8", body: fanin_heap::text().into_bytes() };
        let as_pprof = |names| move || DebugPage { kind: "application/octet-stream", body: fanin_heap::pprof(names) };
        match (path, query) {
            ("/debug/heap", Some("format=text")) => Some(Box::new(as_text)),
            ("/debug/heap", Some("names=no")) => Some(Box::new(as_pprof(Names::Left))),
            ("/debug/heap", _) => Some(Box::new(as_pprof(Names::Found))),
            _ => None,
        }
    }

    fn debug_pages(&self) -> Vec<PageLink> {
        let heap =
            PageLink { href: "/debug/heap", description: "the heap profile for pprof: live memory by allocation site" };
        let text = PageLink { href: "/debug/heap?format=text", description: "the heap profile as text" };
        let mut pages = recorder::links();
        if fanin_heap::every().is_some() {
            pages.extend([heap, text]);
        }
        pages
    }

    fn incident(&self, incident: &Incident) {
        match incident {
            Incident::Stall { worker, since, activity } => {
                let by = self.describe(*activity);
                let text = format!("worker {worker} was stalled for {} ms so far, by {by}", since.as_millis());
                self.recorder.dump(Kind::Stall, text);
            }
            Incident::Objective { route, objective, burn_rate, bad, counted } => {
                let objective = objective.to_string();
                let text = format!(
                    "{route} misses its objective of {objective}: {bad} of {counted} requests of the last minute were bad, a burn rate of {burn_rate:.1}"
                );
                self.recorder.dump(Kind::Objective, text);
            }
        }
    }

    fn describe(&self, activity: u64) -> String {
        // `AppWorker` sets the route's index plus one.
        match usize::try_from(activity).ok().and_then(|activity| activity.checked_sub(1)) {
            Some(route) => self.flows.describe(route).to_owned(),
            None => "nothing in particular".to_owned(),
        }
    }
}

/// Names of a path pattern's parameters.
fn param_names(pattern: &str) -> Arc<[ArcStr]> {
    pattern
        .split('/')
        .filter_map(|segment| segment.strip_prefix('{')?.strip_suffix('}'))
        .map(|name| ArcStr::from(name.trim_start_matches('*')))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameter_names_are_in_the_order_of_the_pattern() {
        let names = |pattern: &str| param_names(pattern).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(names("/"), Vec::<String>::new());
        assert_eq!(names("/a/{b}/c/{*d}"), ["b", "d"]);
    }
}
