//! Are the lines of a log in the order in which they were written, and did its clock jump?
//!
//! A line is written when its request ends, so ends never fall from line to line, but for small disorder among the
//! writer's threads. What is out of order costs nothing (requests are sorted), but a clock that was set back lays two
//! stretches of time over each other, and that must be said.

use super::record::SECOND;
use super::stamps::Stamps;

/// A fall of ends by more is a clock set back, or a line astray.
const BACK: i64 = 60 * SECOND;
/// A rise of ends by more is a clock set ahead, or a quiet time.
const AHEAD: i64 = 3600 * SECOND;
/// A clock that comes back within so many lines was never set: the lines between are astray.
const ASTRAY: u64 = 8;

/// A leap of the clock from one line to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Jump {
    pub(crate) line: u64,
    /// Microseconds; negative: back.
    pub(crate) by: i64,
}

/// Follows the ends of one log's requests.
#[derive(Debug, Default)]
pub(crate) struct Order {
    previous: Option<Previous>,
    furthest: i64,
    pending: Option<Jump>,
    /// The first leaps; there may be more.
    pub(crate) jumps: Vec<Jump>,
    pub(crate) more_jumps: u64,
    /// Lines behind one before them, and the furthest behind.
    pub(crate) behind: u64,
    pub(crate) furthest_behind: i64,
    /// Lines of a wholly different time than those around them.
    pub(crate) astray: u64,
    lines: u64,
    /// Lines behind the line before if stamps are starts, and if they are ends.
    falls_as_starts: u64,
    falls_as_ends: u64,
}

#[derive(Debug, Clone, Copy)]
struct Previous {
    stamp: i64,
    length: i64,
    end: i64,
}

impl Order {
    /// The next request. `length` in microseconds; `slack`: how much earlier than the line before is no disorder.
    pub(crate) fn next(&mut self, line: u64, stamp: i64, length: u64, stamps: Stamps, slack: i64) {
        let length = length as i64;
        let end = match stamps {
            Stamps::Start => stamp + length,
            Stamps::End => stamp,
        };
        self.lines += 1;
        let Some(previous) = self.previous.replace(Previous { stamp, length, end }) else {
            self.furthest = end;
            return;
        };
        self.falls_as_starts += u64::from(stamp + length < previous.stamp + previous.length - slack);
        self.falls_as_ends += u64::from(stamp < previous.stamp - slack);
        let step = end - previous.end;
        if !(-BACK..=AHEAD).contains(&step) {
            self.leap(Jump { line, by: step });
        } else if self.pending.is_some_and(|pending| line >= pending.line + ASTRAY) {
            self.settle();
        }
        // While it is open whether the clock was set, no line can be said to be behind.
        if self.pending.is_none() {
            if end < self.furthest - slack {
                self.behind += 1;
                self.furthest_behind = self.furthest_behind.max(self.furthest - end);
            }
            self.furthest = self.furthest.max(end);
        }
    }

    fn leap(&mut self, jump: Jump) {
        match self.pending {
            Some(pending) if jump.line < pending.line + ASTRAY && (pending.by < 0) != (jump.by < 0) => {
                self.pending = None;
                self.astray += jump.line - pending.line;
            }
            _ => {
                self.settle();
                self.pending = Some(jump);
            }
        }
    }

    fn settle(&mut self) {
        let Some(jump) = self.pending.take() else { return };
        // The clock goes on from where it is now.
        self.furthest = self.previous.map_or(i64::MIN, |previous| previous.end);
        if self.jumps.len() < 3 {
            self.jumps.push(jump);
        } else {
            self.more_jumps += 1;
        }
    }

    /// To be called after the last line.
    pub(crate) fn finish(&mut self) {
        self.settle();
    }

    /// What the order of the lines says about stamps: their ends rise if they are read the right way, but do not if read
    /// the other way. `None` if it cannot be told.
    pub(crate) fn suggests(&self) -> Option<Stamps> {
        let (often, seldom) = (self.lines / 20, self.lines / 200);
        if self.falls_as_starts > often && self.falls_as_ends <= seldom {
            Some(Stamps::End)
        } else if self.falls_as_ends > often && self.falls_as_starts <= seldom {
            Some(Stamps::Start)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn follow(ends: impl IntoIterator<Item = i64>) -> Order {
        let mut order = Order::default();
        for (line, end) in (1..).zip(ends) {
            order.next(line, end * SECOND, 0, Stamps::End, 0);
        }
        order.finish();
        order
    }

    #[test]
    fn small_disorder_is_counted() {
        let order = follow([10, 12, 11, 13, 10, 14]);
        assert_eq!((order.behind, order.furthest_behind, order.jumps.len()), (2, 3 * SECOND, 0));
    }

    #[test]
    fn a_clock_set_back_is_found_once() {
        let order = follow((10_000..10_050).chain(6_400..6_500));
        assert_eq!(order.jumps, [Jump { line: 51, by: -3649 * SECOND }]);
        assert_eq!(order.behind, 0);
    }

    #[test]
    fn a_quiet_time_is_found_and_a_line_astray_is_not_a_jump() {
        assert_eq!(follow((0..50).chain(9_000..9_050)).jumps, [Jump { line: 51, by: 8951 * SECOND }]);
        let mut astray: Vec<i64> = (10_000..10_050).collect();
        astray[20] = 17;
        astray[40] = 99_000;
        let order = follow(astray);
        assert_eq!((order.jumps.len(), order.astray, order.behind), (0, 2, 0));
        assert_eq!(follow((0..100).flat_map(|jump| (0..20).map(move |at| -1000 * jump + at))).more_jumps, 96);
    }

    #[test]
    fn the_order_tells_what_stamps_mark() {
        let mut ends = Order::default();
        let mut starts = Order::default();
        for number in 0..1000 {
            let (end, length) = (number * SECOND, (number * 3 % 7 * SECOND) as u64);
            ends.next(number as u64, end, length, Stamps::Start, 0);
            starts.next(number as u64, end - length as i64, length, Stamps::End, 0);
        }
        assert_eq!(ends.suggests(), Some(Stamps::End));
        assert_eq!(starts.suggests(), Some(Stamps::Start));
        assert_eq!(follow(0..100).suggests(), None);
    }
}
