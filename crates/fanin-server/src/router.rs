//! The router: from method and path to a route.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use fanin_config::{HostPattern, RequestSlashes};
use http::{HeaderValue, Method};
use smallvec::SmallVec;

use crate::path::{self, PathError};
use crate::{LoadError, RouteSpec};

/// All routes. Patterns are shared by methods; the names of parameters are each route's own.
///
/// A request is for the routes of its host, then for those of the domains that the host is in, the nearest first, then for those without a
/// host. The first of these that has its path and method counts.
#[derive(Debug)]
pub(crate) struct Router {
    /// Routes without a host.
    anywhere: Paths,
    /// Whether there are any.
    serves_every_host: bool,
    exact: HashMap<String, Paths>,
    /// By domain, with a dot in front. Longer ones, which are nearer to a host, come first.
    below: Vec<(String, Paths)>,
    slashes: RequestSlashes,
}

/// The routes of one host.
type Paths = matchit::Router<Methods>;

/// The routes of one path.
#[derive(Debug)]
struct Methods {
    routes: Vec<(Method, usize)>,
    /// For `Allow`: the methods, HEAD with GET, and OPTIONS.
    allow: HeaderValue,
}

/// The result for a method and a path.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Found {
    Route {
        route: usize,
        values: SmallVec<[Box<str>; 2]>,
    },
    NoPath,
    /// No route is for this host, whatever the path.
    NoHost,
    NoMethod {
        allow: HeaderValue,
    },
    /// OPTIONS on a known path without a route for it.
    Options {
        allow: HeaderValue,
    },
    Bad(PathError),
}

impl Router {
    pub(crate) fn new(routes: &[RouteSpec], slashes: RequestSlashes) -> Result<Router, LoadError> {
        let mut errors = Vec::new();
        let mut by_host = BTreeMap::<Option<&HostPattern>, Vec<usize>>::new();
        for (at, route) in routes.iter().enumerate() {
            if route.hosts.is_empty() {
                by_host.entry(None).or_default().push(at);
            }
            for host in &route.hosts {
                by_host.entry(Some(host)).or_default().push(at);
            }
        }
        // Without any route, every path is unknown.
        let serves_every_host = by_host.contains_key(&None) || by_host.is_empty();
        let (mut anywhere, mut exact, mut below) = (Paths::new(), HashMap::new(), Vec::new());
        for (host, of_host) in by_host {
            let paths = paths(routes, &of_host, &mut errors);
            match host {
                None => anywhere = paths,
                Some(HostPattern::Exact(name)) => drop(exact.insert(name.clone(), paths)),
                Some(HostPattern::Below(domain)) => below.push((domain.clone(), paths)),
            }
        }
        below.sort_by_key(|(domain, _)| std::cmp::Reverse(domain.len()));
        if errors.is_empty() {
            Ok(Router { anywhere, serves_every_host, exact, below, slashes })
        } else {
            Err(LoadError::from(errors))
        }
    }

    /// Whether the host of a request matters.
    #[inline]
    pub(crate) fn has_hosts(&self) -> bool {
        !self.exact.is_empty() || !self.below.is_empty()
    }

    /// The path as flows see it, if it differs from that of the request.
    #[inline]
    pub(crate) fn rewritten(&self, path: &str) -> Option<String> {
        match self.slashes {
            RequestSlashes::Refuse | RequestSlashes::Keep => None,
            RequestSlashes::Decode => path::with_plain_slashes(path),
        }
    }

