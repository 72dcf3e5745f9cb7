//! The guards of a configuration's routes.

use std::collections::HashMap;
use std::sync::Arc;

use fanin_config::{AuthKind, Config};
use prometheus_client::registry::Registry;

use crate::api_keys::ApiKeys;
use crate::guard::{Authority, Method, RouteGuard};
use crate::jwt::{IssuerKeys, Jwt};
use crate::metrics::Metrics;
use crate::passwords::Passwords;
use crate::rate::Limit;

/// The guards of a configuration's routes, with what they share. All workers share it.
#[derive(Default)]
pub struct Guards {
    routes: Vec<Option<Arc<RouteGuard>>>,
    others: Option<Arc<RouteGuard>>,
    authorities: HashMap<String, Arc<Authority>>,
    limits: HashMap<String, Arc<Limit>>,
    metrics: Metrics,
}

/// The keys of an issuer, and where they are.
#[derive(Clone, Debug)]
pub struct KeySource {
    /// The name of the section.
    pub auth: String,
    /// The name of the upstream.
    pub upstream: String,
    /// Path at the upstream.
    pub path: String,
    /// The keys.
    pub keys: Arc<IssuerKeys>,
}

impl Guards {
    /// Reads the files of `[auth]`. What did not change is taken over from `before`: budgets of limits, keys of issuers.
    ///
    /// # Errors
    /// All that is wrong with the files.
    pub fn load(config: &Config, before: Option<&Guards>) -> Result<Guards, Vec<String>> {
        let metrics = before.map(|before| before.metrics.clone()).unwrap_or_default();
        let mut wrong = Vec::new();
        let mut authorities = HashMap::new();
        for (name, auth) in &config.auth {
            let old = before.and_then(|before| before.authorities.get(name));
            let old_jwt = old.and_then(|old| if let Method::Jwt(jwt) = &old.method { Some(jwt) } else { None });
            let method = match (auth.kind, &auth.file) {
                (AuthKind::Jwt, _) => Jwt::load(auth, old_jwt, || metrics.fetches(name)).map(Method::Jwt),
                (AuthKind::ApiKeys, Some(file)) => ApiKeys::load(file).map(Method::Keys),
                (AuthKind::Basic, Some(file)) => Passwords::load(file, auth.max_cached).map(Method::Basic),
                // The reader demands a file.
                (AuthKind::ApiKeys | AuthKind::Basic, None) => Ok(Method::Keys(ApiKeys::default())),
            };
            match method {
                Ok(method) => {
                    let authority = Authority { name: name.clone(), auth: auth.clone(), method };
                    authorities.insert(name.clone(), Arc::new(authority));
                }
                Err(why) => wrong.push(format!("auth.{name}: {why}")),
            }
        }
        if !wrong.is_empty() {
            return Err(wrong);
        }
        let limits: HashMap<String, Arc<Limit>> = config
            .rate_limits
            .iter()
            .map(|(name, config)| {
                let old = before.and_then(|before| before.limits.get(name)).filter(|old| old.config == *config);
                (name.clone(), old.cloned().unwrap_or_else(|| Arc::new(Limit::new(name, config, metrics.limit(name)))))
            })
            .collect();
        let (authority, limit) = (|name: &str| authorities.get(name).cloned(), |name: &str| limits.get(name).cloned());
        let routes = config
            .routes
            .iter()
            .map(|route| RouteGuard::new(&config.server, route, authority, limit, &metrics))
            .collect();
        let others = RouteGuard::of_others(&config.server, &metrics);
        Ok(Guards { routes, others, authorities, limits, metrics })
    }

    /// The guard of a route, by its index in the configuration; beyond, of a route that the configuration does not have.
    #[inline]
    pub fn get(&self, route: usize) -> Option<&Arc<RouteGuard>> {
        self.routes.get(route).unwrap_or(&self.others).as_ref()
    }

    /// The keys that somebody must fetch.
    pub fn key_sources(&self) -> impl Iterator<Item = KeySource> {
        self.authorities.values().filter_map(|authority| {
            let Method::Jwt(jwt) = &authority.method else { return None };
            let (upstream, path) = jwt.jwks()?;
            let (upstream, path) = (upstream.to_owned(), path.to_owned());
            Some(KeySource { auth: authority.name.clone(), upstream, path, keys: jwt.issuer_keys()?.clone() })
        })
    }

    /// Adds the metrics, if any route has a guard.
    pub fn register(&self, registry: &mut Registry) {
        if self.routes.iter().chain([&self.others]).all(Option::is_none) {
            return;
        }
        self.metrics.register(registry);
    }
}
