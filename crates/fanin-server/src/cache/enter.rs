//! A request meets the cache of its route.

use std::sync::Arc;

use http::header::{
    AUTHORIZATION, COOKIE, HOST, HeaderName, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_UNMODIFIED_SINCE, RANGE,
    UPGRADE,
};
use http::request::Parts;
use http::{HeaderMap, Method, StatusCode, Uri, Version};
use tokio::time::Instant;

use super::directives::RequestDirectives;
use super::fetch::Fetch;
use super::flight::{End, Follow, Join};
use super::keep::Place;
use super::key::{Key, host, primary};
use super::outcome::{Forward, Outcome, report_forward, report_hit};
use super::reply::reply;
use super::rules::{Asked, Use, decide, stands_in};
use super::store::{Found, RouteCache};
use super::stored::Stored;
use crate::{Problem, Response};

/// How often a request waits for another one. Then it goes on by itself.
const MOST_FOLLOWED: u8 = 3;

/// A request that has passed its route's guard.
pub(crate) struct Entering<'r> {
    pub(crate) parts: &'r mut Parts,
    pub(crate) has_body: bool,
    /// The guard knows who sends it.
    pub(crate) has_identity: bool,
    /// The encoding that Fanin has chosen for its response.
    pub(crate) coding: Option<&'static str>,
    /// What it has waited for, if it has.
    pub(crate) followed: Option<(End, u8)>,
}

/// What becomes of it.
pub(crate) enum Entered {
    /// It goes on to admission.
    Pass(Used),
    /// It is answered with this.
    Respond(Box<Response>, Used),
    /// It waits, and enters again then.
    Follow(Follower),
}

/// A request that waits for the response of another one.
pub(crate) struct Follower {
    pub(crate) wait: Follow,
    pub(crate) followed: u8,
}

/// What a request has to do with the cache when its response is there.
pub(crate) enum Used {
    /// Nothing.
    Bypass(Bypass),
    /// The response goes into the cache, or comes from it after all.
    Fetch(Box<Fetch>),
    /// The response is from the cache.
    Sent { outcome: Outcome, refresh: Option<Box<Refresh>> },
}

/// Why a request passes the cache by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bypass(pub(super) Forward);

impl Bypass {
    /// Says so in the response.
    pub(crate) fn report(self, headers: &mut HeaderMap) {
        report_forward(headers, self.0, None, false);
    }
}

/// A request that is sent in the background.
pub(crate) struct Refresh {
    pub(crate) uri: Uri,
    pub(crate) version: Version,
    pub(crate) headers: HeaderMap,
    pub(crate) fetch: Box<Fetch>,
}

/// Conditions of the client, which are about what it has.
const CONDITIONS: [HeaderName; 2] = [IF_NONE_MATCH, IF_MODIFIED_SINCE];

