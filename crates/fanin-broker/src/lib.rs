//! Channels between instances: a broker carries what one instance publishes to all others.
//!
//! [`Broker`] belongs to the process. While a configuration names a broker, it has a thread with a link to it. Publishers only add to a
//! bounded queue, so a broker that is dead, slow or full costs them nothing, and delivery within the instance does not depend on it.
//!
//! - `message` is the format, `target` the configured broker, `tls` its certificates.
//! - `outbox` has the events that wait. `origins` notices missing and repeated ones.
//! - `link` is the connection's life. `transport` is what a broker must do; `redis` and `nats` do it; `metered` bounds what is read.
//! - `metrics` counts. `error` is why there is no connection.
//!
//! # Delivery
//! *At most once* between instances. A message names its origin, so an instance ignores its own when the broker sends them back. Events of
//! a channel and an origin come in order.
//!
//! No gap is silent, unless an instance is killed with events in its queue. Each origin numbers its events, and a *beat* every two seconds carries its last numbers, so a missing event is noticed
//! whoever dropped it: the origin's full queue, a connection that broke, the broker. Numbers count within 64 shards of the channels' names:
//! a missing event puts a 64th of the channels in doubt, at a cost that does not depend on their number. A connection that was broken puts
//! all in doubt. Subscribers of these channels get `lost`, spread over `retry`.
//!
//! An instance's own beats come back from the broker. The first one shows that the link is whole; when none comes for ten seconds, the link
//! is replaced, whatever its connections look like.
//!
//! # One subject
//! All instances with the same prefix use one channel of Redis, or one subject of NATS. With a subscription for each channel, the broker
//! would have tens of thousands, a first subscriber would have to wait for the broker, and the log of a channel would have gaps while nobody
//! subscribes. One subject costs each instance the reading of events that nobody here wants. They are dropped by the name of their channel,
//! and take no memory. Who has more events than one instance can read gives groups of instances different prefixes.
//!
//! # Why no shared log
//! A client that comes back to another instance gets `lost` and loads its state. With Redis Streams or JetStream, ids could be valid on all
//! instances. Each event would then wait for the broker before it is delivered, or have two places, and the broker would need memory for
//! all logs. Clients need a way to load their state in any case.
//!
//! # Libraries
//! `redis` (redis-rs) and `async-nats`, which the NATS project keeps, speak the protocols. Without their default features they bring six
//! small packages. Parsers of our own would be less code than these, but logins, TLS that starts inside a connection, and
//! the servers' variants would be ours to keep. What the libraries leave open is closed around them:
//! - their queues have no bound in bytes. `metered` reads Redis no further than messages are used; NATS's client and the receiver take
//!   turns on one thread, so a turn's reads bound what waits.
//! - a panic at a malformed answer ends a connection, and the next one is tried.
//! - what a server sends back may hold the password. It is masked before it is logged, and cut.
//!
//! A message of NATS has no bound of ours while it is read: the server has one (`max_payload`), and is trusted with it.
//!
//! The crate must not know flows, requests or workers.

#![cfg_attr(
    not(all(feature = "redis", feature = "nats")),
    allow(dead_code, unused_imports, reason = "only some brokers use it")
)]

mod broker;
mod error;
pub mod fuzzing;
mod link;
mod message;
#[cfg(feature = "redis")]
mod metered;
mod metrics;
#[cfg(feature = "nats")]
mod nats;
mod origins;
mod outbox;
#[cfg(feature = "redis")]
mod redis;
mod target;
mod tls;
mod transport;

pub use broker::Broker;
pub use target::Target;
