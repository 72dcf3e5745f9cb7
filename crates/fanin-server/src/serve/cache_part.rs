//! What a request has to do with caches of responses.

use std::fmt;

use crate::Params;
use crate::cache::{Changed, Used};

/// What a request has to do with caches.
pub(super) enum CachePart {
    /// Its route has one.
    Of(Used, Params),
    /// It may change what is kept.
    Changes(Box<Changed>),
}

impl fmt::Debug for CachePart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("part of caches")
    }
}