    /// The route of a request. `host` is in lower case and has no port; it is asked for only if it matters.
    pub(crate) fn find<'h>(&self, method: &Method, host: impl FnOnce() -> Option<Cow<'h, str>>, path: &str) -> Found {
        let rewritten = self.rewritten(path);
        let path = rewritten.as_deref().unwrap_or(path);
        if let Err(error) = path::check(path, self.slashes) {
            return Found::Bad(error);
        }
        if self.has_hosts() {
            self.find_by_host(method, host().as_deref(), path)
        } else {
            find(&self.anywhere, method, path)
        }
    }

    #[cold]
    fn find_by_host(&self, method: &Method, host: Option<&str>, path: &str) -> Found {
        let exact = host.and_then(|host| self.exact.get(host));
        let is_below = |domain: &str| host.is_some_and(|host| host.len() > domain.len() && host.ends_with(domain));
        let below = self.below.iter().filter(|(domain, _)| is_below(domain)).map(|(_, paths)| paths);
        // Routes without a host are for every host.
        let mut misses = None;
        let anywhere = std::iter::once(&self.anywhere).filter(|_| self.serves_every_host);
        for paths in exact.into_iter().chain(below).chain(anywhere) {
            let found = find(paths, method, path);
            let (Found::NoPath | Found::NoMethod { .. } | Found::Options { .. }) = found else { return found };
            misses = Some(misses.map_or_else(|| found.clone(), |before: Found| before.and(&found)));
        }
        misses.unwrap_or(Found::NoHost)
    }
}

impl Found {
    /// What two hosts' routes say together, if neither has the method.
    fn and(self, other: &Found) -> Found {
        match (self, other) {
            (Found::NoPath, other) => other.clone(),
            (Found::NoMethod { allow }, Found::NoMethod { allow: more }) => {
                Found::NoMethod { allow: both(&allow, more) }
            }
            (Found::Options { allow }, Found::Options { allow: more }) => Found::Options { allow: both(&allow, more) },
            (one, _) => one,
        }
    }
}

/// The methods of two lists.
fn both(one: &HeaderValue, other: &HeaderValue) -> HeaderValue {
    let lists = [one, other].map(|list| list.to_str().unwrap_or_default());
    let names: BTreeSet<&str> = lists.iter().flat_map(|list| list.split(", ")).collect();
    // Names of methods are valid in a header.
    HeaderValue::from_str(&names.into_iter().collect::<Vec<_>>().join(", ")).unwrap_or_else(|_| one.clone())
}

/// The paths of some routes. Adds what is wrong with them to `errors`.
fn paths(routes: &[RouteSpec], of_host: &[usize], errors: &mut Vec<String>) -> Paths {
    let mut by_path = BTreeMap::<String, Vec<(Method, usize)>>::new();
    for (at, route) in of_host.iter().map(|at| (*at, &routes[*at])) {
        let of_path = by_path.entry(anonymous(&route.path)).or_default();
        for method in &route.methods {
            match of_path.iter().find(|(known, _)| known == method) {
                Some((_, first)) if routes[*first].path == route.path => {
                    errors.push(format!("two routes {method} {}", route.path));
                }
                Some((_, first)) => errors.push(format!(
                    "routes {method} {} and {method} {} match the same paths",
                    routes[*first].path, route.path
                )),
                None => of_path.push((method.clone(), at)),
            }
        }
    }
    for (at, route) in of_host.iter().map(|at| (*at, &routes[*at])).filter(|(_, route)| route.rest_may_be_empty) {
        let Some((folder, _)) = route.path.rsplit_once("{*") else { continue };
        let of_path = by_path.entry(anonymous(folder)).or_default();
        for method in &route.methods {
            // A route for the folder itself takes precedence.
            if !of_path.iter().any(|(known, _)| known == method) {
                of_path.push((method.clone(), at));
            }
        }
    }
    let mut paths = Paths::new();
    for (pattern, of_path) in by_path {
        let label = routes[of_path[0].1].label();
        if let Err(error) = paths.insert(pattern, Methods::new(of_path)) {
            errors.push(format!("route {label}: {error}"));
        }
    }
    paths
}

/// The route of a path that has been checked.
fn find(paths: &Paths, method: &Method, path: &str) -> Found {
    let Ok(found) = paths.at(path) else { return Found::NoPath };
    let Some(route) = found.value.find(method) else {
        let allow = found.value.allow.clone();
        return if *method == Method::OPTIONS { Found::Options { allow } } else { Found::NoMethod { allow } };
    };
    let mut values = SmallVec::new();
    for (_, raw) in found.params.iter() {
        match path::decode(raw) {
            Ok(value) => values.push(value.into()),
            Err(error) => return Found::Bad(error),
        }
    }
    Found::Route { route, values }
}

