//! The router: from method and path to a route.

use std::collections::BTreeMap;

use fanin_config::RequestSlashes;
use http::{HeaderValue, Method};
use smallvec::SmallVec;

use crate::path::{self, PathError};
use crate::{LoadError, RouteSpec};

/// All routes. Patterns are shared by methods; the names of parameters are each route's own.
#[derive(Debug)]
pub(crate) struct Router {
    paths: matchit::Router<Methods>,
    slashes: RequestSlashes,
}

/// The routes of one path.
#[derive(Debug)]
struct Methods {
    routes: Vec<(Method, usize)>,
    /// For `Allow`: the methods, HEAD with GET, and OPTIONS.
    allow: HeaderValue,
}

/// The result for a method and a path.
#[derive(Debug, PartialEq)]
pub(crate) enum Found {
    Route {
        route: usize,
        values: SmallVec<[Box<str>; 2]>,
    },
    NoPath,
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
        let mut by_path = BTreeMap::<String, Vec<(Method, usize)>>::new();
        for (at, route) in routes.iter().enumerate() {
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
        let mut paths = matchit::Router::new();
        for (pattern, of_path) in by_path {
            let label = routes[of_path[0].1].label();
            if let Err(error) = paths.insert(pattern, Methods::new(of_path)) {
                errors.push(format!("route {label}: {error}"));
            }
        }
        if errors.is_empty() { Ok(Router { paths, slashes }) } else { Err(LoadError::from(errors)) }
    }

    /// The path as flows see it, if it differs from that of the request.
    #[inline]
    pub(crate) fn rewritten(&self, path: &str) -> Option<String> {
        match self.slashes {
            RequestSlashes::Refuse | RequestSlashes::Keep => None,
            RequestSlashes::Decode => path::with_plain_slashes(path),
        }
    }

    pub(crate) fn find(&self, method: &Method, path: &str) -> Found {
        match self.rewritten(path) {
            None => self.find_path(method, path),
            Some(path) => self.find_path(method, &path),
        }
    }

    fn find_path(&self, method: &Method, path: &str) -> Found {
        if let Err(error) = path::check(path, self.slashes) {
            return Found::Bad(error);
        }
        let Ok(found) = self.paths.at(path) else { return Found::NoPath };
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
        assert_eq!(router.find(&Method::GET, "/products/7"), found(0, &["7"]));
        assert_eq!(router.find(&Method::HEAD, "/products/7"), found(0, &["7"]));
        assert_eq!(router.find(&Method::PUT, "/products/7"), found(1, &["7"]));
        assert_eq!(router.find(&Method::GET, "/products/new"), found(2, &[]));
        assert_eq!(router.find(&Method::GET, "/products/a%2Fb/reviews/%C3%BC"), found(3, &["a/b", "ü"]));
        assert_eq!(router.find(&Method::GET, "/files/a//b"), found(4, &["a//b"]));
        assert_eq!(router.find(&Method::HEAD, "/files/a"), found(5, &["a"]));
        for path in ["/products", "/products/", "/products/7/", "//products/7", "/PRODUCTS/7", "*"] {
            assert_eq!(router.find(&Method::GET, path), Found::NoPath, "{path}");
        }
    }

    #[test]
    fn an_unknown_method_gets_the_allowed_ones() {
        let router = router(&[("POST", "/a"), ("GET", "/a")]).unwrap();
        let allow = HeaderValue::from_static("GET, HEAD, OPTIONS, POST");
        assert_eq!(router.find(&Method::DELETE, "/a"), Found::NoMethod { allow: allow.clone() });
        assert_eq!(router.find(&Method::OPTIONS, "/a"), Found::Options { allow });
        assert_eq!(router.find(&Method::OPTIONS, "/b"), Found::NoPath);
    }

    #[test]
    fn a_route_for_options_takes_precedence() {
        let router = router(&[("OPTIONS", "/a"), ("GET", "/a")]).unwrap();
        assert_eq!(router.find(&Method::OPTIONS, "/a"), found(0, &[]));
    }

    #[test]
    fn a_route_may_have_several_methods() {
        let both = RouteSpec { methods: vec![Method::GET, Method::POST], ..RouteSpec::new(Method::GET, "/a") };
        let router = Router::new(&[both.clone(), RouteSpec::new(Method::PUT, "/a")], RequestSlashes::Keep).unwrap();
        for (method, route) in [(Method::GET, 0), (Method::HEAD, 0), (Method::POST, 0), (Method::PUT, 1)] {
            assert_eq!(router.find(&method, "/a"), found(route, &[]));
        }
        let error = Router::new(&[both, RouteSpec::new(Method::POST, "/a")], RequestSlashes::Keep).unwrap_err();
        assert_eq!(error.diagnostics, ["two routes POST /a"]);
    }

    #[test]
    fn bad_paths() {
        let router = router(&[("GET", "/a/{id}")]).unwrap();
        assert_eq!(router.find(&Method::GET, "/a/%2e%2e"), Found::Bad(PathError::DotSegment));
        assert_eq!(router.find(&Method::GET, "/a/%f"), Found::Bad(PathError::Encoding));
        assert_eq!(router.find(&Method::GET, "/a/%ff"), Found::Bad(PathError::Utf8));
    }

    #[test]
    fn escaped_slashes() {
        let routes = [("GET", "/a/{id}"), ("GET", "/admin/{id}"), ("GET", "/{*rest}")];
        let find = |slashes, path| router_with(slashes, &routes).unwrap().find(&Method::GET, path);
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
    fn names_in_order() {
        assert_eq!(names("/a/{id}/{{x}}/{*rest}"), [Box::from("id"), Box::from("rest")]);
        assert!(names("/a").is_empty());
    }
}
