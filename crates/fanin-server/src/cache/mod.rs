//! A shared cache of a route's responses (RFC 9111).
//!
//! A request passes it after the route's guard and before admission. What is kept was made by the application and by `web` (header rules,
//! tags, compression), so a hit costs a look-up and a copy of the headers. What differs by request is made for each: 304, ranges, CORS.
//!
//! - `directives`, `freshness`, `rules`: what responses and requests say, and what follows from it.
//! - `key`: by what a response is found. `tags`: purging. `flight`: equal requests at the same time.
//! - `store`: the kept responses of one route. `stored`: one of them. `reply`: how it is sent.
//! - `enter`: a request meets the cache. `fetch`: what becomes of the application's response. `keep`: how it is kept. `copy`:
//!   a stream that is kept while it is sent.
//! - `outcome`: what is counted and reported. `caches`: all of the process.

mod caches;
mod copy;
mod directives;
mod enter;
mod fetch;
mod flight;
mod freshness;
mod keep;
mod key;
mod outcome;
mod reply;
mod rules;
mod store;
mod stored;
mod tags;

pub(crate) use caches::{Caches, Changed};
pub(crate) use enter::{Entered, Entering, Follower, Refresh, Used, enter};
pub(crate) use flight::End;
pub(crate) use outcome::Outcome;
pub(crate) use store::RouteCache;
pub(crate) use tags::TAGS;

/// Readers of what clients and origins send, for [`crate::fuzzing`].
pub(crate) mod fuzz {
    pub(crate) use super::directives::fuzz as directives;
    pub(crate) use super::reply::fuzz as range;
}
