//! The channels of the process.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use arcstr::ArcStr;
use fanin_config::Push;
use prometheus_client::registry::Registry;
use tokio::time::Instant;

use crate::event::{Event, MAX_NAME, RESERVED};
use crate::log::Log;
use crate::mailbox::Listener;
use crate::metrics::Metrics;
use crate::position;
use crate::relay::Relay;

/// Parts of the list of channels, each with a lock of its own.
pub(crate) const SHARDS: usize = 16;

/// Longest name of a channel, in bytes.
const MAX_CHANNEL: usize = 256;

pub(crate) type Map = HashMap<ArcStr, Arc<Channel>>;

/// Why an event was not published.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    /// The channel's name is invalid.
    #[error("{0}")]
    Name(&'static str),
    /// The event's name is invalid.
    #[error("{0}")]
    Event(String),
    /// The event is too large.
    #[error("the event has {size} bytes, more than {limit} (max_event of [push])")]
    TooLarge {
        /// Its bytes.
        size: usize,
        /// Most bytes.
        limit: usize,
    },
    /// There are too many channels.
    #[error("there are {0} channels already (max_channels of [push])")]
    Channels(usize),
}

/// Why there is no subscription.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubscribeError {
    /// The channel's name is invalid.
    #[error("{0}")]
    Name(&'static str),
    /// It names no channel or too many.
    #[error("a subscription has 1 to {limit} channels (max_channels_per_subscriber of [push]), not {count}")]
    Count {
        /// Channels.
        count: usize,
        /// Most channels.
        limit: usize,
    },
    /// There are too many channels.
    #[error("there are {0} channels already (max_channels of [push])")]
    Channels(usize),
    /// There are too many subscribers.
    #[error("there are {0} subscribers already (max_subscribers of [push])")]
    Subscribers(usize),
    /// The channel has too many subscribers.
    #[error("a channel has {0} subscribers already (max_channel_subscribers of [push])")]
    ChannelSubscribers(usize),
    /// The server drains.
    #[error("the server drains")]
    Draining,
}

/// A channel: its log, and the workers that have subscribers of it.
#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) name: ArcStr,
    log: Mutex<Log>,
    listeners: Mutex<Vec<Arc<Listener>>>,
    subscribers: AtomicUsize,
}

impl Channel {
    /// No code that can panic runs under this lock, and none that waits.
    pub(crate) fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn listeners(&self) -> MutexGuard<'_, Vec<Arc<Listener>>> {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All channels of a process.
#[derive(Debug)]
pub struct Channels {
    settings: RwLock<Arc<Push>>,
    /// Takes the events that are published here to other instances.
    relay: RwLock<Option<Arc<dyn Relay>>>,
    /// Names this life of the process in ids of events.
    epoch: String,
    shards: [Mutex<Map>; SHARDS],
    hash: RandomState,
    count: AtomicUsize,
    subscribers: AtomicUsize,
    log_bytes: AtomicUsize,
    /// The places of a new channel's events start here, above those of every channel that was removed.
    pub(crate) first_place: AtomicU64,
    /// The shard that is swept next.
    sweep: AtomicUsize,
    pub(crate) metrics: Metrics,
}

impl Channels {
    /// None yet.
    pub fn new(settings: Push) -> Arc<Channels> {
        Arc::new(Channels {
            settings: RwLock::new(Arc::new(settings)),
            relay: RwLock::new(None),
            epoch: format!("{:x}", fastrand::u64(..)),
            shards: Default::default(),
            hash: RandomState::new(),
            count: AtomicUsize::new(0),
            subscribers: AtomicUsize::new(0),
            log_bytes: AtomicUsize::new(0),
            first_place: AtomicU64::new(0),
            sweep: AtomicUsize::new(0),
            metrics: Metrics::default(),
        })
    }

    /// Other bounds, from the next event and the next subscriber on.
    pub fn configure(&self, settings: Push) {
        // Only the assignment runs under the lock, and a copy of the pointer: neither can panic.
        let settings = Arc::new(settings);
        *self.settings.write().unwrap_or_else(PoisonError::into_inner) = settings;
    }

