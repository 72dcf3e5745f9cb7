//! A generation on one worker.

use std::rc::Rc;
use std::sync::Arc;

use super::route::Route;
use crate::admission::RouteLimiters;
use crate::generation::Generation;
use crate::json_text::escape;
use crate::metrics::{Label, Metrics, RouteStats};
use crate::web::Web;
use crate::{Application, WorkerContext, router};

/// What a worker uses to serve requests until the next reload. Running requests keep theirs.
pub(crate) struct WorkerGeneration<A: Application> {
    /// What all workers share of it.
    pub(crate) shared: Arc<Generation<A>>,
    pub(crate) app: A::Worker,
    pub(crate) routes: Vec<Rc<Route>>,
    /// Requests that match no route.
    pub(crate) unmatched: Arc<RouteStats>,
}

impl<A: Application> WorkerGeneration<A> {
    pub(crate) fn new(shared: Arc<Generation<A>>, metrics: &Metrics, context: WorkerContext) -> WorkerGeneration<A> {
        let worker = context.index;
        let app = shared.app.worker(context);
        let routes = shared.routes.iter().zip(&shared.limiters).zip(&shared.caches).enumerate();
        let routes = routes
            .map(|(index, ((spec, limiter), cache))| {
                let names = router::names(&spec.path);
                let label = Label { method: spec.methods_text(), path: spec.place() };
                let limiters = RouteLimiters { route: limiter.clone(), server: shared.server_limiter.clone() };
                Rc::new(Route {
                    index,
                    label: json_string(&spec.label()),
                    names: (!names.is_empty()).then(|| names.into()),
                    timeout: spec.timeout,
                    max_body: spec.max_body,
                    stream_body: spec.stream_body,
                    grpc: spec.grpc,
                    guarded: spec.guarded,
                    priority: spec.priority,
                    web: Web::new(spec),
                    request_headers: spec.request_headers.clone(),
                    cache: cache.clone(),
                    limiters: Rc::new(limiters),
                    stats: metrics.route(worker, label, Some(limiter), spec.objective),
                })
            })
            .collect();
        let unmatched = metrics.route(worker, Label { method: String::new(), path: String::new() }, None, None);
        WorkerGeneration { shared, app, routes, unmatched }
    }

    pub(crate) fn server(&self) -> &fanin_config::Server {
        self.shared.app.server()
    }
}

fn json_string(text: &str) -> Box<str> {
    let mut json = vec![b'"'];
    escape(text, &mut json);
    json.push(b'"');
    // Escaping puts ASCII in front of or in place of ASCII.
    String::from_utf8(json).unwrap_or_default().into()
}
