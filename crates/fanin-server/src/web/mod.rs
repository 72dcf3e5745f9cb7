//! What browsers and caches expect of a route's responses, whoever makes them.
//!
//! A route that configures nothing of it has no [`Web`], and its requests pass by.
//!
//! - `cors`: pages of other origins.
//! - `compress`: content encodings.
//! - `conditional`, `entity_tag`: responses that the client has already.
//! - `header_rules`: headers that every response gets, or must not have.
//! - `vary`: what a response depends on.

mod compress;
mod conditional;
mod cors;
mod entity_tag;
mod header_rules;
mod vary;

use std::rc::Rc;

use fanin_config::HeaderRules;
use http::header::{CACHE_CONTROL, CONTENT_ENCODING};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};

use crate::{Response, RouteSpec};
use compress::{Coding, Compress};
use conditional::Condition;
use cors::Cors;
pub(crate) use cors::preflight_method;

/// Which encoding a client prefers to a body as it is, of those in which the application has it: `br` or `gzip`.
pub fn preferred_encoding(headers: &HeaderMap, brotli: bool, gzip: bool) -> Option<&'static str> {
    compress::preferred(headers, brotli, gzip)
}

/// Whether a list of entity tags, as in `If-None-Match`, has this one. Weak and strong tags are the same here.
pub fn has_tag(headers: &HeaderMap, name: &HeaderName, tag: &HeaderValue) -> bool {
    entity_tag::is_in(headers.get_all(name).iter().map(HeaderValue::as_bytes), tag.as_bytes())
}

/// Readers of what clients send, for [`crate::fuzzing`].
pub(crate) mod fuzz {
    pub(crate) use super::compress::fuzz::accept_encoding;
    pub(crate) use super::entity_tag::fuzz as tags;
}

/// What a route configures.
#[derive(Debug)]
pub(crate) struct Web {
    cors: Option<Cors>,
    compress: Option<Compress>,
    etag: bool,
    cache_control: Option<HeaderValue>,
    headers: Option<HeaderRules>,
}

/// What it means for one request.
#[derive(Debug)]
pub(crate) struct WebRequest {
    web: Rc<Web>,
    /// The page's origin, if its pages may read the response.
    origin: Option<HeaderValue>,
    /// The encoding that the client wants.
    coding: Option<Coding>,
    /// What the client has, where that matters.
    condition: Option<Condition>,
}

impl Web {
    /// `None` if the route configures nothing of it.
    pub(crate) fn new(spec: &RouteSpec) -> Option<Rc<Web>> {
        let web = Web {
            cors: spec.cors.as_ref().map(|config| Cors::new(config, spec)),
            // The protocols of methods have encodings of their own.
            compress: spec.compression.as_ref().filter(|_| !spec.grpc).map(Compress::new),
            etag: spec.etag,
            cache_control: spec.cache_control.clone(),
            headers: spec.response_headers.clone(),
        };
        let Web { cors, compress, etag, cache_control, headers } = &web;
        let is_any = cors.is_some() || compress.is_some() || *etag || cache_control.is_some() || headers.is_some();
        is_any.then(|| Rc::new(web))
    }

    /// Notes of a request's head what its response needs.
    pub(crate) fn begin(self: &Rc<Web>, parts: &Parts) -> Box<WebRequest> {
        let is_read = matches!(parts.method, Method::GET | Method::HEAD);
        let origin = self.cors.as_ref().and_then(|cors| cors.allowed(&parts.method, &parts.headers));
        Box::new(WebRequest {
            web: self.clone(),
            origin: origin.cloned(),
            coding: self.compress.as_ref().and_then(|compress| compress.wanted(&parts.headers)),
            condition: (self.etag && is_read).then(|| Condition::of(&parts.headers)),
        })
    }

    /// Whether a refusal of a request must have headers of its own.
    pub(crate) fn concerns_refusal(&self, has_origin: bool) -> bool {
        (has_origin && self.cors.is_some()) || self.headers.is_some()
    }

    /// The headers of the answer to a preflight for this route.
    pub(crate) fn preflight(&self, asked: &Method, headers: &HeaderMap) -> Option<HeaderMap> {
        self.cors.as_ref().map(|cors| cors.preflight(asked, headers))
    }
}

impl WebRequest {
    /// The encoding that the client wants, if it accepts one.
    pub(crate) fn coding(&self) -> Option<&'static str> {
        self.coding.map(Coding::name)
    }

    /// The same for a request that is sent again on behalf of this one.
    pub(crate) fn again(&self) -> Box<WebRequest> {
        Box::new(WebRequest { web: self.web.clone(), origin: None, coding: self.coding, condition: None })
    }

    /// Makes the response what a cache keeps: what is the same for all clients that want the same encoding. Whether it is encoded here,
    /// or would be if that made it smaller.
    pub(crate) fn represent(&self, response: &mut Response) -> bool {
        let web = &*self.web;
        self.apply_rules(response);
        if web.etag && response.status == StatusCode::OK {
            conditional::tag(response);
        }
        let Some(compress) = &web.compress else { return false };
        let is_encoded_here = !response.headers.contains_key(CONTENT_ENCODING);
        if let Some(plan) = compress.plan(self.coding, response) {
            plan.apply(response);
        }
        is_encoded_here
    }

    /// Adds what depends on the request alone to a response that a cache may have kept.
    pub(crate) fn deliver(&self, response: &mut Response) {
        if let Some(cors) = &self.web.cors {
            cors.apply(self.origin.as_ref(), &mut response.headers);
        }
    }

    fn apply_rules(&self, response: &mut Response) {
        let web = &*self.web;
        if let Some(rules) = &web.headers {
            header_rules::apply(rules, &mut response.headers);
        }
        if let Some(value) = &web.cache_control
            && (response.status.is_success() || response.status == StatusCode::NOT_MODIFIED)
        {
            response.headers.entry(CACHE_CONTROL).or_insert_with(|| value.clone());
        }
    }

    /// Makes the response what is sent.
    pub(crate) fn finish(&self, response: &mut Response) {
        let web = &*self.web;
        self.apply_rules(response);
        let is_known = self.condition.as_ref().is_some_and(|condition| condition.is_met_by(response));
        let plan = web.compress.as_ref().and_then(|compress| compress.plan(self.coding, response));
        match plan {
            // The tag of what would be sent.
            Some(_) if is_known => entity_tag::weaken(&mut response.headers),
            Some(plan) => plan.apply(response),
            None => {}
        }
        if is_known {
            conditional::not_modified(response);
        }
        self.deliver(response);
    }
}
