//! What browsers and caches expect of a route's responses, whoever makes them.
//!
//! A route that configures nothing of it has no [`Web`], and its requests pass by.
//!
//! - `cors`: pages of other origins.
//! - `vary`: what a response depends on.

mod cors;
mod vary;

use std::rc::Rc;

use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method};

use crate::RouteSpec;
use cors::Cors;
pub(crate) use cors::preflight_method;

/// What a route configures.
#[derive(Debug)]
pub(crate) struct Web {
    cors: Option<Cors>,
}

/// What it means for one request.
#[derive(Debug)]
pub(crate) struct WebRequest {
    web: Rc<Web>,
    /// The page's origin, if its pages may read the response.
    origin: Option<HeaderValue>,
}

impl Web {
    /// `None` if the route configures nothing of it.
    pub(crate) fn new(spec: &RouteSpec) -> Option<Rc<Web>> {
        let cors = spec.cors.as_ref().map(|config| Cors::new(config, spec));
        cors.is_some().then(|| Rc::new(Web { cors }))
    }

    /// Notes of a request's head what its response needs.
    pub(crate) fn begin(self: &Rc<Web>, parts: &Parts) -> Box<WebRequest> {
        let origin = self.cors.as_ref().and_then(|cors| cors.allowed(&parts.method, &parts.headers));
        Box::new(WebRequest { web: self.clone(), origin: origin.cloned() })
    }

    /// Whether a refusal of a request must have headers of its own.
    pub(crate) fn concerns_refusal(&self, has_origin: bool) -> bool {
        has_origin && self.cors.is_some()
    }

    /// The headers of the answer to a preflight for this route.
    pub(crate) fn preflight(&self, asked: &Method, headers: &HeaderMap) -> Option<HeaderMap> {
        self.cors.as_ref().map(|cors| cors.preflight(asked, headers))
    }
}

impl WebRequest {
    /// Completes the headers of the response.
    pub(crate) fn finish(&self, headers: &mut HeaderMap) {
        if let Some(cors) = &self.web.cors {
            cors.apply(self.origin.as_ref(), headers);
        }
    }
}
