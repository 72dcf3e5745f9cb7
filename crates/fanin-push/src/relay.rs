//! The seam to other instances: where events go that are published here.

use std::fmt::Debug;

/// Takes the events that are published here to other instances. What it does with them must not slow the publisher down: a full or
/// broken relay drops events.
pub trait Relay: Debug + Send + Sync {
    /// An event as a message for other instances.
    fn encode(&self, channel: &str, name: Option<&str>, data: &[u8]) -> Vec<u8>;

    /// Takes a message of a channel, in the order of the channel's log. It runs under that log's lock, so it must neither wait nor
    /// use channels.
    fn send(&self, channel: &str, message: Vec<u8>);

    /// Follows `send`, without any lock.
    fn wake(&self);
}
