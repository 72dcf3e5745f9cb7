//! Calls that share work: batches of one worker, single-flight and caches of the whole process.
//!
//! The order, outermost first: cache, single-flight, batch, then an ordinary call. The flow's host uses them; nothing here knows
//! flows.

pub(crate) mod batch;
pub(crate) mod keyed;
pub(crate) mod open;
mod part;
mod request;
pub(crate) mod requested_keys;
pub(crate) mod split;
pub(crate) mod work;

use std::future::Future;
use std::pin::Pin;

use fanin_upstream::shared::SharedResult;

/// Work that several calls share, or the wait for it.
pub(crate) type Work = Pin<Box<dyn Future<Output = SharedResult>>>;
