//! Whether more comes than a worker can do, told from how long the first in its queue has waited.

use std::time::Duration;

use tokio::time::Instant;

use super::BURST;

/// Whether the queue gets shorter, in the long run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drains {
    /// Began when the queue was empty last, or when the time before ended.
    pub(super) began: Instant,
    /// The shortest that the first in the queue had waited since.
    least: Duration,
    /// The same of the time before; `None` for the first since the queue was empty.
    before: Option<Duration>,
    /// At the end of the time before it had not got shorter.
    pub(super) stands: bool,
}

impl Drains {
    pub(super) fn new(now: Instant) -> Drains {
        Drains { began: now, least: Duration::MAX, before: None, stands: false }
    }

    /// `oldest`: how long the first in the queue has waited.
    pub(super) fn turn(&mut self, now: Instant, bound: Duration, oldest: Duration) {
        self.least = self.least.min(oldest);
        if now.saturating_duration_since(self.began) >= bound * BURST {
            let shorter = self.before.is_none_or(|before| self.least < before / 4 * 3);
            let stands = self.least > bound && !shorter;
            *self = Drains { began: now, least: oldest, before: Some(self.least), stands };
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
    pub(super) spans: u32,
}

impl Growth {
    pub(super) fn new(now: Instant) -> Growth {
        Growth { span_began: now, waited: 0, oldest: Duration::ZERO, came: 0, spans: 0 }
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
            let spans = if stays { self.spans.saturating_add(1) } else { 0 };
            *self = Growth { span_began: now, waited: waiting, oldest, came: 0, spans };
        }
    }
}

#[cfg(test)]
mod tests {
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
            growth.spans
        };
        assert_eq!(spans(&[(80, 50, 10), (60, 80, 20), (70, 120, 30)]), 3, "it grows");
        assert_eq!(spans(&[(530, 500, 10), (25, 495, 20), (28, 493, 30)]), 3, "about as many come as are started");
        assert_eq!(spans(&[(256, 230, 10), (0, 200, 20), (2, 172, 30)]), 0, "a burst");
        assert_eq!(spans(&[(930, 900, 200), (29, 900, 190), (30, 900, 180)]), 0, "the wait gets shorter and shorter");
        assert_eq!(spans(&[(35, 5, 4), (30, 5, 4), (30, 5, 4)]), 0, "nobody waits for long");
    }
}
