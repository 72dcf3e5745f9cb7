//! Whether more comes than a worker can do, told from how long the first in its queue has waited.

use std::time::Duration;

use tokio::time::Instant;

use super::BURST;

/// Whether the queue gets shorter, in the long run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drains {
    /// Began when the queue was empty last, or when the time before ended.
    pub(super) began: Instant,
    /// How long the first in the queue had waited then; `None` when it was empty, from where a queue only grows.
    at_first: Option<Duration>,
    /// The shortest that the first has waited since.
    least: Duration,
    /// In the time before it had not got shorter.
    pub(super) stands: bool,
}

impl Drains {
    pub(super) fn new(now: Instant) -> Drains {
        Drains { began: now, at_first: None, least: Duration::MAX, stands: false }
    }

    /// `oldest`: how long the first in the queue has waited.
    pub(super) fn turn(&mut self, now: Instant, bound: Duration, oldest: Duration) {
        self.least = self.least.min(oldest);
        if now.saturating_duration_since(self.began) >= bound * BURST {
            // While nine tenths come of what can be done, a queue gets shorter by a tenth of the time, however long it is.
            let shorter = self.at_first.is_none_or(|at_first| self.least + bound < at_first);
            let stands = self.least > bound && !shorter;
            *self = Drains { began: now, at_first: Some(oldest), least: oldest, stands };
        }
    }
}

/// Whether about as many requests come as are started, or more, span by span. Clients that each wait for an answer before they ask
/// again let a queue grow no longer than they are many; it does not get shorter either.
#[derive(Clone, Copy, Debug)]
pub(super) struct Growth {
    span_began: Instant,
    /// How many waited then.
    waited: usize,
    /// How long the first of them had.
    oldest: Duration,
    /// How many have come since.
    came: usize,
    /// Spans in a row that were so, and in which the wait did not get shorter.
    spans: u32,
    /// How many came in all of those but the first, in which there may have been a burst.
    came_since: usize,
    /// And how many were started.
    gone_since: usize,
}

impl Growth {
    pub(super) fn new(now: Instant) -> Growth {
        Growth { span_began: now, waited: 0, oldest: Duration::ZERO, came: 0, spans: 0, came_since: 0, gone_since: 0 }
    }

    /// Spans in a row in which it went on, counted only if at least so many hundredths came of what was started in all of them
    /// together. A single one says little: behind a burst a worker that has enough to do looks like one that has too much.
    pub(super) fn spans(&self, hundredths: usize) -> u32 {
        if self.came_since * 100 >= self.gone_since * hundredths { self.spans } else { 0 }
    }

    /// It has gone on for so many spans.
    #[cfg(test)]
    pub(super) fn of_spans(now: Instant, spans: u32) -> Growth {
        Growth { spans, ..Growth::new(now) }
    }

    /// One more waits.
    pub(super) fn comes(self) -> Growth {
        Growth { came: self.came + 1, ..self }
    }

    /// `waiting`: how many do, and `oldest`: how long the first of them has.
    pub(super) fn turn(&mut self, now: Instant, span: Duration, waiting: usize, oldest: Duration) {
        if now.saturating_duration_since(self.span_began) >= span {
            let gone = (self.waited + self.came).saturating_sub(waiting);
            // Of a burst hardly anybody is left to come.
            let goes_on = self.came > 0 && self.came * 4 >= gone * 3;
            let stays = goes_on && oldest >= self.oldest && oldest > span / 2;
            let next = Growth { span_began: now, waited: waiting, oldest, ..Growth::new(now) };
            *self = match (stays, self.spans) {
                (false, _) => next,
                (true, 0) => Growth { spans: 1, ..next },
                (true, spans) => Growth {
                    spans: spans.saturating_add(1),
                    came_since: self.came_since + self.came,
                    gone_since: self.gone_since + gone,
                    ..next
                },
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::AS_MANY;
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_queue_that_gets_shorter_is_no_overload() {
        // What the first in the queue has waited, each ten milliseconds, and when the queue is found to stand.
        let found = |waited: &dyn Fn(u32) -> u32| {
            let now = Instant::now();
            let mut drains = Drains::new(now);
            (1..100).find(|at| {
                drains.turn(now + at * 10 * MS, 5 * MS, waited(*at) * MS);
                drains.stands
            })
        };
        assert_eq!(found(&|_| 8), Some(10), "not shorter in the second fifty milliseconds than in the first");
        assert_eq!(found(&|at| if at == 33 { 3 } else { 8 }), Some(10));
        assert_eq!(found(&|at| 5 + at / 20), Some(25), "longer than the bound only then");
        assert_eq!(found(&|at| 300_u32.saturating_sub(at * 13)), None, "after a pause of the machine it drains");
        assert_eq!(found(&|at| if at % 4 == 0 { 4 } else { 40 }), None, "it is almost empty now and then");
    }

    #[test]
    fn of_a_burst_hardly_anybody_is_left_to_come() {
        // How many come, how many wait and how long the first of them has, each ten milliseconds; the spans at the end.
        let spans = |waits: &[(u32, usize, u32)]| {
            let now = Instant::now();
            let mut growth = Growth::new(now);
            for ((came, waiting, oldest), at) in waits.iter().zip(1..) {
                (0..*came).for_each(|_| growth = growth.comes());
                growth.turn(now + at * 10 * MS, 10 * MS, *waiting, *oldest * MS);
            }
            growth.spans(AS_MANY)
        };
        assert_eq!(spans(&[(80, 50, 10), (60, 80, 20), (70, 120, 30)]), 3, "it grows");
        assert_eq!(spans(&[(530, 500, 10), (29, 499, 20), (30, 498, 30)]), 3, "about as many come as are started");
        assert_eq!(spans(&[(256, 230, 10), (0, 200, 20), (2, 172, 30)]), 0, "a burst");
        assert_eq!(spans(&[(930, 900, 200), (29, 900, 190), (30, 900, 180)]), 0, "the wait gets shorter and shorter");
        assert_eq!(spans(&[(35, 5, 4), (30, 5, 4), (30, 5, 4)]), 0, "nobody waits for long");
    }
}
