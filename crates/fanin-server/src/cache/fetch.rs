//! What becomes of the application's response to a request that has met the cache.

use std::sync::Arc;

use http::StatusCode;
use tokio::time::Instant;

use super::copy::Copying;
use super::keep::{Keep, Place};
use super::key::Key;
use super::outcome::{Forward, Outcome, report_forward};
use super::reply::{is_not_modified, not_modified, reply};
use super::rules::{Asked, stands_in};
use super::stored::{Storable, Stored, Times};
use super::tags::TAGS;
use crate::{Body, Response};

/// A request whose response the cache awaits. Dropped before that, its followers go on.
#[derive(Debug)]
pub(crate) struct Fetch {
    pub(super) place: Place,
    /// The key of what is validated.
    pub(super) key: Key,
    /// What the origin may confirm.
    pub(super) stored: Option<Arc<Stored>>,
    pub(super) begun: Instant,
    pub(super) asked: Asked,
    pub(super) forward: Forward,
}

impl Fetch {
    /// Keeps the response if it may be kept, and gives what the client gets. `is_encoded_here`: Fanin has compressed it, or has decided
    /// not to.
    pub(crate) fn settle(mut self: Box<Self>, mut response: Response, is_encoded_here: bool) -> (Response, Outcome) {
        let times = Times::since(self.begun);
        if let Some(stored) = self.stored.take() {
            if response.status == StatusCode::NOT_MODIFIED {
                return self.confirmed(&stored, &response, times);
            }
            let age = stored.age(times.received);
            let config = &self.place.cache.config;
            if response.status.is_server_error() && stands_in(config, &stored.directives, stored.lifetime, age) {
                stored.note_failure(times.received);
                let mut sent = reply(&stored, &self.place.request, times.received);
                report_forward(&mut sent.headers, self.forward, Some(response.status.as_u16()), false);
                sent.report = response.report;
                return (sent, Outcome::Saved);
            }
            // It remains only if this one is a failure.
            if !response.status.is_server_error() {
                self.place.cache.remove(&self.key);
            }
        }
        let Fetch { place, asked, forward, .. } = *self;
        let tags = place.cache.purges.tags(&response.headers);
        response.headers.remove(TAGS);
        let config = &place.cache.config;
        let storable = Storable::of(config, asked, response.status, &response.headers, times);
        let fits = http_body::Body::size_hint(&response.body).lower() <= config.max_body as u64;
        let is_known = is_not_modified(response.status, &response.headers, &place.request);
        let stored = storable.is_some() && fits;
        match storable.filter(|_| fits) {
            Some(storable) => {
                let keep = Keep { place, storable, tags, is_encoded_here };
                // A client that has the body reads no stream, which then is not kept.
                if response.body.is_stream() {
                    response.body = Body::stream(Copying::new(std::mem::take(&mut response.body), keep));
                } else {
                    keep.finish(&response.body.to_bytes());
                }
            }
            None => place.give_up(response.status),
        }
        let status = is_known.then(|| response.status.as_u16());
        if is_known {
            not_modified(&mut response);
        }
        report_forward(&mut response.headers, forward, status, stored);
        (response, Outcome::Miss)
    }

    /// The origin has confirmed what is kept.
    fn confirmed(self: Box<Self>, stored: &Stored, answer: &Response, times: Times) -> (Response, Outcome) {
        let Fetch { place, key, forward, .. } = *self;
        let fresh = stored.refreshed(&place.cache.config, &answer.headers, times, place.made);
        let mut response = reply(&fresh, &place.request, times.received);
        response.report = answer.report;
        let may_stay = !fresh.directives.no_store && !fresh.directives.private;
        let is_kept = may_stay && place.take(fresh);
        if !is_kept {
            place.cache.remove(&key);
        }
        report_forward(&mut response.headers, forward, Some(StatusCode::NOT_MODIFIED.as_u16()), is_kept);
        (response, Outcome::Validated)
    }
}