/// Looks a request up. If it goes on, its conditions become those of the cache.
pub(crate) fn enter(cache: &Arc<RouteCache>, entering: Entering<'_>) -> Entered {
    let Entering { parts, has_body, has_identity, coding, followed } = entering;
    let config = &cache.config;
    let headers = &parts.headers;
    let bypass = |why| Entered::Pass(Used::Bypass(Bypass(why)));
    let has_cookie = || headers.contains_key(COOKIE) && !config.ignore_cookies && !config.vary.contains(&COOKIE);
    let (true, Some(target)) = (matches!(parts.method, Method::GET | Method::HEAD), parts.uri.path_and_query()) else {
        return bypass(Forward::Method);
    };
    let not_for_caches = [IF_MATCH, IF_UNMODIFIED_SINCE, UPGRADE];
    if has_body || not_for_caches.iter().any(|name| headers.contains_key(name)) || has_cookie() {
        return bypass(Forward::Bypass);
    }
    let directives =
        if config.client_directives { RequestDirectives::of(headers) } else { RequestDirectives::default() };
    if directives.no_store {
        return bypass(Forward::Request);
    }
    let now = Instant::now();
    let primary = primary(config, host(&parts.uri, headers), target);
    let found = cache.find(&primary, headers, coding, now);
    let asked = Asked { credentials: has_identity || headers.contains_key(AUTHORIZATION), no_store: false };
    let mut forward = if found.varies { Forward::Varies } else { Forward::Target };
    if let Some(stored) = &found.stored {
        if asked.credentials && !stored.directives.allows_credentials() {
            return bypass(Forward::Bypass);
        }
        let sent = |outcome, refresh| {
            let mut response = reply(stored, &parts.headers, now);
            report_hit(&mut response.headers, stored.left(now));
            Entered::Respond(Box::new(response), Used::Sent { outcome, refresh })
        };
        let age = stored.age(now);
        let used = decide(config, &directives, &stored.directives, stored.lifetime, age);
        let in_place = || stands_in(config, &stored.directives, stored.lifetime, age);
        match used {
            Use::Fresh => {
                return sent(if followed.is_some() { Outcome::Shared } else { Outcome::Hit }, None);
            }
            Use::Stale => return sent(Outcome::Stale, None),
            Use::WhileRevalidate => {
                return sent(Outcome::Stale, refresh(cache, parts, &found, primary, asked, coding));
            }
            Use::Validate if stored.failed_lately(now) && in_place() => return sent(Outcome::Saved, None),
            Use::Validate => {
                let unconditionally =
                    decide(config, &RequestDirectives::default(), &stored.directives, stored.lifetime, age);
                forward = if unconditionally == Use::Fresh { Forward::Request } else { Forward::Stale };
            }
        }
    }
    if directives.only_if_cached {
        let problem = Problem::new(StatusCode::GATEWAY_TIMEOUT, "not-cached", "No response is kept for this request");
        return Entered::Respond(Box::new(problem.into()), Used::Sent { outcome: Outcome::Miss, refresh: None });
    }
    if parts.method == Method::HEAD || headers.contains_key(RANGE) {
        return bypass(forward);
    }
    let alone = found.passing || matches!(followed, Some((End::GoAlone, _) | (_, MOST_FOLLOWED..)));
    // What must be validated each time would make all wait in turn, and what is for one client helps no other.
    let each_time = forward == Forward::Request
        || asked.credentials
        || found.stored.as_ref().is_some_and(|stored| stored.directives.no_cache || stored.lifetime.fresh.is_zero());
    let lead = match (alone, each_time) {
        (true, _) => None,
        (_, true) => cache.flights.try_lead(&found.key),
        _ => match cache.flights.join(&found.key, cache.most_waiting) {
            Join::Lead(lead) => Some(lead),
            Join::Alone => None,
            Join::Follow(wait) => {
                let followed = followed.map_or(0, |(_, times)| times) + 1;
                return Entered::Follow(Follower { wait, followed });
            }
        },
    };
    let Found { key, stored, .. } = found;
    let place = Place {
        cache: cache.clone(),
        primary,
        lead,
        changes: cache.changes(),
        made: cache.purges.now(),
        request: parts.headers.clone(),
        coding,
    };
    condition(&mut parts.headers, stored.as_deref());
    let fetch = Fetch { place, key, stored, begun: now, asked, forward };
    Entered::Pass(Used::Fetch(Box::new(fetch)))
}

/// Replaces the client's conditions by those of the cache.
fn condition(headers: &mut HeaderMap, stored: Option<&Stored>) {
    for name in &CONDITIONS {
        headers.remove(name);
    }
    if let Some(stored) = stored {
        stored.validate_with(headers);
    }
}

/// The request by which a stale response is replaced, unless one is on its way.
fn refresh(
    cache: &Arc<RouteCache>,
    parts: &Parts,
    found: &Found,
    primary: Key,
    asked: Asked,
    coding: Option<&'static str>,
) -> Option<Box<Refresh>> {
    let stored = found.stored.clone()?;
    if stored.failed_lately(Instant::now()) {
        return None;
    }
    let lead = cache.flights.try_lead(&found.key)?;
    // What concerns this client alone is left out. It is the same request otherwise.
    let mut headers = parts.headers.clone();
    headers.remove(RANGE);
    condition(&mut headers, Some(&stored));
    debug_assert!(headers.contains_key(HOST) || parts.uri.authority().is_some());
    let place = Place {
        cache: cache.clone(),
        primary,
        lead: Some(lead),
        changes: cache.changes(),
        made: cache.purges.now(),
        request: parts.headers.clone(),
        coding,
    };
    let (key, begun) = (found.key.clone(), Instant::now());
    let fetch = Fetch { place, key, stored: Some(stored), begun, asked, forward: Forward::Stale };
    Some(Box::new(Refresh { uri: parts.uri.clone(), version: parts.version, headers, fetch: Box::new(fetch) }))
}
