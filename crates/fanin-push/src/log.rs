//! The log of a channel: its newest events, bounded by number and bytes.

use std::collections::VecDeque;

use tokio::time::Instant;

use crate::event::Event;

#[derive(Debug)]
pub(crate) struct Log {
    events: VecDeque<Event>,
    bytes: usize,
    /// The place of the next event.
    next: u64,
    /// The place after the last gap. 0: there was none.
    after_gap: u64,
    /// When something was published here or the last subscriber left.
    pub(crate) used: Instant,
    /// The channel is no longer in the list of channels.
    pub(crate) removed: bool,
}

/// What is at a place of the log.
#[derive(Debug)]
pub(crate) enum Found {
    Event(Event),
    /// Nothing yet.
    End,
    /// It has left the log, or was never in it.
    Lost,
    /// Events of other instances are missing from here on.
    Gap,
}

impl Log {
    /// An empty log whose first event has the place `first`.
    pub(crate) fn new(first: u64) -> Log {
        Log { events: VecDeque::new(), bytes: 0, next: first, after_gap: 0, used: Instant::now(), removed: false }
    }

    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn find(&self, place: u64) -> Found {
        if place < self.after_gap {
            return Found::Gap;
        }
        let first = self.next - self.events.len() as u64;
        if place == self.next {
            return Found::End;
        }
        let at = place.checked_sub(first).and_then(|at| usize::try_from(at).ok());
        match at.and_then(|at| self.events.get(at)) {
            Some(event) => Found::Event(event.clone()),
            None => Found::Lost,
        }
    }

    /// Whether all events from a place on are there.
    pub(crate) fn has(&self, place: u64) -> bool {
        (self.next - self.events.len() as u64..=self.next).contains(&place)
    }

    /// Events are missing now. The gap takes a place, which nothing will fill: whoever is before it hears of it, even after coming back.
    pub(crate) fn add_gap(&mut self) {
        self.events.clear();
        self.bytes = 0;
        self.next += 1;
        self.after_gap = self.next;
    }

    /// Where somebody who has heard of the last gap goes on.
    pub(crate) fn after_gap(&self) -> u64 {
        if self.has(self.after_gap) { self.after_gap } else { self.next }
    }

    /// Adds an event; the oldest leave until it has at most so many events and bytes. The newest stays.
    pub(crate) fn push(&mut self, event: Event, max_events: usize, max_bytes: usize) {
        self.bytes += event.len();
        self.events.push_back(event);
        self.next += 1;
        self.used = Instant::now();
        while self.events.len() > 1 && (self.events.len() > max_events || self.bytes > max_bytes) {
            self.bytes -= self.events.pop_front().map_or(0, |event| event.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(events: usize, max_events: usize, max_bytes: usize) -> Log {
        let mut log = Log::new(10);
        (0..events).for_each(|_| log.push(Event::new("e", None, b"12345678"), max_events, max_bytes));
        log
    }

    #[test]
    fn the_oldest_leave_by_number_and_by_bytes() {
        let one = log(1, 9, 1).bytes();
        for log in [log(5, 3, 1000), log(5, 100, one * 3)] {
            assert_eq!((log.events.len(), log.next(), log.bytes()), (3, 15, one * 3));
            assert!(matches!(log.find(11), Found::Lost) && !log.has(11));
            assert!(matches!(log.find(12), Found::Event(_)) && log.has(12));
            assert!(matches!(log.find(15), Found::End) && log.has(15));
            assert!(matches!(log.find(16), Found::Lost) && !log.has(16));
        }
        // The newest stays although it alone is too large.
        assert_eq!(log(5, 100, 1).events.len(), 1);
    }

    #[test]
    fn a_gap_takes_a_place() {
        let mut log = log(2, 3, 1000);
        log.add_gap();
        assert_eq!((log.events.len(), log.bytes(), log.next(), log.after_gap()), (0, 0, 13, 13));
        assert!(matches!(log.find(12), Found::Gap) && !log.has(12));
        assert!(matches!(log.find(13), Found::End) && log.has(13));
        log.push(Event::new("e", None, b"1"), 3, 1000);
        assert!(matches!(log.find(11), Found::Gap) && matches!(log.find(13), Found::Event(_)));
        assert_eq!(log.after_gap(), 13);
        (0..3).for_each(|_| log.push(Event::new("e", None, b"1"), 3, 1000));
        // Its first event has left the log.
        assert_eq!(log.after_gap(), log.next());
        assert!(matches!(log.find(12), Found::Gap) && matches!(log.find(13), Found::Lost));
    }

    #[test]
    fn an_empty_log_has_only_its_end() {
        let log = log(0, 3, 100);
        assert!(matches!(log.find(10), Found::End) && matches!(log.find(9), Found::Lost));
    }
}
