//! A generation: one application and what the server derives from it.

use std::sync::Arc;

use prometheus_client::registry::Registry;
use rustls::ServerConfig;

use crate::admission::{Limiter, Limiters};
use crate::router::Router;
use crate::{Application, LoadError, RouteSpec, tls};

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
    pub(crate) tls: Option<Arc<ServerConfig>>,
    pub(crate) registry: Registry,
}

impl<A: Application> Generation<A> {
    /// On an error nothing in the process has changed. On success the new limits apply.
    pub(crate) fn new(app: Arc<A>, number: u64, limiters: &Limiters) -> Result<Generation<A>, LoadError> {
        let routes = app.routes();
        let router = Router::new(&routes, app.server().escaped_slashes)?;
        let tls = app.server().tls.as_ref().map(tls::load).transpose()?;
        let mut registry = Registry::default();
        app.register_metrics(&mut registry);
        let route_limiters = limiters.apply(app.server(), &routes);
        Ok(Generation {
            app,
            number,
            routes,
            router,
            limiters: route_limiters,
            server_limiter: limiters.server.clone(),
            tls,
            registry,
        })
    }
}
