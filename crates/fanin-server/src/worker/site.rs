//! An application on one worker.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::access_log::escape;
use crate::admission::Gate;
use crate::generation::Generation;
use crate::metrics::{Label, Metrics, RouteStats};
use crate::{Application, Priority, WorkerContext, router};

/// What a worker uses to serve requests until the next reload. Requests that run keep theirs.
pub(crate) struct Site<A: Application> {
    pub(crate) generation: Arc<Generation<A>>,
    pub(crate) app: A::Worker,
    pub(crate) routes: Vec<Rc<Route>>,
    /// Requests that match no route.
    pub(crate) unmatched: Arc<RouteStats>,
}

/// A route with everything resolved that a request needs.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) index: usize,
    /// The label, as JSON.
    pub(crate) label: Box<str>,
    pub(crate) names: Option<Rc<[Box<str>]>>,
    pub(crate) timeout: Duration,
    pub(crate) max_body: usize,
    pub(crate) priority: Priority,
    pub(crate) gate: Arc<Gate>,
    pub(crate) server_gate: Arc<Gate>,
    pub(crate) stats: Arc<RouteStats>,
}

impl<A: Application> Site<A> {
    pub(crate) fn new(generation: Arc<Generation<A>>, metrics: &Metrics, context: WorkerContext) -> Site<A> {
        let worker = context.index;
        let app = generation.app.worker(context);
        let routes = generation.routes.iter().zip(&generation.gates).enumerate();
        let routes = routes
            .map(|(index, (spec, gate))| {
                let names = router::names(&spec.path);
                let label = Label { method: spec.method.to_string(), path: spec.path.clone() };
                Rc::new(Route {
                    index,
                    label: json_string(&spec.label()),
                    names: (!names.is_empty()).then(|| names.into()),
                    timeout: spec.timeout,
                    max_body: spec.max_body,
                    priority: spec.priority,
                    gate: gate.clone(),
                    server_gate: generation.server_gate.clone(),
                    stats: metrics.route(worker, label, Some(gate)),
                })
            })
            .collect();
        let unmatched = metrics.route(worker, Label { method: String::new(), path: String::new() }, None);
        Site { generation, app, routes, unmatched }
    }

    pub(crate) fn server(&self) -> &fanin_config::Server {
        self.generation.app.server()
    }
}

fn json_string(text: &str) -> Box<str> {
    let mut json = vec![b'"'];
    escape(text, &mut json);
    json.push(b'"');
    // Escaping puts ASCII in front of or in place of ASCII.
    String::from_utf8(json).unwrap_or_default().into()
}
