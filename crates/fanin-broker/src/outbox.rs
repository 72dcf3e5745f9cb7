//! The events that wait for the broker, bounded in number and bytes.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use fanin_push::Relay;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::message::{self, Beat, SHARDS, shard};
use crate::metrics::Metrics;
use crate::origins::{Shards, only};

/// Shortest time between two lines of the log about dropped events.
const QUIET: Duration = Duration::from_secs(60);

/// Events on their way to the broker, in the order of their publishing. If there are too many, the oldest go: what remains is what other
/// instances need most after an outage.
#[derive(Debug)]
pub(crate) struct Outbox {
    origin: u64,
    most: usize,
    most_bytes: usize,
    queue: Mutex<Queue>,
    changed: Notify,
    metrics: Metrics,
}

#[derive(Debug)]
struct Queue {
    events: VecDeque<Waiting>,
    bytes: usize,
    /// The number of the last event of each shard.
    last: [u64; SHARDS],
    /// The number of the last event of each shard that has left the queue, to the broker or dropped.
    left: [u64; SHARDS],
    /// The shards with events dropped that other instances may not know of.
    lost: Shards,
    /// Events were dropped, and the log has no line about it.
    to_log: bool,
    logged: Option<Instant>,
}

#[derive(Debug)]
struct Waiting {
    shard: usize,
    sequence: u64,
    message: Vec<u8>,
}

impl Outbox {
    pub(crate) fn new(most: usize, most_bytes: usize, metrics: &Metrics) -> Outbox {
        Outbox {
            origin: fastrand::u64(..),
            most,
            most_bytes,
            queue: Mutex::new(Queue {
                events: VecDeque::new(),
                bytes: 0,
                last: [0; SHARDS],
                left: [0; SHARDS],
                lost: 0,
                to_log: false,
                logged: None,
            }),
            changed: Notify::new(),
            metrics: metrics.clone(),
        }
    }

    /// Names this instance to the others.
    pub(crate) fn origin(&self) -> u64 {
        self.origin
    }

    /// No code that can panic runs under this lock, and none that waits.
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there are events.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Takes the oldest events, at least one if there is any.
    pub(crate) fn take(&self, most: usize, most_bytes: usize) -> Vec<Bytes> {
        let mut queue = self.queue();
        let mut taken = Vec::new();
        let mut bytes = 0;
        while let Some(event) = queue.pop() {
            bytes += event.message.len();
            taken.push(event.message.into());
            if taken.len() >= most || bytes >= most_bytes {
                break;
            }
        }
        taken
    }

    /// What to tell the others now, after the events that were taken.
    pub(crate) fn beat(&self) -> Beat {
        let queue = self.queue();
        Beat { lost: queue.lost, sent: queue.left }
    }

    /// A beat has come back: the others know of these gaps.
    pub(crate) fn came_back(&self, beat: &Beat) {
        let mut queue = self.queue();
        for shard in 0..SHARDS {
            // Unless more were dropped since.
            if beat.lost & only(shard) != 0 && beat.sent[shard] == queue.left[shard] {
                queue.lost &= !only(shard);
            }
        }
    }
}

impl Queue {
    fn pop(&mut self) -> Option<Waiting> {
        let event = self.events.pop_front()?;
        self.bytes -= event.message.len();
        self.left[event.shard] = event.sequence;
        Some(event)
    }
}

impl Relay for Outbox {
    fn encode(&self, channel: &str, name: Option<&str>, data: &[u8]) -> Vec<u8> {
        message::event(self.origin, channel, name, data)
    }

    fn send(&self, channel: &str, mut message: Vec<u8>) {
        let shard = shard(channel);
        let mut queue = self.queue();
        queue.last[shard] += 1;
        let sequence = queue.last[shard];
        message::number(&mut message, sequence);
        queue.bytes += message.len();
        queue.events.push_back(Waiting { shard, sequence, message });
        while queue.events.len() > self.most || queue.bytes > self.most_bytes {
            let Some(dropped) = queue.pop() else { break };
            queue.lost |= only(dropped.shard);
            queue.to_log = true;
            self.metrics.dropped.inc();
        }
    }

    fn wake(&self) {
        self.changed.notify_one();
        let mut queue = self.queue();
        if !std::mem::take(&mut queue.to_log) {
            return;
        }
        let now = Instant::now();
        if queue.logged.is_some_and(|logged| now.saturating_duration_since(logged) < QUIET) {
            return;
        }
        queue.logged = Some(now);
        drop(queue);
        tracing::warn!(
            "events for other instances are dropped: they wait for the broker beyond broker_queue or broker_queue_size of [push]"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Kind, parse};

    fn outbox(most: usize, most_bytes: usize) -> Outbox {
        Outbox::new(most, most_bytes, &Metrics::default())
    }

    fn publish(outbox: &Outbox, channel: &str, data: &[u8]) {
        let message = outbox.encode(channel, None, data);
        outbox.send(channel, message);
        outbox.wake();
    }

    fn events(messages: &[Bytes]) -> Vec<(String, u64, Vec<u8>)> {
        let event = |bytes| match parse(bytes).expect("a message").kind {
            Kind::Event(event) => (event.channel.to_owned(), event.sequence, event.data.to_vec()),
            Kind::Beat(_) => panic!("a beat"),
        };
        messages.iter().map(|bytes| event(bytes)).collect()
    }

    #[test]
    fn events_are_numbered_within_their_shard() {
        let outbox = outbox(10, 1000);
        for (channel, data) in [("a", b"1"), ("b", b"2"), ("a", b"3")] {
            publish(&outbox, channel, data);
        }
        assert_ne!(shard("a"), shard("b"));
        assert_eq!(outbox.beat(), Beat { lost: 0, sent: [0; SHARDS] });
        let first = events(&outbox.take(2, 1000));
        assert_eq!(first, [("a".into(), 1, b"1".to_vec()), ("b".into(), 1, b"2".to_vec())]);
        assert_eq!(events(&outbox.take(2, 1000)), [("a".into(), 2, b"3".to_vec())]);
        assert_eq!((outbox.beat().sent[shard("a")], outbox.beat().sent[shard("b")]), (2, 1));
        assert!(outbox.take(2, 1000).is_empty());
    }

    #[test]
    fn the_oldest_leave_by_number_and_by_bytes_and_beats_tell_of_it() {
        let one = message::event(0, "a", None, b"1").len();
        for outbox in [outbox(2, 10_000), outbox(100, 2 * one)] {
            for data in [b"1", b"2", b"3", b"4"] {
                publish(&outbox, "a", data);
            }
            let shard = shard("a");
            let beat = outbox.beat();
            assert_eq!((beat.lost, beat.sent[shard], outbox.metrics.dropped.get()), (only(shard), 2, 2));
            // More is dropped before the beat comes back.
            publish(&outbox, "a", b"5");
            outbox.came_back(&beat);
            let beat = outbox.beat();
            assert_eq!(beat.lost, only(shard));
            outbox.came_back(&beat);
            assert_eq!(outbox.beat().lost, 0);
            assert_eq!(events(&outbox.take(9, 1)), [("a".into(), 4, b"4".to_vec())]);
            assert_eq!(events(&outbox.take(9, 1)), [("a".into(), 5, b"5".to_vec())]);
        }
    }

    #[test]
    fn an_event_that_alone_is_too_large_is_dropped() {
        let outbox = outbox(10, 10);
        publish(&outbox, "a", b"1");
        assert!(outbox.take(9, 1000).is_empty());
        assert_eq!(outbox.metrics.dropped.get(), 1);
    }
}
