//! `[push]`: channels, their logs and their subscribers.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

use crate::reader::{Table, replace};
use crate::schema::types;
use crate::values::serialize;

/// `[push]`: bounds of channels, of their logs and of their subscribers. All are of the whole process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Push {
    /// Most subscribers at the same time, over all channels. Further ones are answered with 503.
    #[schemars(with = "types::Count<1>")]
    pub max_subscribers: usize,
    /// Most subscribers of one channel at the same time. Further ones are answered with 503.
    #[schemars(with = "types::Count<1>")]
    pub max_channel_subscribers: usize,
    /// Most channels at the same time. A further one can be neither published to nor subscribed to: 503.
    #[schemars(with = "types::Count<1>")]
    pub max_channels: usize,
    /// Most channels in one subscription.
    #[schemars(with = "types::Count<1, 256>")]
    pub max_channels_per_subscriber: usize,
    /// Most events in the log of a channel. A subscriber that comes back within so many events misses none.
    #[schemars(with = "types::Count<1, 1000000>")]
    pub log_events: usize,
    /// Most bytes in the log of a channel. Its newest event stays in any case.
    #[serde(serialize_with = "serialize::size")]
    #[schemars(with = "types::Size<1>")]
    pub log_size: usize,
    /// Most bytes in the logs of all channels together. Beyond it, a channel that gets an event keeps only that one.
    #[serde(serialize_with = "serialize::size")]
    #[schemars(with = "types::Size<1>")]
    pub max_log_size: usize,
    /// Largest event, in bytes. Publishing a larger one fails the flow.
    #[serde(serialize_with = "serialize::size")]
    #[schemars(with = "types::Size<1>")]
    pub max_event: usize,
    /// Longest time without any byte to a subscriber. Then it is sent a comment, so that nobody between takes the
    /// connection for dead.
    #[serde(serialize_with = "serialize::duration")]
    #[schemars(with = "types::DurationText")]
    pub heartbeat: Duration,
    /// How long clients should wait before they connect again. While the server drains, up to twice as long, each
    /// another time.
    #[serde(serialize_with = "serialize::duration")]
    #[schemars(with = "types::DurationText")]
    pub retry: Duration,
    /// How long a channel and its log stay without events and subscribers.
    #[serde(serialize_with = "serialize::duration")]
    #[schemars(with = "types::DurationText")]
    pub idle_timeout: Duration,
}

impl Default for Push {
    fn default() -> Push {
        Push {
            max_subscribers: 100_000,
            max_channel_subscribers: 100_000,
            max_channels: 10_000,
            max_channels_per_subscriber: 16,
            log_events: 256,
            log_size: 256 << 10,
            max_log_size: 64 << 20,
            max_event: 64 << 10,
            heartbeat: Duration::from_secs(15),
            retry: Duration::from_secs(2),
            idle_timeout: Duration::from_secs(300),
        }
    }
}

impl Push {
    pub(crate) fn read(mut table: Table<'_, '_>) -> Push {
        let mut push = Push::default();
        replace(&mut push.max_subscribers, table.count("max_subscribers", 1..=u64::MAX));
        replace(&mut push.max_channel_subscribers, table.count("max_channel_subscribers", 1..=u64::MAX));
        replace(&mut push.max_channels, table.count("max_channels", 1..=u64::MAX));
        replace(&mut push.max_channels_per_subscriber, table.count("max_channels_per_subscriber", 1..=256));
        replace(&mut push.log_events, table.count("log_events", 1..=1_000_000));
        replace(&mut push.log_size, table.size("log_size", 1));
        replace(&mut push.max_log_size, table.size("max_log_size", 1));
        replace(&mut push.max_event, table.size("max_event", 1));
        replace(&mut push.heartbeat, table.duration("heartbeat"));
        replace(&mut push.retry, table.duration("retry"));
        replace(&mut push.idle_timeout, table.duration("idle_timeout"));
        table.finish();
        push
    }
}
