//! One application with all that the server derives from it.

use std::sync::Arc;

use prometheus_client::registry::Registry;
use rustls::ServerConfig;

use crate::admission::{Gate, Gates};
use crate::router::Router;
use crate::{Application, LoadError, RouteSpec, tls};

/// Made aside as a whole, then given to all workers.
#[derive(Debug)]
pub(crate) struct Generation<A> {
    pub(crate) app: Arc<A>,
    /// Counts loads from 1.
    pub(crate) number: u64,
    pub(crate) routes: Vec<RouteSpec>,
    pub(crate) router: Router,
    pub(crate) gates: Vec<Arc<Gate>>,
    pub(crate) server_gate: Arc<Gate>,
    pub(crate) tls: Option<Arc<ServerConfig>>,
    pub(crate) registry: Registry,
}

impl<A: Application> Generation<A> {
    /// Nothing of the process changes unless this succeeds; then the limits are the new ones.
    pub(crate) fn new(app: Arc<A>, number: u64, gates: &Gates) -> Result<Generation<A>, LoadError> {
        let routes = app.routes();
        let router = Router::new(&routes)?;
        let tls = app.server().tls.as_ref().map(tls::load).transpose()?;
        let mut registry = Registry::default();
        app.register_metrics(&mut registry);
        let route_gates = gates.apply(app.server(), &routes);
        Ok(Generation {
            app,
            number,
            routes,
            router,
            gates: route_gates,
            server_gate: gates.server.clone(),
            tls,
            registry,
        })
    }
}
