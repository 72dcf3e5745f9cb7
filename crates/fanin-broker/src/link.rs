//! The link to a broker: connected, used until it breaks, and connected again.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use fanin_json::Doc;
use fanin_push::Channels;
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use crate::error::LinkError;
use crate::message::{self, Beat, Event, Kind, shard};
use crate::metrics::Metrics;
use crate::origins::{Arrival, Origins, Shards, only};
use crate::outbox::Outbox;
use crate::target::Target;
use crate::transport::{Receiver, Sender, Transport};

/// How long connecting may take, subscribing included.
const CONNECT: Duration = Duration::from_secs(5);
/// Time between two beats.
const BEAT: Duration = Duration::from_secs(2);
/// How long the broker may keep back what was sent to it. Then it counts as dead.
const ECHO: Duration = Duration::from_secs(10);
/// How long the broker may take to accept events.
const SEND: Duration = Duration::from_secs(10);
/// Shortest and longest time between two attempts to connect, without the random part.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));
/// A link that lasted so long was a good one: the next attempt comes soon.
const GOOD: Duration = Duration::from_secs(30);
/// Most events and bytes that are sent together.
const BATCH: (usize, usize) = (256, 1 << 20);
/// How long the last events may take when the link is no longer needed.
const LAST: Duration = Duration::from_secs(1);

/// What a link works with.
pub(crate) struct Link {
    pub(crate) target: Target,
    pub(crate) channels: Arc<Channels>,
    pub(crate) outbox: Arc<Outbox>,
    /// This instance as it was linked before: what comes from these is its own.
    pub(crate) former: Vec<u64>,
    pub(crate) metrics: Metrics,
    /// `true`: the link is no longer needed.
    pub(crate) stop: watch::Receiver<bool>,
}

/// What the gauge of this link says. An old link and a new one may overlap, so each counts only itself.
struct Whole {
    gauge: Gauge,
    is_set: Cell<bool>,
}

impl Whole {
    fn set(&self, whole: bool) {
        match (self.is_set.replace(whole), whole) {
            (false, true) => drop(self.gauge.inc()),
            (true, false) => drop(self.gauge.dec()),
            _ => {}
        }
    }
}

/// One connection.
struct Connection<'l> {
    link: &'l Link,
    whole: &'l Whole,
    origins: RefCell<Origins>,
    /// Since when messages come back.
    up: Cell<Option<Instant>>,
    /// When a message came back, at first when it was connected.
    echo: Cell<Instant>,
    /// Somebody new wants to know where this instance is.
    beat_wanted: Notify,
}

impl Link {
    /// Runs until it is stopped. Then what waits is sent, for a second at most.
    pub(crate) async fn run<T: Transport>(mut self) {
        let mut stop = self.stop.clone();
        let whole = Whole { gauge: self.metrics.connected.clone(), is_set: Cell::new(false) };
        let stopped = async {
            // An error: whoever could stop it is gone.
            let _ = stop.wait_for(|stop| *stop).await;
            whole.set(false);
            sleep(LAST).await;
        };
        tokio::select! {
            () = stopped => {}
            () = self.keep::<T>(&whole) => {}
        }
        whole.set(false);
    }

    async fn keep<T: Transport>(&mut self, whole: &Whole) {
        let mut failures = 0;
        // What the log has already.
        let mut logged = None;
        let mut was_up = false;
        loop {
            let connection = Connection {
                link: self,
                whole,
                origins: RefCell::default(),
                up: Cell::new(None),
                echo: Cell::new(Instant::now()),
                beat_wanted: Notify::new(),
            };
            let ended = caught(connection.run::<T>(was_up)).await;
            let up = connection.up.get();
            whole.set(false);
            let Err(error) = ended else { return };
            if let Some(up) = up {
                was_up = true;
                logged = None;
                if up.elapsed() >= GOOD {
                    failures = 0;
                }
            }
            if logged.as_ref() != Some(&error) {
                let reason = self.target.masked(&error.to_string());
                tracing::warn!(
                    broker = %self.target,
                    "no events from and to other instances, the broker of [push] in fanin.toml is retried: {reason}"
                );
                logged = Some(error);
            }
            let wait = backoff(failures);
            failures = failures.saturating_add(1);
            let stopped = self.stop.wait_for(|stop| *stop);
            if timeout(wait, stopped).await.is_ok() {
                return;
            }
        }
    }
}

/// A connection that panics, in a client library at what a server sends, is dropped as a whole: the link goes on with the next one.
async fn caught(connection: impl Future<Output = Result<(), LinkError>>) -> Result<(), LinkError> {
    let mut connection = pin!(connection);
    poll_fn(|context| {
        let poll = AssertUnwindSafe(|| connection.as_mut().poll(context));
        catch_unwind(poll).unwrap_or(Poll::Ready(Err(LinkError::Panicked)))
    })
    .await
}

/// The time before the next attempt: doubled each time, and half of it random, so that all instances do not come together.
fn backoff(failures: u32) -> Duration {
    let (least, most) = RETRY;
    let wait = least.saturating_mul(1 << failures.min(16)).min(most);
    wait.mul_f64(0.5 + fastrand::f64() / 2.0)
}

