//! Answers that wait for their time: one first-in-first-out queue a delay, so that pushing and popping need no heap.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

/// An answer that waits.
#[derive(Clone, Copy, Debug)]
pub struct Due {
    /// When it is sent.
    pub at: Instant,
    /// The connection's slot.
    pub slot: usize,
    /// The connection's birth: a slot may have got another connection meanwhile.
    pub birth: u64,
    /// Index of the answer.
    pub answer: usize,
}

/// All waiting answers.
#[derive(Debug, Default)]
pub struct DelayQueues {
    queues: Vec<(Duration, VecDeque<Due>)>,
}

impl DelayQueues {
    /// Adds an answer. Within one delay, pushes come in order of time.
    pub fn push(&mut self, delay: Duration, due: Due) {
        match self.queues.iter_mut().find(|(of, _)| *of == delay) {
            Some((_, queue)) => queue.push_back(due),
            None => self.queues.push((delay, VecDeque::from([due]))),
        }
    }

    /// When the next answer is due.
    pub fn next(&self) -> Option<Instant> {
        self.queues.iter().filter_map(|(_, queue)| Some(queue.front()?.at)).min()
    }

    /// An answer that is due at `now`.
    pub fn pop(&mut self, now: Instant) -> Option<Due> {
        self.queues.iter_mut().find_map(|(_, queue)| queue.pop_front_if(|due| due.at <= now))
    }
}

/// One timer file descriptor, armed for a point in time with the clock's own resolution.
#[derive(Debug)]
pub struct Timer {
    fd: OwnedFd,
    armed: Option<Instant>,
}

impl Timer {
    /// An unarmed timer.
    pub fn new() -> io::Result<Self> {
        let fd = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        Ok(Self { fd, armed: None })
    }

    /// Makes the descriptor readable at `at`; cheap if it is armed for that already.
    pub fn arm(&mut self, at: Instant) -> io::Result<()> {
        if self.armed == Some(at) {
            return Ok(());
        }
        // Zero would disarm it, so a point in the past is a nanosecond away.
        let left = at.saturating_duration_since(Instant::now()).max(Duration::from_nanos(1));
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let value = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
        timerfd_settime(&self.fd, TimerfdTimerFlags::empty(), &Itimerspec { it_interval: zero, it_value: value })?;
        self.armed = Some(at);
        Ok(())
    }

    /// It went off. The edge has been seen; arming it again resets the count, so nothing has to be read.
    pub fn fired(&mut self) {
        self.armed = None;
    }
}

impl AsRawFd for Timer {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_of_all_queues_comes_first() {
        let start = Instant::now();
        let due = |ms, answer| Due { at: start + Duration::from_millis(ms), slot: 0, birth: 0, answer };
        let mut queues = DelayQueues::default();
        queues.push(Duration::from_millis(5), due(5, 1));
        queues.push(Duration::from_millis(2), due(3, 2));
        queues.push(Duration::from_millis(5), due(6, 3));
        assert_eq!(queues.next(), Some(start + Duration::from_millis(3)));
        assert!(queues.pop(start + Duration::from_millis(2)).is_none());
        let mut popped = Vec::new();
        while let Some(due) = queues.pop(start + Duration::from_millis(5)) {
            popped.push(due.answer);
        }
        popped.sort_unstable();
        assert_eq!(popped, [1, 2]);
        assert_eq!(queues.next(), Some(start + Duration::from_millis(6)));
    }
}
