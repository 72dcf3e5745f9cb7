//! What browsers and caches expect of responses, for all routes or for one.

pub(crate) mod cache_control;
pub(crate) mod compression;
pub(crate) mod cors;
pub(crate) mod response_headers;
