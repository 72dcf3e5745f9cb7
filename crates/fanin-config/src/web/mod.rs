//! What browsers and caches expect of responses, headers of requests, and responses without a flow.

pub(crate) mod cache_control;
pub(crate) mod compression;
pub(crate) mod cors;
pub(crate) mod folder;
pub(crate) mod redirect;
pub(crate) mod request_headers;
pub(crate) mod respond;
pub(crate) mod response_cache;
pub(crate) mod response_headers;