impl Methods {
    fn new(routes: Vec<(Method, usize)>) -> Methods {
        let mut names = routes.iter().map(|(method, _)| method.as_str()).collect::<Vec<_>>();
        if names.contains(&"GET") && !names.contains(&"HEAD") {
            names.push("HEAD");
        }
        if !names.contains(&"OPTIONS") {
            names.push("OPTIONS");
        }
        names.sort_unstable();
        // A method is a token, and tokens are valid header values.
        let allow = HeaderValue::from_str(&names.join(", ")).unwrap_or(HeaderValue::from_static(""));
        Methods { routes, allow }
    }

    fn find(&self, method: &Method) -> Option<usize> {
        let of =
            |method: &Method| self.routes.iter().find(|(candidate, _)| candidate == method).map(|(_, route)| *route);
        of(method).or_else(|| if *method == Method::HEAD { of(&Method::GET) } else { None })
    }
}

/// The pattern with its parameters numbered, so that routes of different methods may name them differently.
fn anonymous(pattern: &str) -> String {
    let mut result = String::with_capacity(pattern.len());
    let mut number = 0;
    let mut rest = pattern;
    while let Some((before, inside, after)) = next_parameter(rest) {
        let star = if inside.starts_with('*') { "*" } else { "" };
        result.push_str(&format!("{before}{{{star}p{number}}}"));
        number += 1;
        rest = after;
    }
    result + rest
}

/// The names of a pattern's parameters, in order.
pub(crate) fn names(pattern: &str) -> Vec<Box<str>> {
    let mut names = Vec::new();
    let mut rest = pattern;
    while let Some((_, inside, after)) = next_parameter(rest) {
        names.push(inside.trim_start_matches('*').into());
        rest = after;
    }
    names
}

