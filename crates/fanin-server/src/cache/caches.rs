//! All caches of the process, and what concerns several of them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use http::header::{CONTENT_LOCATION, LOCATION};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, Method, StatusCode, Uri};

use super::key::host;
use super::store::RouteCache;
use super::tags::{PURGE, Purges, split};
use crate::RouteSpec;

/// All caches of the process. They live as long as it does, so that a reload keeps those of routes that it does not change.
#[derive(Debug)]
pub(crate) struct Caches {
    purges: Arc<Purges>,
    /// With the route as it was.
    routes: Mutex<HashMap<String, (RouteSpec, Arc<RouteCache>)>>,
}

impl Caches {
    pub(crate) fn new() -> Caches {
        Caches { purges: Arc::new(Purges::new()), routes: Mutex::default() }
    }

    /// The caches of routes, in their order. Those of routes that are gone or have changed are dropped with their last request.
    pub(crate) fn apply(&self, routes: &[RouteSpec]) -> Vec<Option<Arc<RouteCache>>> {
        let mut known = self.routes.lock().unwrap_or_else(PoisonError::into_inner);
        let mut kept = HashMap::new();
        let caches = routes
            .iter()
            .map(|route| {
                let config = route.cache.as_ref()?;
                let same = known.remove(&route.label()).filter(|(before, _)| before == route);
                let (_, cache) = same
                    .unwrap_or_else(|| (route.clone(), Arc::new(RouteCache::new(route, config, self.purges.clone()))));
                kept.insert(route.label(), (route.clone(), cache.clone()));
                Some(cache)
            })
            .collect();
        *known = kept;
        caches
    }

    /// The cache of a route, for the metrics.
    pub(crate) fn of(&self, label: &str) -> Option<Arc<RouteCache>> {
        let known = self.routes.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(label).map(|(_, cache)| cache.clone())
    }

    fn all(&self) -> Vec<Arc<RouteCache>> {
        let known = self.routes.lock().unwrap_or_else(PoisonError::into_inner);
        known.values().map(|(_, cache)| cache.clone()).collect()
    }

    /// Purges everything with one of these tags. How many tags there were.
    pub(crate) fn purge_tags<'t>(&self, tags: impl Iterator<Item = &'t [u8]>) -> usize {
        self.purges.purge(tags)
    }

    /// Purges one target of all hosts. Looks at every entry, so it is not for workers.
    pub(crate) fn purge_target(&self, target: &PathAndQuery) {
        for cache in self.all() {
            cache.purge_target(target);
        }
    }

    /// Purges everything.
    pub(crate) fn clear(&self) {
        for cache in self.all() {
            cache.clear();
        }
    }

    /// Purges what a response asks for, unless it is an error, and removes the header that does.
    #[inline]
    pub(crate) fn obey(&self, status: StatusCode, headers: &mut HeaderMap) {
        if headers.contains_key(&PURGE) {
            if status.is_success() || status.is_redirection() {
                self.purges.purge(split(headers, &PURGE));
            }
            headers.remove(&PURGE);
        }
    }
}

/// What a request with an unsafe method may change: its target, as it was sent.
#[derive(Debug)]
pub(crate) struct Changed {
    host: Box<str>,
    target: PathAndQuery,
}

impl Changed {
    /// `None` for a method that changes nothing.
    pub(crate) fn by(method: &Method, uri: &Uri, headers: &HeaderMap) -> Option<Box<Changed>> {
        if method.is_safe() {
            return None;
        }
        Some(Box::new(Changed { host: host(uri, headers).into(), target: uri.path_and_query()?.clone() }))
    }

    /// The request has been answered: whether it has changed something, the status tells (RFC 9111, 4.4).
    pub(crate) fn apply(&self, caches: &[Option<Arc<RouteCache>>], status: StatusCode, headers: &HeaderMap) {
        if !(status.is_success() || status.is_redirection()) {
            return;
        }
        let named = [&LOCATION, &CONTENT_LOCATION].into_iter().filter_map(|name| self.named(headers, name));
        for target in std::iter::once(self.target.clone()).chain(named) {
            for cache in caches.iter().flatten() {
                cache.invalidate(&self.host, &target);
            }
        }
    }

    /// The target that a header names, if it is of the same host.
    fn named(&self, headers: &HeaderMap, name: &HeaderName) -> Option<PathAndQuery> {
        let text = headers.get(name)?.to_str().ok()?.split('#').next()?;
        if text.starts_with('/') && !text.starts_with("//") {
            return text.parse().ok();
        }
        if text.contains("//") {
            let uri: Uri = text.parse().ok()?;
            let same = uri.authority()?.as_str().eq_ignore_ascii_case(&self.host);
            return uri.path_and_query().filter(|_| same).cloned();
        }
        // Beside the target.
        let folder = &self.target.path()[..=self.target.path().rfind('/')?];
        format!("{folder}{text}").parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn targets_that_a_change_names() {
        let changed = Changed { host: "Shop:80".into(), target: "/a/b?c".parse().unwrap() };
        let named = |text: &str| {
            let headers = HeaderMap::from_iter([(LOCATION, HeaderValue::from_str(text).unwrap())]);
            changed.named(&headers, &LOCATION).map(|target| target.to_string())
        };
        for (text, target) in [
            ("/x?y#z", Some("/x?y")),
            ("x", Some("/a/x")),
            ("http://shop:80/x", Some("/x")),
            ("//shop:80/x", None),
            ("http://other/x", None),
            ("http://shop:80@other/x", None),
        ] {
            assert_eq!(named(text).as_deref(), target, "{text}");
        }
    }

    #[test]
    fn a_reload_keeps_the_caches_of_unchanged_routes() {
        let caches = Caches::new();
        let cached = |path: &str| RouteSpec {
            cache: Some(fanin_config::ResponseCache::default()),
            ..RouteSpec::new(Method::GET, path)
        };
        let first = caches.apply(&[cached("/a"), cached("/b"), RouteSpec::new(Method::GET, "/c")]);
        assert!(first[2].is_none());
        let changed = RouteSpec { etag: true, ..cached("/b") };
        let second = caches.apply(&[changed, cached("/a")]);
        let same = |a: &Option<Arc<RouteCache>>, b: &Option<Arc<RouteCache>>| {
            Arc::ptr_eq(a.as_ref().unwrap(), b.as_ref().unwrap())
        };
        assert!(same(&first[0], &second[1]) && !same(&first[1], &second[0]));
        assert!(caches.of("GET /a").is_some());
        caches.apply(&[]);
        assert!(caches.of("GET /a").is_none());
    }
}
