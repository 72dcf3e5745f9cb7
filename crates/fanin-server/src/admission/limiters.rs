//! All limiters of the process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::limiter::Limiter;
use crate::RouteSpec;

/// The limiters of the process. They live as long as it does, so that limits hold across reloads.
#[derive(Debug)]
pub(crate) struct Limiters {
    pub(crate) server: Arc<Limiter>,
    /// By the route's label.
    routes: Mutex<HashMap<String, Arc<Limiter>>>,
}

impl Limiters {
    pub(crate) fn new() -> Limiters {
        Limiters { server: Arc::new(Limiter::new(0, 0)), routes: Mutex::default() }
    }

    /// Sets all bounds and returns the limiters of `routes`, in their order. The limiter of a removed route is dropped when its last
    /// request has ended.
    pub(crate) fn apply(&self, server: &fanin_config::Server, routes: &[RouteSpec]) -> Vec<Arc<Limiter>> {
        self.server.set(server.limit, server.max_waiting);
        let mut known = self.routes.lock().unwrap_or_else(PoisonError::into_inner);
        let limiters = routes
            .iter()
            .map(|route| {
                let limiter = known.entry(route.label()).or_insert_with(|| Arc::new(Limiter::new(0, 0)));
                limiter.set(route.limit, route.max_waiting);
                limiter.clone()
            })
            .collect();
        known.retain(|_, limiter| Arc::strong_count(limiter) > 1);
        limiters
    }
}