    pub(crate) fn settings(&self) -> Arc<Push> {
        self.settings.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// From the next event on, events that are published here go to `relay`, too.
    pub fn set_relay(&self, relay: Option<Arc<dyn Relay>>) {
        // The old one is dropped without the lock.
        let _old = std::mem::replace(&mut *self.relay.write().unwrap_or_else(PoisonError::into_inner), relay);
    }

    fn relay(&self) -> Option<Arc<dyn Relay>> {
        self.relay.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Most bytes of an event's data.
    pub fn max_event(&self) -> usize {
        self.settings().max_event
    }

    pub(crate) fn epoch(&self) -> &str {
        &self.epoch
    }

    /// Adds the metrics.
    pub fn register(&self, registry: &mut Registry) {
        self.metrics.register(registry);
    }

    /// Publishes an event: `data` is JSON. Returns its id once it is in the channel's log. Never waits for a subscriber.
    ///
    /// # Errors
    /// An invalid name, or a bound.
    pub fn publish(&self, channel: &str, name: Option<&str>, data: &[u8]) -> Result<String, PublishError> {
        let settings = self.settings();
        check(&settings, channel, name, data)?;
        let relay = self.relay();
        // Written before the lock.
        let mut message = relay.as_ref().map(|relay| relay.encode(channel, name, data));
        let (channel, id) = loop {
            let channel = self.channel(channel, settings.max_channels).ok_or(settings.max_channels);
            let channel = channel.map_err(PublishError::Channels)?;
            let mut log = channel.log();
            if log.removed {
                continue;
            }
            let id = self.append(&settings, &mut log, name, data);
            if let (Some(relay), Some(message)) = (&relay, message.take()) {
                // Under the lock, so that other instances get the events in the order of this log.
                relay.send(&channel.name, message);
            }
            drop(log);
            break (channel, id);
        };
        channel.listeners().iter().for_each(Listener::wake);
        if let Some(relay) = relay {
            relay.wake();
        }
        self.metrics.published.inc();
        Ok(id)
    }

    /// Adds an event to a channel's log; gives its id.
    pub(crate) fn append(&self, settings: &Push, log: &mut Log, name: Option<&str>, data: &[u8]) -> String {
        let id = position::id(&self.epoch, std::iter::once(log.next() + 1));
        let event = Event::new(&id, name, data);
        let before = log.bytes();
        let others = self.log_bytes.load(Ordering::Relaxed).saturating_sub(before);
        let room = settings.log_size.min(settings.max_log_size.saturating_sub(others));
        log.push(event, settings.log_events, room);
        self.log_bytes.fetch_add(log.bytes(), Ordering::Relaxed);
        self.forget_bytes(before);
        id
    }

    /// Logs have so many bytes less.
    pub(crate) fn forget_bytes(&self, bytes: usize) {
        let total = self.log_bytes.fetch_sub(bytes, Ordering::Relaxed) - bytes;
        self.metrics.log_bytes.set(total as i64);
    }

    pub(crate) fn shard(&self, name: &str) -> MutexGuard<'_, Map> {
        let at = self.hash.hash_one(name) as usize;
        self.lock(at)
    }

    /// No code that can panic runs under this lock, and none that waits.
    pub(crate) fn lock(&self, at: usize) -> MutexGuard<'_, Map> {
        self.shards[at % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The channel with this name, a new one if there is none. `None` if there are too many.
    fn channel(&self, name: &str, most: usize) -> Option<Arc<Channel>> {
        self.channel_of(&mut self.shard(name), name, most)
    }

    fn channel_of(&self, shard: &mut Map, name: &str, most: usize) -> Option<Arc<Channel>> {
        if let Some(channel) = shard.get(name) {
            return Some(channel.clone());
        }
        reserve(&self.count, most)?;
        let name = ArcStr::from(name);
        let channel = Arc::new(Channel {
            name: name.clone(),
            log: Mutex::new(Log::new(self.first_place.load(Ordering::Acquire))),
            listeners: Mutex::default(),
            subscribers: AtomicUsize::new(0),
        });
        shard.insert(name, channel.clone());
        self.metrics.channels.inc();
        Some(channel)
    }

    /// Counts a subscriber of all channels together.
    pub(crate) fn enter(&self) -> Result<(), SubscribeError> {
        let most = self.settings().max_subscribers;
        reserve(&self.subscribers, most).ok_or(SubscribeError::Subscribers(most))?;
        self.metrics.subscribers.inc();
        Ok(())
    }

    /// Counts one less.
    pub(crate) fn leave(&self) {
        self.subscribers.fetch_sub(1, Ordering::Relaxed);
        self.metrics.subscribers.dec();
    }

    /// The channel with this name for a subscriber of it. It stays until [`Channels::leave_channel`].
    pub(crate) fn enter_channel(&self, name: &str) -> Result<Arc<Channel>, SubscribeError> {
        check_channel(name).map_err(SubscribeError::Name)?;
        let settings = self.settings();
        // Counted under the lock, so that a sweep does not remove the channel before it has its first subscriber.
        let mut shard = self.shard(name);
        let channel = self
            .channel_of(&mut shard, name, settings.max_channels)
            .ok_or(SubscribeError::Channels(settings.max_channels))?;
        let most = settings.max_channel_subscribers;
        reserve(&channel.subscribers, most).ok_or(SubscribeError::ChannelSubscribers(most))?;
        Ok(channel)
    }

    pub(crate) fn leave_channel(&self, channel: &Channel) {
        channel.log().used = Instant::now();
        channel.subscribers.fetch_sub(1, Ordering::Release);
    }

    /// Removes channels of one part of the list that have had neither subscribers nor events for long. The next call takes the next part.
    pub(crate) fn sweep(&self) {
        let idle = self.settings().idle_timeout;
        let now = Instant::now();
        let mut shard = self.lock(self.sweep.fetch_add(1, Ordering::Relaxed));
        shard.retain(|_, channel| {
            if channel.subscribers.load(Ordering::Acquire) > 0 {
                return true;
            }
            let mut log = channel.log();
            if now.saturating_duration_since(log.used) < idle {
                return true;
            }
            log.removed = true;
            // An id of this channel must not name an event of a later channel with the same name.
            self.first_place.fetch_max(log.next(), Ordering::AcqRel);
            self.forget_bytes(log.bytes());
            self.count.fetch_sub(1, Ordering::Relaxed);
            self.metrics.channels.dec();
            false
        });
    }
}

/// Adds one, unless that makes more than `most`.
fn reserve(count: &AtomicUsize, most: usize) -> Option<usize> {
    count.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |count| (count < most).then_some(count + 1)).ok()
}

/// Whether an event may be published.
pub(crate) fn check(settings: &Push, channel: &str, name: Option<&str>, data: &[u8]) -> Result<(), PublishError> {
    check_channel(channel).map_err(PublishError::Name)?;
    name.map_or(Ok(()), check_event)?;
    if data.len() > settings.max_event {
        return Err(PublishError::TooLarge { size: data.len(), limit: settings.max_event });
    }
    Ok(())
}

fn check_channel(name: &str) -> Result<(), &'static str> {
    if name.is_empty() || name.len() > MAX_CHANNEL {
        return Err("the name of a channel must have 1 to 256 bytes");
    }
    if name.chars().any(char::is_control) {
        return Err("the name of a channel must not have control characters");
    }
    Ok(())
}

fn check_event(name: &str) -> Result<(), PublishError> {
    if name.is_empty() || name.len() > MAX_NAME || name.chars().any(char::is_control) {
        let rule = format!("the name of an event must have 1 to {MAX_NAME} bytes and no control characters");
        return Err(PublishError::Event(rule));
    }
    if RESERVED.contains(&name) {
        return Err(PublishError::Event(format!("only the server sends events named {name:?}")));
    }
    Ok(())
}
