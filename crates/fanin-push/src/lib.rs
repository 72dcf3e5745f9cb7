//! Channels: events that reach every subscriber of a channel, on all workers.
//!
//! [`Channels`] is the state of the process. [`Channels::publish`] writes an event once into the channel's log, which is bounded, and
//! wakes each worker that has subscribers. It never waits for any of them. A [`Hub`] is one worker's part: it wakes that worker's
//! subscribers. A [`Subscription`] is a position in the log, without a queue of its own. One that the log has passed has lost events:
//! its client gets an event that says this, and it ends.
//!
//! A [`Relay`] takes events to other instances, and `Channels::receive` takes theirs. Where some are missing, `Channels::add_gap` leaves a
//! gap in the log: each subscriber before it gets an event that says this, at a time of its own, and goes on.
//!
//! - `event` writes events in the format of server-sent events. `position` is what their ids say.
//! - `relay` is the seam to other instances, `received` what comes from them.
//! - `log` is the bounded log. `mailbox` is how a publisher wakes a worker. `channels` is the process's part, `hub` the worker's,
//!   `subscription` the subscriber's, and `messages` has its events as JSON. `metrics` counts.
//! - `fuzzing` is for the fuzz target.
//!
//! The crate must not know flows, requests or sockets.

mod channels;
mod event;
#[doc(hidden)]
pub mod fuzzing;
mod hub;
mod log;
mod mailbox;
mod messages;
mod metrics;
mod position;
mod received;
mod relay;
mod subscription;

pub use channels::{Channels, PublishError, SubscribeError};
pub use hub::Hub;
pub use messages::{Message, Messages};
pub use relay::Relay;
pub use subscription::{End, Subscription};
