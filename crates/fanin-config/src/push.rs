//! `[push]`: channels, their logs, their subscribers, and the broker between instances.

use std::time::Duration;

use schemars::{JsonSchema, json_schema};
use serde::Serialize;
use url::Url;

use crate::reader::{Table, replace};
use crate::schema::types::{self, leaf};
use crate::upstream::tls::ClientTls;
use crate::values::serialize;

leaf!(
    /// `"redis://user@host:6379"`.
    BrokerText,
    json_schema!({ "type": "string", "pattern": r"^(rediss?|nats|tls)://|\$\{", "x-type": "url" })
);

/// Longest prefix of names at the broker, in bytes.
const MAX_PREFIX: usize = 64;

/// `[push]`: bounds of channels, of their logs and of their subscribers, all of the whole process. And the broker that carries events
/// between instances.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
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
    /// connection for dead. Over WebSocket it is sent a ping so often, whatever else it is sent; one that answers none
    /// of two is closed instead of a third.
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
    /// URL of a broker that carries events to other instances: Redis or Valkey (`"redis://user:password@host:6379"`, with
    /// TLS `rediss://`), or NATS (`"nats://user:password@host:4222"`, with TLS `tls://`; a user without a password is a
    /// token). `"off"`: events stay in this instance.
    #[serde(serialize_with = "serialize::url_or_off")]
    #[schemars(with = "types::Or<BrokerText, types::Off>")]
    pub broker: Option<Url>,
    /// Password for the broker, if the URL has none. Best taken from a variable: `"${BROKER_PASSWORD}"`.
    #[serde(serialize_with = "serialize::secret", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub broker_password: Option<String>,
    /// What the names that Fanin uses at the broker begin with: the channel `fanin:events` of Redis, the subject
    /// `fanin.events` of NATS. Instances with the same prefix share their channels.
    #[schemars(with = "types::Text")]
    pub broker_prefix: String,
    /// Most events that wait for the broker. Then the oldest is dropped, and subscribers of other instances get `lost`.
    #[schemars(with = "types::Count<1, 10000000>")]
    pub broker_queue: usize,
    /// Most bytes of events that wait for the broker.
    #[serde(serialize_with = "serialize::size")]
    #[schemars(with = "types::Size<1>")]
    pub broker_queue_size: usize,
    /// TLS to the broker, with `rediss://` or `tls://`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "ClientTls")]
    pub broker_tls: Option<ClientTls>,
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
            broker: None,
            broker_password: None,
            broker_prefix: "fanin".into(),
            broker_queue: 10_000,
            broker_queue_size: 16 << 20,
            broker_tls: None,
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
        push.read_broker(&mut table);
        table.finish();
        push
    }

    fn read_broker(&mut self, table: &mut Table<'_, '_>) {
        let what = "a URL such as \"redis://user@host:6379\" or \"off\"";
        let broker = table.parsed("broker", what, |text| match text {
            "off" => Ok(None),
            text => broker_url(text).map(Some),
        });
        self.broker = broker.and_then(|found| found.value);
        self.broker_password = table.string("broker_password");
        let prefix = table.parsed("broker_prefix", "a text", |text| check_prefix(text).map(|()| text.to_owned()));
        replace(&mut self.broker_prefix, prefix.map(|found| found.value));
        replace(&mut self.broker_queue, table.count("broker_queue", 1..=10_000_000));
        replace(&mut self.broker_queue_size, table.size("broker_queue_size", 1));
        self.broker_tls = table.table("broker_tls").map(ClientTls::read);
        let Some(broker) = &self.broker else { return };
        if self.broker_password.is_some() && broker.password().is_some() {
            table.error("broker_password", "the URL has a password, too; remove one of them");
        }
        let is_encrypted = matches!(broker.scheme(), "rediss" | "tls");
        match &self.broker_tls {
            Some(_) if !is_encrypted => {
                table.error("broker_tls", "needs a URL with rediss:// or tls://");
            }
            Some(ClientTls { server_name: Some(_), .. }) if broker.scheme() == "tls" => {
                table.error("broker_tls", "server_name works with rediss:// only");
            }
            _ => {}
        }
    }
}

/// Parses the URL of a broker. No message contains the URL: it may hold a password.
fn broker_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| {
        format!(
            "is not a URL: {error} (percent-encode special characters of the password, or put it into `broker_password`)"
        )
    })?;
    if !matches!(url.scheme(), "redis" | "rediss" | "nats" | "tls") {
        return Err("has not the scheme of a broker; use redis://, rediss://, nats:// or tls://".into());
    }
    if url.host_str().is_none_or(str::is_empty) {
        return Err("has no host; write redis://host:6379 or nats://host:4222".into());
    }
    if !matches!(url.path(), "" | "/") {
        return Err("has a path; remove it (channels belong to no database)".into());
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("has a parameter or a fragment; remove `?` or `#` and what follows".into());
    }
    Ok(url)
}

/// Letters, digits, and what separates them, so that it is valid in the channels of Redis and in the subjects of NATS.
fn check_prefix(text: &str) -> Result<(), String> {
    let is_valid = |part: &str| {
        !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | ':'))
    };
    if text.len() > MAX_PREFIX || !text.split('.').all(is_valid) {
        return Err(format!(
            "must have 1 to {MAX_PREFIX} letters, digits, `-`, `_`, `:`, and single dots between them"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_brokers() {
        for url in ["redis://h", "rediss://u:p@h:7000/", "nats://token@[::1]:4222", "tls://u:p@h"] {
            assert!(broker_url(url).is_ok(), "{url}");
        }
        for (url, why) in [
            ("kafka://u:hidden@h", "scheme"),
            ("redis://", "host"),
            ("redis:///0", "host"),
            ("redis://u:hidden@h/1", "a path"),
            ("nats://u:hidden@h?a=b", "a parameter"),
            ("redis://u:hidden@h:port", "not a URL"),
            ("hidden", "not a URL"),
        ] {
            let error = broker_url(url).unwrap_err();
            assert!(error.contains(why) && !error.contains("hidden"), "{url}: {error}");
        }
    }

    #[test]
    fn prefixes_are_valid_in_every_broker() {
        for prefix in ["fanin", "team.shop-1", "a:b_c"] {
            assert_eq!(check_prefix(prefix), Ok(()), "{prefix}");
        }
        for prefix in ["", ".", "a..b", "a.", "a b", "*", "a>", "é", &"x".repeat(65)] {
            assert!(check_prefix(prefix).is_err(), "{prefix}");
        }
    }
}
