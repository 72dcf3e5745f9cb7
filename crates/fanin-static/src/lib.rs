//! What answers requests in place of a flow: redirects, static answers, folders.
//!
//! - `redirect`: where a client finds what it asks for.
//! - `folder`: files, with conditions, ranges and precompressed files.
//!
//! This crate knows neither flows nor sockets. It makes a response after the server has found the route and admitted the request.

mod folder;
mod redirect;

use std::any::Any;
use std::sync::Arc;

use bytes::Bytes;
use fanin_config::{Config, Route};
use fanin_server::Response;
use http::header::LOCATION;
use http::{HeaderMap, Method};

use folder::Folder;
pub use folder::ranges;
use redirect::Redirect;

/// What answers the requests of a route without a flow.
#[derive(Debug, Clone)]
pub enum Static {
    /// The same response for all.
    Respond(Arc<Fixed>),
    /// Another place.
    Redirect(Arc<Redirect>),
    /// Files of a folder. Which one is in the path parameter of this name.
    Folder(Arc<Folder>, Arc<str>),
}

/// A response that is always the same.
#[derive(Debug)]
pub struct Fixed {
    config: fanin_config::Respond,
    body: Bytes,
}

/// What of a request matters here.
#[derive(Debug, Clone, Copy)]
pub struct Requested<'a> {
    /// The method as sent.
    pub method: &'a Method,
    /// The path as sent.
    pub path: &'a str,
    /// The query as sent.
    pub query: Option<&'a str>,
    /// The headers.
    pub headers: &'a HeaderMap,
}

impl Static {
    /// For each route, what answers in place of a flow.
    pub fn of_routes(config: &Config) -> Vec<Option<Static>> {
        config.routes.iter().map(Static::of).collect()
    }

    fn of(route: &Route) -> Option<Static> {
        if let Some(redirect) = &route.redirect {
            return Some(Static::Redirect(Arc::new(Redirect::new(redirect))));
        }
        if let Some(config) = &route.respond {
            let fixed = Fixed { body: config.body().into(), config: config.clone() };
            return Some(Static::Respond(Arc::new(fixed)));
        }
        let folder = Arc::new(Folder::new(route.folder.as_ref()?));
        let (_, rest) = route.path.rsplit_once("{*")?;
        Some(Static::Folder(folder, rest.trim_end_matches('}').into()))
    }

    /// The response, if it is there without waiting. `params` are the route's path parameters, decoded.
    pub fn at_once<'p>(
        &self,
        requested: Requested<'_>,
        params: impl Iterator<Item = (&'p str, &'p str)>,
    ) -> Option<Response> {
        match self {
            Static::Respond(fixed) => {
                let mut response = Response::new(fixed.config.status, fixed.body.clone());
                response.headers = fixed.config.headers.clone();
                Some(response)
            }
            Static::Redirect(redirect) => {
                let mut response = Response::new(redirect.status(), Bytes::new());
                response.headers.insert(LOCATION, redirect.location(params, requested.query));
                Some(response)
            }
            Static::Folder(..) => None,
        }
    }

    /// The response of a folder, which a thread of its own looks up.
    /// `keep` lives until the body has been sent.
    pub async fn wait<'p>(
        &self,
        requested: Requested<'_>,
        params: impl Iterator<Item = (&'p str, &'p str)>,
        keep: Box<dyn Any>,
    ) -> Response {
        match self {
            Static::Folder(folder, rest) => folder.respond(requested, value(params, rest), keep).await,
            _ => Response::default(),
        }
    }

    /// The same on this thread, which it blocks, with the whole body: for tests of flows.
    pub fn blocking<'p>(&self, requested: Requested<'_>, params: impl Iterator<Item = (&'p str, &'p str)>) -> Response {
        match self {
            Static::Folder(folder, rest) => folder.respond_blocking(requested, value(params, rest)),
            _ => Response::default(),
        }
    }
}

/// The rest of a path, which is no parameter if it is empty.
fn value<'p>(mut params: impl Iterator<Item = (&'p str, &'p str)>, rest: &str) -> &'p str {
    params.find(|(name, _)| *name == rest).map_or("", |(_, value)| value)
}
