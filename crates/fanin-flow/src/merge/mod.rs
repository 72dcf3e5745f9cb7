//! Calls that share work: batches of one worker, flights and answers of the whole process.
//!
//! The order, outermost first: cache, flight, batch, then the call as any other. What the flow's host does with them is in
//! [`crate::host`]; nothing here knows of flows.

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

/// Shared work of this worker, or a wait for some.
pub(crate) type Work = Pin<Box<dyn Future<Output = SharedResult>>>;
