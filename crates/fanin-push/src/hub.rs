//! One worker's part: its subscribers, and the task that wakes them.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use arcstr::ArcStr;
use slab::Slab;
use tokio::time::{Instant, sleep_until};

use crate::channels::{Channel, Channels, SubscribeError};
use crate::mailbox::{Listener, Mailbox};

/// Looks at each subscriber in a heartbeat. One that was sent nothing between two looks gets a comment.
const LOOKS: u32 = 2;
/// A look is done in so many parts, so that not all subscribers are woken together.
const PARTS: u32 = 8;
/// Shortest time between two parts.
const LEAST_TICK: Duration = Duration::from_millis(1);
/// Subscribers that are woken before other tasks of the worker run.
const WAKES: usize = 1000;

/// The subscribers of one worker. It stays on its thread.
#[derive(Debug)]
pub struct Hub {
    pub(crate) channels: Arc<Channels>,
    mailbox: Arc<Mailbox>,
    subscribers: RefCell<Slab<Subscriber>>,
    local: RefCell<LocalChannels>,
    draining: Cell<bool>,
}

/// What the hub knows of a subscriber.
#[derive(Debug, Default)]
struct Subscriber {
    waker: Option<Waker>,
    /// Looks since it was sent something.
    quiet: u8,
    /// A heartbeat is due.
    due: bool,
}

/// The channels with subscribers on this worker.
#[derive(Debug, Default)]
struct LocalChannels {
    by_name: HashMap<ArcStr, usize>,
    all: Slab<LocalChannel>,
}

#[derive(Debug)]
struct LocalChannel {
    channel: Arc<Channel>,
    listener: Arc<Listener>,
    /// Numbers of subscribers.
    subscribers: Slab<usize>,
}

/// A subscriber's place in a channel of this worker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Membership {
    local: usize,
    slot: usize,
}

impl Hub {
    /// No subscribers yet. [`Hub::run`] must run on the same thread.
    pub fn new(channels: Arc<Channels>) -> Rc<Hub> {
        Rc::new(Hub {
            channels,
            mailbox: Arc::default(),
            subscribers: RefCell::default(),
            local: RefCell::default(),
            draining: Cell::new(false),
        })
    }

    /// Wakes subscribers that have events, sends heartbeats, and removes idle channels. Runs as long as the worker.
    pub async fn run(self: Rc<Self>) {
        let mut tick = 0_usize;
        let mut next = Instant::now();
        loop {
            let interval = (self.channels.settings().heartbeat / (LOOKS * PARTS)).max(LEAST_TICK);
            // Not in a row after a pause of the machine.
            next = (next + interval).max(Instant::now());
            loop {
                tokio::select! {
                    () = self.mailbox.changed() => self.wake_changed().await,
                    () = sleep_until(next) => break,
                }
            }
            self.look(tick);
            self.channels.sweep();
            tick = tick.wrapping_add(1);
        }
    }

    async fn wake_changed(&self) {
        let mut woken = 0;
        for listener in self.mailbox.take() {
            let mut at = 0;
            loop {
                // Nothing of the hub is borrowed while other tasks run.
                let more = self.wake_some(listener.channel, &mut at, &mut woken);
                if !more {
                    break;
                }
                woken = 0;
                tokio::task::yield_now().await;
            }
        }
    }

    /// Wakes subscribers of a channel from `at` on; `false` if those were all.
    fn wake_some(&self, channel: usize, at: &mut usize, woken: &mut usize) -> bool {
        let local = self.local.borrow();
        // The last subscriber may have left.
        let Some(channel) = local.all.get(channel) else { return false };
        let mut subscribers = self.subscribers.borrow_mut();
        while *at < channel.subscribers.capacity() {
            if *woken >= WAKES {
                return true;
            }
            if let Some(waker) = channel
                .subscribers
                .get(*at)
                .and_then(|key| subscribers.get_mut(*key))
                .and_then(|subscriber| subscriber.waker.take())
            {
                waker.wake();
                *woken += 1;
            }
            *at += 1;
        }
        false
    }

    fn look(&self, tick: usize) {
        let mut subscribers = self.subscribers.borrow_mut();
        for key in (tick % PARTS as usize..subscribers.capacity()).step_by(PARTS as usize) {
            let Some(subscriber) = subscribers.get_mut(key) else { continue };
            subscriber.quiet = subscriber.quiet.saturating_add(1);
            if u32::from(subscriber.quiet) >= LOOKS {
                subscriber.due = true;
                if let Some(waker) = subscriber.waker.take() {
                    waker.wake();
                }
            }
        }
    }

    /// Ends all subscriptions: each client gets an event that sends it elsewhere. New ones are refused.
    pub fn drain(&self) {
        self.draining.set(true);
        for (_, subscriber) in self.subscribers.borrow_mut().iter_mut() {
            if let Some(waker) = subscriber.waker.take() {
                waker.wake();
            }
        }
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.get()
    }

    pub(crate) fn add(&self) -> usize {
        self.subscribers.borrow_mut().insert(Subscriber::default())
    }

    pub(crate) fn remove(&self, key: usize) {
        self.subscribers.borrow_mut().try_remove(key);
    }

    /// A subscriber waits.
    pub(crate) fn park(&self, key: usize, waker: &Waker) {
        if let Some(subscriber) = self.subscribers.borrow_mut().get_mut(key) {
            match &mut subscriber.waker {
                Some(old) => old.clone_from(waker),
                none => *none = Some(waker.clone()),
            }
        }
    }

    /// A subscriber is sent something.
    pub(crate) fn sent(&self, key: usize) {
        if let Some(subscriber) = self.subscribers.borrow_mut().get_mut(key) {
            (subscriber.quiet, subscriber.due) = (0, false);
        }
    }

    /// Whether a heartbeat is due to a subscriber.
    pub(crate) fn is_due(&self, key: usize) -> bool {
        self.subscribers.borrow().get(key).is_some_and(|subscriber| subscriber.due)
    }

    /// Adds a subscriber to a channel, which is counted for it.
    pub(crate) fn join(&self, name: &str, key: usize) -> Result<(Arc<Channel>, Membership), SubscribeError> {
        let channel = self.channels.enter_channel(name)?;
        let mut local = self.local.borrow_mut();
        let at = match local.by_name.get(name) {
            Some(at) => *at,
            None => {
                let entry = local.all.vacant_entry();
                let at = entry.key();
                let listener = Arc::new(Listener::new(&self.mailbox, at));
                channel.listeners().push(listener.clone());
                entry.insert(LocalChannel { channel: channel.clone(), listener, subscribers: Slab::new() });
                local.by_name.insert(channel.name.clone(), at);
                at
            }
        };
        let slot = local.all[at].subscribers.insert(key);
        Ok((channel, Membership { local: at, slot }))
    }

    pub(crate) fn part(&self, channel: &Channel, membership: Membership) {
        let mut local = self.local.borrow_mut();
        if let Some(left) = local.all.get_mut(membership.local) {
            left.subscribers.try_remove(membership.slot);
            if left.subscribers.is_empty() {
                left.channel.listeners().retain(|listener| !Arc::ptr_eq(listener, &left.listener));
                local.all.remove(membership.local);
                local.by_name.remove(&channel.name);
            }
        }
        self.channels.leave_channel(channel);
    }
}