/// Text before the first parameter, the text in its braces, and what follows. Doubled braces are literal ones.
fn next_parameter(pattern: &str) -> Option<(&str, &str, &str)> {
    let mut from = 0;
    loop {
        let open = from + pattern[from..].find('{')?;
        if pattern[open + 1..].starts_with('{') {
            from = open + 2;
            continue;
        }
        let close = open + pattern[open..].find('}')?;
        return Some((&pattern[..open], &pattern[open + 1..close], &pattern[close + 1..]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn router(routes: &[(&str, &str)]) -> Result<Router, LoadError> {
        router_with(RequestSlashes::Keep, routes)
    }

    fn router_with(slashes: RequestSlashes, routes: &[(&str, &str)]) -> Result<Router, LoadError> {
        let routes =
            routes.iter().map(|(method, path)| RouteSpec::new(method.parse().unwrap(), *path)).collect::<Vec<_>>();
        Router::new(&routes, slashes)
    }

    fn at(router: &Router, method: &Method, path: &str) -> Found {
        router.find(method, || None, path)
    }

    fn found(route: usize, values: &[&str]) -> Found {
        Found::Route { route, values: values.iter().map(|value| Box::from(*value)).collect() }
    }

    #[test]
    fn routes_by_method_and_path() {
        let router = router(&[
            ("GET", "/products/{id}"),
            ("PUT", "/products/{number}"),
            ("GET", "/products/new"),
            ("GET", "/products/{id}/reviews/{review}"),
            ("GET", "/files/{*rest}"),
            ("HEAD", "/files/{*rest}"),
        ])
        .unwrap();
        assert_eq!(at(&router, &Method::GET, "/products/7"), found(0, &["7"]));
        assert_eq!(at(&router, &Method::HEAD, "/products/7"), found(0, &["7"]));
        assert_eq!(at(&router, &Method::PUT, "/products/7"), found(1, &["7"]));
        assert_eq!(at(&router, &Method::GET, "/products/new"), found(2, &[]));
        assert_eq!(at(&router, &Method::GET, "/products/a%2Fb/reviews/%C3%BC"), found(3, &["a/b", "ü"]));
        assert_eq!(at(&router, &Method::GET, "/files/a//b"), found(4, &["a//b"]));
        assert_eq!(at(&router, &Method::HEAD, "/files/a"), found(5, &["a"]));
        for path in ["/products", "/products/", "/products/7/", "//products/7", "/PRODUCTS/7", "*"] {
            assert_eq!(at(&router, &Method::GET, path), Found::NoPath, "{path}");
        }
    }

    #[test]
    fn an_unknown_method_gets_the_allowed_ones() {
        let router = router(&[("POST", "/a"), ("GET", "/a")]).unwrap();
        let allow = HeaderValue::from_static("GET, HEAD, OPTIONS, POST");
        assert_eq!(at(&router, &Method::DELETE, "/a"), Found::NoMethod { allow: allow.clone() });
        assert_eq!(at(&router, &Method::OPTIONS, "/a"), Found::Options { allow });
        assert_eq!(at(&router, &Method::OPTIONS, "/b"), Found::NoPath);
    }

    #[test]
    fn a_route_for_options_takes_precedence() {
        let router = router(&[("OPTIONS", "/a"), ("GET", "/a")]).unwrap();
        assert_eq!(at(&router, &Method::OPTIONS, "/a"), found(0, &[]));
    }

    #[test]
    fn a_route_may_have_several_methods() {
        let both = RouteSpec { methods: vec![Method::GET, Method::POST], ..RouteSpec::new(Method::GET, "/a") };
        let router = Router::new(&[both.clone(), RouteSpec::new(Method::PUT, "/a")], RequestSlashes::Keep).unwrap();
        for (method, route) in [(Method::GET, 0), (Method::HEAD, 0), (Method::POST, 0), (Method::PUT, 1)] {
            assert_eq!(at(&router, &method, "/a"), found(route, &[]));
        }
        let error = Router::new(&[both, RouteSpec::new(Method::POST, "/a")], RequestSlashes::Keep).unwrap_err();
        assert_eq!(error.diagnostics, ["two routes POST /a"]);
    }

    #[test]
    fn bad_paths() {
        let router = router(&[("GET", "/a/{id}")]).unwrap();
        assert_eq!(at(&router, &Method::GET, "/a/%2e%2e"), Found::Bad(PathError::DotSegment));
        assert_eq!(at(&router, &Method::GET, "/a/%f"), Found::Bad(PathError::Encoding));
        assert_eq!(at(&router, &Method::GET, "/a/%ff"), Found::Bad(PathError::Utf8));
    }

    #[test]
    fn escaped_slashes() {
        let routes = [("GET", "/a/{id}"), ("GET", "/admin/{id}"), ("GET", "/{*rest}")];
        let find = |slashes, path| at(&router_with(slashes, &routes).unwrap(), &Method::GET, path);
        for path in ["/admin%2Fx", "/admin%5cx", "/admin\\x"] {
            assert_eq!(find(RequestSlashes::Refuse, path), Found::Bad(PathError::EscapedSlash), "{path}");
            assert_eq!(find(RequestSlashes::Decode, path), found(1, &["x"]), "{path}");
        }
        assert_eq!(find(RequestSlashes::Keep, "/admin%2Fx"), found(2, &["admin/x"]));
        assert_eq!(find(RequestSlashes::Decode, "/a%2F..%2fadmin"), Found::Bad(PathError::DotSegment));
        assert_eq!(find(RequestSlashes::Refuse, "/a/%252F"), found(0, &["%2F"]));
        assert_eq!(find(RequestSlashes::Decode, "/a/%252F"), found(0, &["%2F"]));
    }

    #[test]
    fn every_conflict_is_reported() {
        let error =
            router(&[("GET", "/a/{x}"), ("GET", "/a/{y}"), ("GET", "/b"), ("GET", "/b"), ("GET", "/c/{")]).unwrap_err();
        assert_eq!(error.diagnostics.len(), 3, "{error}");
        assert!(error.diagnostics[0].contains("GET /a/{x} and GET /a/{y} match the same paths"), "{error}");
        assert!(error.diagnostics[1].contains("two routes GET /b"), "{error}");
        assert!(error.diagnostics[2].contains("GET /c/{"), "{error}");
    }

    #[test]
    fn the_rest_of_a_path_may_be_empty() {
        let folder = RouteSpec { rest_may_be_empty: true, ..RouteSpec::new(Method::GET, "/{lang}/assets/{*file}") };
        let router = Router::new(std::slice::from_ref(&folder), RequestSlashes::Keep).unwrap();
        assert_eq!(at(&router, &Method::GET, "/en/assets/"), found(0, &["en"]));
        assert_eq!(at(&router, &Method::HEAD, "/en/assets/a/b.css"), found(0, &["en", "a/b.css"]));
        assert_eq!(at(&router, &Method::GET, "/en/assets"), Found::NoPath);
        let page = RouteSpec::new(Method::GET, "/{other}/assets/");
        let router = Router::new(&[folder, page], RequestSlashes::Keep).unwrap();
        assert_eq!(at(&router, &Method::GET, "/en/assets/"), found(1, &["en"]));
    }

    #[test]
    fn names_in_order() {
        assert_eq!(names("/a/{id}/{{x}}/{*rest}"), [Box::from("id"), Box::from("rest")]);
        assert!(names("/a").is_empty());
    }

    #[test]
    fn the_most_exact_host_with_the_path_counts() {
        let route = |method: Method, path: &str, hosts: &[&str]| {
            let host = |name: &&str| match name.strip_prefix('*') {
                Some(domain) => HostPattern::Below(domain.to_owned()),
                None => HostPattern::Exact((*name).to_owned()),
            };
            RouteSpec { hosts: hosts.iter().map(host).collect(), ..RouteSpec::new(method, path) }
        };
        let mut routes = vec![
            route(Method::GET, "/", &["shop.example", "www.shop.example"]),
            route(Method::GET, "/", &["*.example"]),
            route(Method::GET, "/", &["*.shop.example"]),
            route(Method::POST, "/", &["*.example"]),
            route(Method::GET, "/only/{id}", &["*.example"]),
        ];
        let hosted = Router::new(&routes, RequestSlashes::Keep).unwrap();
        routes.push(route(Method::GET, "/only/{other}", &[]));
        routes.push(route(Method::PUT, "/", &[]));
        let mixed = Router::new(&routes, RequestSlashes::Keep).unwrap();
        let find = |router: &Router, method: Method, host: &str, path: &str| {
            router.find(&method, || (!host.is_empty()).then(|| Cow::Owned(host.to_owned())), path)
        };
        for router in [&hosted, &mixed] {
            assert_eq!(find(router, Method::GET, "shop.example", "/"), found(0, &[]));
            assert_eq!(find(router, Method::GET, "www.shop.example", "/"), found(0, &[]));
            assert_eq!(find(router, Method::GET, "a.example", "/"), found(1, &[]));
            assert_eq!(find(router, Method::GET, "a.b.shop.example", "/"), found(2, &[]));
            assert_eq!(find(router, Method::HEAD, "a.b.shop.example", "/"), found(2, &[]));
            // What a nearer host does not have, a farther one may.
            assert_eq!(find(router, Method::POST, "shop.example", "/"), found(3, &[]));
            assert_eq!(find(router, Method::GET, "shop.example", "/only/7"), found(4, &["7"]));
        }
        let allow = |text| HeaderValue::from_static(text);
        assert_eq!(
            find(&hosted, Method::DELETE, "shop.example", "/"),
            Found::NoMethod { allow: allow("GET, HEAD, OPTIONS, POST") }
        );
        assert_eq!(
            find(&mixed, Method::DELETE, "shop.example", "/"),
            Found::NoMethod { allow: allow("GET, HEAD, OPTIONS, POST, PUT") }
        );
        assert_eq!(find(&hosted, Method::GET, "shop.example", "/none"), Found::NoPath);
        for host in ["example", "other.org", ""] {
            assert_eq!(find(&hosted, Method::GET, host, "/"), Found::NoHost, "{host}");
            assert_eq!(find(&mixed, Method::PUT, host, "/"), found(6, &[]));
            assert_eq!(find(&mixed, Method::GET, host, "/only/7"), found(5, &["7"]));
            assert_eq!(find(&mixed, Method::GET, host, "/none"), Found::NoPath);
        }
        let twice = [route(Method::GET, "/a/{x}", &["a.b", "c.d"]), route(Method::GET, "/a/{y}", &["c.d"])];
        let error = Router::new(&twice, RequestSlashes::Keep).unwrap_err();
        assert_eq!(error.diagnostics.len(), 1, "{error}");
        assert_eq!(at(&Router::new(&[], RequestSlashes::Keep).unwrap(), &Method::GET, "/"), Found::NoPath);
    }
}
