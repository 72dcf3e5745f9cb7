//! Where a response goes that may be kept, and how it gets there.

use std::sync::Arc;

use http::{HeaderMap, StatusCode};

use super::flight::Lead;
use super::key::Key;
use super::store::RouteCache;
use super::stored::{Storable, Stored};

/// The place of a response that is awaited. Dropped before it is there, its followers go on.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) cache: Arc<RouteCache>,
    pub(super) primary: Key,
    /// `None`: nobody waits for it.
    pub(super) lead: Option<Lead>,
    /// The number of changes when its request began.
    pub(super) changes: u64,
    /// The number of purges when its request began.
    pub(super) made: u64,
    /// The headers of the client's request.
    pub(super) request: HeaderMap,
    /// The encoding that Fanin has chosen for it.
    pub(super) coding: Option<&'static str>,
}

impl Place {
    /// Keeps the response, unless something has changed since its request began.
    pub(super) fn take(&self, stored: Stored) -> bool {
        if !self.is_current() {
            return false;
        }
        let key = self.cache.insert(&self.primary, &self.request, self.coding, stored);
        // A change that came meanwhile must not miss it.
        if let Some(key) = key.filter(|_| !self.is_current()) {
            self.cache.remove(&key);
        }
        true
    }

    /// The response is not kept.
    pub(super) fn give_up(&self, status: StatusCode) {
        if let Some(lead) = &self.lead {
            if !status.is_server_error() {
                self.cache.pass(&self.primary);
            }
            lead.release();
        }
    }

    fn is_current(&self) -> bool {
        match &self.lead {
            Some(lead) => !lead.is_spoiled(),
            None => self.cache.changes() == self.changes,
        }
    }
}

/// A response that is kept once its body is complete.
pub(super) struct Keep {
    pub(super) place: Place,
    pub(super) storable: Storable,
    pub(super) tags: Box<[u64]>,
    pub(super) is_encoded_here: bool,
}

impl Keep {
    /// Largest body that is kept.
    pub(super) fn max_body(&self) -> usize {
        self.place.cache.config.max_body
    }

    /// The body is complete.
    pub(super) fn finish(self, body: &[u8]) {
        let Keep { place, storable, tags, is_encoded_here } = self;
        place.take(storable.with_body(body, tags, place.made, is_encoded_here));
    }

    /// The body is too large.
    pub(super) fn give_up(self) {
        self.place.give_up(StatusCode::OK);
    }
}