async fn within<R>(
    limit: Duration,
    late: LinkError,
    work: impl Future<Output = Result<R, LinkError>>,
) -> Result<R, LinkError> {
    timeout(limit, work).await.unwrap_or(Err(late))
}

impl Connection<'_> {
    /// Connects and works until the connection breaks, or until the link is stopped and the last event is sent.
    async fn run<T: Transport>(&self, was_up: bool) -> Result<(), LinkError> {
        let most = message::max_len(self.link.channels.max_event());
        let connecting = T::connect(&self.link.target, most);
        let (sender, receiver) = within(CONNECT, LinkError::Timeout(CONNECT), connecting).await?;
        self.echo.set(Instant::now());
        tokio::select! {
            ended = self.send(sender) => ended,
            error = self.receive(receiver, was_up) => Err(error),
        }
    }

    async fn send(&self, mut sender: impl Sender) -> Result<(), LinkError> {
        let mut stop = self.link.stop.clone();
        let outbox = &self.link.outbox;
        let mut next_beat = Instant::now();
        loop {
            let mut batch = outbox.take(BATCH.0, BATCH.1);
            let events = batch.len();
            let is_last = events == 0 && *stop.borrow();
            if Instant::now() >= next_beat {
                batch.push(message::beat(outbox.origin(), &outbox.beat()).into());
                next_beat = Instant::now() + BEAT;
            }
            if !batch.is_empty() {
                let refused = within(SEND, LinkError::Slow(SEND), sender.send(&batch)).await?;
                self.link.metrics.sent.inc_by((events - refused.min(events)) as u64);
                self.link.metrics.dropped.inc_by(refused as u64);
                continue;
            }
            if is_last {
                return Ok(());
            }
            tokio::select! {
                () = outbox.changed() => {}
                () = sleep_until(next_beat) => {}
                () = self.beat_wanted.notified() => next_beat = Instant::now(),
                _ = stop.changed() => {}
            }
        }
    }

    async fn receive(&self, mut receiver: impl Receiver, was_up: bool) -> LinkError {
        loop {
            let deadline = self.echo.get() + ECHO;
            let message = match timeout_at(deadline, receiver.next()).await {
                Ok(Ok(message)) if Instant::now() < deadline => message,
                Ok(Err(error)) => return error,
                _ => return LinkError::Silent(ECHO),
            };
            if *self.link.stop.borrow() {
                // Another link may deliver it, too.
                return std::future::pending().await;
            }
            self.take(&message, was_up);
        }
    }

    fn take(&self, bytes: &Bytes, was_up: bool) {
        let metrics = &self.link.metrics;
        let Some(message) = message::parse(bytes) else {
            metrics.invalid.inc();
            return;
        };
        let is_own = message.origin == self.link.outbox.origin();
        if !is_own && self.link.former.contains(&message.origin) {
            return;
        }
        match message.kind {
            Kind::Beat(beat) if is_own => self.came_back(&beat, was_up),
            Kind::Event(_) if is_own => {}
            Kind::Beat(beat) => {
                let (missing, is_new) = self.origins.borrow_mut().beat(message.origin, &beat);
                self.missing(missing, is_new);
            }
            Kind::Event(event) => {
                let shard = shard(event.channel);
                let (arrival, is_new) = self.origins.borrow_mut().event(message.origin, shard, event.sequence);
                if arrival == Arrival::Repeated {
                    metrics.invalid.inc();
                    return;
                }
                self.missing(if arrival == Arrival::AfterGap { only(shard) } else { 0 }, is_new);
                match self.deliver(bytes, &event) {
                    Some(()) => metrics.received.inc(),
                    None => metrics.invalid.inc(),
                };
            }
        }
    }

    /// Delivers an event; `None` if it is not valid here.
    fn deliver(&self, bytes: &Bytes, event: &Event<'_>) -> Option<()> {
        if event.data.len() > self.link.channels.max_event() {
            return None;
        }
        // Its length bounds its depth.
        Doc::parse(bytes.slice_ref(event.data), usize::MAX).ok()?;
        self.link.channels.receive(event.channel, event.name, event.data).ok().map(drop)
    }

    /// A beat of this instance has come back. With the first one, the link is whole.
    fn came_back(&self, beat: &Beat, was_up: bool) {
        self.echo.set(Instant::now());
        self.link.outbox.came_back(beat);
        if self.up.get().is_some() {
            return;
        }
        self.up.set(Some(Instant::now()));
        // What others published until now is missing.
        self.gap(|_| true);
        self.whole.set(true);
        if was_up {
            self.link.metrics.reconnects.inc();
        }
        tracing::info!(broker = %self.link.target, "events come from and go to other instances");
    }

    fn missing(&self, shards: Shards, from_new: bool) {
        if from_new {
            self.beat_wanted.notify_one();
        }
        // Until the link is whole, all is missing anyway.
        if shards != 0 && self.up.get().is_some() {
            self.gap(|channel| shards & only(shard(channel)) != 0);
        }
    }

    fn gap(&self, affects: impl Fn(&str) -> bool) {
        self.link.metrics.gaps.inc();
        self.link.channels.add_gap(affects);
    }
}
