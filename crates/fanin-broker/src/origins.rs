//! What has come from each other instance, so that a missing or repeated event is noticed.

use std::collections::HashMap;

use crate::message::{Beat, SHARDS};

/// Most other instances that are remembered. Each start of an instance and each change of its broker makes a new one.
const MOST: usize = 1024;

/// A set of shards, as bits.
pub(crate) type Shards = u64;

/// The shard alone.
pub(crate) fn only(shard: usize) -> Shards {
    1 << shard
}

#[derive(Debug)]
struct Origin {
    /// The number of the last event of each shard.
    last: [u64; SHARDS],
    /// The shards of which the last event is known.
    known: Shards,
    /// When it was heard of, counted in messages.
    heard: u64,
}

/// The other instances that are connected to the broker, or were.
#[derive(Debug, Default)]
pub(crate) struct Origins {
    all: HashMap<u64, Origin>,
    messages: u64,
}

/// What an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// The next one of its shard, or the first one since this instance is connected.
    InOrder,
    /// Others before it are missing.
    AfterGap,
    /// It was here before.
    Repeated,
}

impl Origins {
    /// The origin; `true` if it is new.
    fn origin(&mut self, origin: u64) -> (&mut Origin, bool) {
        self.messages += 1;
        let is_new = !self.all.contains_key(&origin);
        if is_new && self.all.len() >= MOST {
            let oldest = self.all.iter().min_by_key(|(_, origin)| origin.heard).map(|(id, _)| *id);
            oldest.and_then(|oldest| self.all.remove(&oldest));
        }
        let entry = self.all.entry(origin).or_insert(Origin { last: [0; SHARDS], known: 0, heard: 0 });
        entry.heard = self.messages;
        (entry, is_new)
    }

    /// An event has come; `true` beside it if its origin is new.
    pub(crate) fn event(&mut self, origin: u64, shard: usize, sequence: u64) -> (Arrival, bool) {
        let (origin, is_new) = self.origin(origin);
        let last = std::mem::replace(&mut origin.last[shard], sequence);
        let arrival = if origin.known & only(shard) == 0 {
            origin.known |= only(shard);
            Arrival::InOrder
        } else if sequence <= last {
            origin.last[shard] = last;
            Arrival::Repeated
        } else if sequence == last + 1 {
            Arrival::InOrder
        } else {
            Arrival::AfterGap
        };
        (arrival, is_new)
    }

    /// A beat has come. Gives the shards of which events are missing; `true` beside them if the origin is new.
    pub(crate) fn beat(&mut self, origin: u64, beat: &Beat) -> (Shards, bool) {
        let (origin, is_new) = self.origin(origin);
        let mut missing = 0;
        for shard in 0..SHARDS {
            let last = &mut origin.last[shard];
            // Of a shard whose last event is not known yet, the origin itself must name the gaps.
            let is_missing =
                if origin.known & only(shard) == 0 { beat.lost & only(shard) != 0 } else { beat.sent[shard] > *last };
            if is_missing {
                missing |= only(shard);
            }
            *last = beat.sent[shard].max(*last);
        }
        origin.known = Shards::MAX;
        (missing, is_new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(shard: usize, last: u64, lost: u64) -> Beat {
        let mut beat = Beat { lost, sent: [0; SHARDS] };
        beat.sent[shard] = last;
        beat
    }

    #[test]
    fn missing_and_repeated_events_are_noticed() {
        let mut origins = Origins::default();
        // The first one tells where the origin is.
        assert_eq!(origins.event(1, 3, 10), (Arrival::InOrder, true));
        assert_eq!(origins.event(1, 3, 11), (Arrival::InOrder, false));
        assert_eq!(origins.event(1, 3, 11), (Arrival::Repeated, false));
        assert_eq!(origins.event(1, 3, 14), (Arrival::AfterGap, false));
        assert_eq!(origins.event(1, 3, 12), (Arrival::Repeated, false));
        assert_eq!(origins.event(1, 3, 15), (Arrival::InOrder, false));
        // Each shard and each origin has its own numbers.
        assert_eq!(origins.event(1, 4, 1), (Arrival::InOrder, false));
        assert_eq!(origins.event(2, 3, 1), (Arrival::InOrder, true));
    }

    #[test]
    fn a_beat_tells_of_missing_events_at_the_end() {
        let mut origins = Origins::default();
        assert_eq!(origins.beat(1, &sent(3, 10, 0)), (0, true));
        assert_eq!(origins.beat(1, &sent(3, 10, 0)), (0, false));
        assert_eq!(origins.beat(1, &sent(3, 12, 0)), (only(3), false));
        assert_eq!(origins.beat(1, &sent(3, 12, only(3))), (0, false), "it is known already");
        assert_eq!(origins.event(1, 3, 13), (Arrival::InOrder, false));
        assert_eq!(origins.event(1, 5, 1), (Arrival::InOrder, false));
        assert_eq!(origins.event(1, 5, 3), (Arrival::AfterGap, false));
        // A new one names its gaps itself.
        assert_eq!(origins.beat(2, &sent(3, 10, only(7))), (only(7), true));
    }

    #[test]
    fn the_number_of_origins_is_bounded() {
        let mut origins = Origins::default();
        for origin in 0..5000 {
            origins.event(origin, 0, 1);
            origins.event(u64::MAX, 0, origin + 1);
        }
        assert_eq!(origins.all.len(), MOST);
        assert!(origins.all.contains_key(&u64::MAX) && origins.all.contains_key(&4999));
    }
}
