//! What browsers and caches expect of responses, for all routes or for one.

pub(crate) mod cors;
