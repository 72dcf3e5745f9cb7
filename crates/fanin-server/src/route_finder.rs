//! Finds the route of a request without a server: for tests of flows.

use std::borrow::Cow;

use fanin_config::{Config, RequestSlashes};
use http::{Method, StatusCode};

use crate::router::{Found, Router, names};
use crate::{LoadError, RouteSpec};

/// The routes of a configuration.
#[derive(Debug)]
pub struct RouteFinder {
    router: Router,
    /// The names of each route's parameters.
    names: Vec<Vec<Box<str>>>,
}

/// The route of a request, by its index in the configuration, and the values of its path parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundRoute {
    /// Its index.
    pub route: usize,
    /// Names and values.
    pub params: Vec<(Box<str>, Box<str>)>,
}

impl RouteFinder {
    /// The routes of a configuration.
    ///
    /// # Errors
    /// Routes that contradict each other.
    pub fn new(config: &Config) -> Result<RouteFinder, LoadError> {
        let routes: Vec<RouteSpec> = config.routes.iter().map(RouteSpec::from).collect();
        let slashes: RequestSlashes = config.server.escaped_slashes;
        let names = routes.iter().map(|route| names(&route.path)).collect();
        Ok(RouteFinder { router: Router::new(&routes, slashes)?, names })
    }

    /// The route of a method, a host without its port, and a path.
    ///
    /// # Errors
    /// The status of the server's own answer: 404, 421 if no route has the host, 405, 204 for OPTIONS, 400 for a path that it refuses.
    pub fn find(&self, method: &Method, host: &str, path: &str) -> Result<FoundRoute, StatusCode> {
        match self.router.find(method, || Some(Cow::Borrowed(host)), path) {
            Found::Route { route, values } => {
                let params = self.names[route].iter().cloned().zip(values).collect();
                Ok(FoundRoute { route, params })
            }
            Found::NoPath => Err(StatusCode::NOT_FOUND),
            Found::NoHost => Err(StatusCode::MISDIRECTED_REQUEST),
            Found::NoMethod { .. } => Err(StatusCode::METHOD_NOT_ALLOWED),
            Found::Options { .. } => Err(StatusCode::NO_CONTENT),
            Found::Bad(_) => Err(StatusCode::BAD_REQUEST),
        }
    }
}

#[cfg(test)]
mod tests {
    use fanin_config::FlowRef;

    use super::*;

    #[test]
    fn routes_are_found_with_their_parameters() {
        let flow = FlowRef { file: "f.star".into(), function: "f".into(), at: Default::default() };
        let mut config = Config::default();
        config.routes.push(fanin_config::Route::new(Method::GET, "/products/{id}", flow));
        let finder = RouteFinder::new(&config).unwrap();
        let found = finder.find(&Method::GET, "test", "/products/a%20b").unwrap();
        assert_eq!(found.params, [(Box::from("id"), Box::from("a b"))]);
        assert_eq!(finder.find(&Method::PUT, "test", "/products/1"), Err(StatusCode::METHOD_NOT_ALLOWED));
        assert_eq!(finder.find(&Method::GET, "test", "/"), Err(StatusCode::NOT_FOUND));
        assert_eq!(finder.find(&Method::OPTIONS, "test", "/products/1"), Err(StatusCode::NO_CONTENT));
        assert_eq!(finder.find(&Method::GET, "test", "/products/%2e%2e%2f"), Err(StatusCode::BAD_REQUEST));
    }
}
