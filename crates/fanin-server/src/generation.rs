//! A generation: one application and what the server derives from it.

use std::sync::Arc;

use fanin_tls::{ExpiryMetrics, Listener};
use prometheus_client::registry::Registry;

use crate::admission::{Limiter, Limiters};
use crate::cache::{Caches, RouteCache};
use crate::router::Router;
use crate::{Application, LoadError, RouteSpec};

/// Made as a whole, then given to all workers.
#[derive(Debug)]
pub(crate) struct Generation<A> {
    pub(crate) app: Arc<A>,
    /// Counts loads from 1.
    pub(crate) number: u64,
    pub(crate) routes: Vec<RouteSpec>,
    pub(crate) router: Router,
    pub(crate) limiters: Vec<Arc<Limiter>>,
    pub(crate) server_limiter: Arc<Limiter>,
    /// Those of routes that have one.
    pub(crate) caches: Vec<Option<Arc<RouteCache>>>,
    /// Set if any route has one.
    pub(crate) all_caches: Option<Arc<Caches>>,
    pub(crate) tls: Option<Arc<Listener>>,
    pub(crate) registry: Registry,
}

impl<A: Application> Generation<A> {
    /// `before`: the generation that this one replaces. On an error nothing in the process has changed. On success the new limits apply.
    pub(crate) fn new(
        app: Arc<A>,
        before: Option<&Generation<A>>,
        limiters: &Limiters,
        caches: &Arc<Caches>,
    ) -> Result<Generation<A>, LoadError> {
        let routes = app.routes();
        let router = Router::new(&routes, app.server().escaped_slashes)?;
        let old = before.and_then(|before| before.tls.as_deref());
        let tls = app.server().tls.as_ref().map(|tls| Listener::load(tls, old)).transpose();
        let tls = tls.map_err(|error| LoadError::new(format!("server.tls.{error}")))?.map(Arc::new);
        let mut registry = Registry::default();
        app.register_metrics(&mut registry);
        let expiries = tls.as_ref().map_or_else(Vec::new, |tls| tls.expiries().to_vec());
        let name = "fanin_tls_expiry_timestamp_seconds";
        registry.register_collector(Box::new(ExpiryMetrics { name, expiries }));
        let route_limiters = limiters.apply(app.server(), &routes);
        let route_caches = caches.apply(&routes);
        let all_caches = route_caches.iter().any(Option::is_some).then(|| caches.clone());
        Ok(Generation {
            app,
            number: before.map_or(1, |before| before.number + 1),
            routes,
            router,
            limiters: route_limiters,
            server_limiter: limiters.server.clone(),
            caches: route_caches,
            all_caches,
            tls,
            registry,
        })
    }
}
