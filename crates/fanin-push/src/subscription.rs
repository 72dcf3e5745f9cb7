//! One subscriber: a place in the log of each of its channels.

use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use smallvec::SmallVec;
use tokio::time::{Sleep, sleep};

use crate::channels::{Channel, SubscribeError};
use crate::event;
use crate::hub::{Hub, Membership};
use crate::log::Found;
use crate::position;

/// The events of some channels, as the bytes of a `text/event-stream`. It holds no events: what its reader has not taken stays in the
/// logs, or leaves them.
pub struct Subscription {
    hub: Rc<Hub>,
    key: usize,
    cursors: SmallVec<[Cursor; 1]>,
    /// The channel that is read first next time, so that a busy one does not hide the others.
    turn: u8,
    state: State,
    /// Until when it does not tell its client of a gap in a log. All subscribers have the same gaps, and their clients load their state
    /// again, so each waits another time.
    pause: Option<Pin<Box<Sleep>>>,
    /// Its heartbeats are answered, so they come also while there are events.
    answers: bool,
}

struct Cursor {
    channel: Arc<Channel>,
    membership: Membership,
    /// The place of the next event to send.
    next: u64,
}

/// Why a subscription ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The log has passed the client.
    Lost,
    /// The server drains.
    Drain,
}

enum State {
    /// Nothing is sent yet; `true`: events since the last id are missing.
    Starting(bool),
    Running,
    Ended(End),
}

impl Subscription {
    /// Subscribes to channels. It starts with what is published from now on. A client that sends the id of its last event gets the events
    /// after that one first, if the logs still have them.
    ///
    /// # Errors
    /// An invalid name, or a bound.
    pub fn new<'n>(
        hub: &Rc<Hub>,
        names: impl ExactSizeIterator<Item = &'n str>,
        last: Option<&str>,
    ) -> Result<Subscription, SubscribeError> {
        let subscription = Subscription::enter(hub, names, last);
        if subscription.is_err() {
            hub.channels.metrics.refused.inc();
        }
        subscription
    }

    fn enter<'n>(
        hub: &Rc<Hub>,
        names: impl ExactSizeIterator<Item = &'n str>,
        last: Option<&str>,
    ) -> Result<Subscription, SubscribeError> {
        let limit = hub.channels.settings().max_channels_per_subscriber;
        let count = names.len();
        if count == 0 || count > limit {
            return Err(SubscribeError::Count { count, limit });
        }
        if hub.is_draining() {
            return Err(SubscribeError::Draining);
        }
        hub.channels.enter()?;
        // From here on its drop takes back what it has.
        let mut this = Subscription {
            hub: hub.clone(),
            key: hub.add(),
            cursors: SmallVec::with_capacity(count),
            turn: 0,
            state: State::Starting(false),
            pause: None,
            answers: false,
        };
        for name in names {
            let (channel, membership) = hub.join(name, this.key)?;
            let next = channel.log().next();
            this.cursors.push(Cursor { channel, membership, next });
        }
        if let Some(last) = last {
            let places = position::parse(last, hub.channels.epoch(), count);
            let known = places.filter(|places| {
                this.cursors.iter().zip(places).all(|(cursor, place)| cursor.channel.log().has(*place))
            });
            match known {
                Some(places) => {
                    this.cursors.iter_mut().zip(places).for_each(|(cursor, place)| cursor.next = place);
                }
                None => this.state = State::Starting(true),
            }
        }
        Ok(this)
    }

    /// The client answers heartbeats: they come also while there are events.
    pub(crate) fn answers_heartbeats(&mut self) {
        self.answers = true;
    }

    /// Why it has ended, if it has.
    pub(crate) fn end(&self) -> Option<End> {
        match self.state {
            State::Ended(end) => Some(end),
            State::Starting(_) | State::Running => None,
        }
    }

    fn id(&self) -> String {
        position::id(self.hub.channels.epoch(), self.cursors.iter().map(|cursor| cursor.next))
    }

    /// The next bytes; `None` at the end.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let next = match self.state {
            State::Starting(lost) => {
                self.state = State::Running;
                if lost {
                    self.hub.channels.metrics.lost.inc();
                }
                Some(event::start(&self.id(), self.hub.channels.settings().retry.as_millis(), lost))
            }
            State::Running => self.next(context),
            State::Ended(_) => return Poll::Ready(None),
        };
        match next {
            Some(bytes) => {
                if !self.answers || bytes == event::HEARTBEAT {
                    self.hub.sent(self.key);
                }
                Poll::Ready(Some(bytes))
            }
            None => {
                self.hub.park(self.key, context.waker());
                Poll::Pending
            }
        }
    }

    fn next(&mut self, context: &mut Context<'_>) -> Option<Bytes> {
        if self.is_pause_over(context) {
            return Some(self.tell_gap());
        }
        let mut gap = false;
        let count = self.cursors.len();
        for step in 0..count {
            let at = (self.turn as usize + step) % count;
            let cursor = &mut self.cursors[at];
            // The lock ends with this line.
            let found = cursor.channel.log().find(cursor.next);
            match found {
                Found::End => {}
                Found::Event(event) => {
                    cursor.next += 1;
                    self.hub.channels.metrics.delivered.inc();
                    if count == 1 {
                        return Some(event.bytes());
                    }
                    // At most 256 channels.
                    self.turn = ((at + 1) % count) as u8;
                    return Some(event.with_id(&self.id()));
                }
                Found::Lost => return Some(self.lost()),
                // Nothing of this channel until the client has heard of the gap.
                Found::Gap => gap = true,
            }
        }
        if gap && self.pause.is_none() {
            self.pause = Some(Box::pin(sleep(spread(self.hub.channels.settings().retry))));
            if self.is_pause_over(context) {
                return Some(self.tell_gap());
            }
        }
        if self.hub.is_draining() {
            self.state = State::Ended(End::Drain);
            let retry = self.hub.channels.settings().retry;
            return Some(event::drain((retry + spread(retry)).as_millis()));
        }
        self.hub.is_due(self.key).then_some(event::HEARTBEAT)
    }

    fn is_pause_over(&mut self, context: &mut Context<'_>) -> bool {
        self.pause.as_mut().is_some_and(|pause| pause.as_mut().poll(context).is_ready())
    }

    /// Events of other instances are missing. The client is told where the channels are now, and gets what follows.
    #[cold]
    fn tell_gap(&mut self) -> Bytes {
        self.pause = None;
        self.hub.channels.metrics.lost.inc();
        for cursor in &mut self.cursors {
            let log = cursor.channel.log();
            if matches!(log.find(cursor.next), Found::Gap) {
                cursor.next = log.after_gap();
            }
        }
        event::lost(&self.id())
    }

    /// The log has passed this subscriber. It is told where the channels are now, so that it comes back there, and ends.
    #[cold]
    fn lost(&mut self) -> Bytes {
        self.state = State::Ended(End::Lost);
        self.hub.channels.metrics.lost.inc();
        for cursor in &mut self.cursors {
            cursor.next = cursor.channel.log().next();
        }
        event::lost(&self.id())
    }
}

/// A random time up to `most`.
fn spread(most: Duration) -> Duration {
    Duration::from_millis(fastrand::u64(0..=most.as_millis() as u64))
}

impl Drop for Subscription {
    fn drop(&mut self) {
        for cursor in self.cursors.drain(..) {
            self.hub.part(&cursor.channel, cursor.membership);
        }
        self.hub.remove(self.key);
        self.hub.channels.leave();
    }
}
