//! Peers that are slower than a minimum rate: those that do not take what is sent to them, and those that do not send what is waited for.
//!
//! Rates are judged over windows. Whoever checks connections says what time it is; sending and reading need no clock.

use std::cell::Cell;
use std::io::IoSlice;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Buf;

/// The least that a peer must do: so many bytes per second, on average over a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MinRate {
    /// Bytes per second.
    pub rate: usize,
    /// Over which they are counted.
    pub window: Duration,
}

impl MinRate {
    /// Bytes of one window.
    fn least(&self) -> usize {
        (self.rate as f64 * self.window.as_secs_f64()) as usize
    }
}

/// Bytes that a peer has not taken, and how fast it takes them.
#[derive(Debug, Default)]
pub struct Unsent {
    bytes: Cell<usize>,
    /// When the time began in which `taken` is counted: at the first check since something is unsent.
    began: Cell<Option<Instant>>,
    taken: Cell<usize>,
}

impl Unsent {
    /// Bytes that the peer has not taken.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes.get()
    }

    /// More bytes are due.
    #[inline]
    pub fn add(&self, bytes: usize) {
        if self.bytes.get() == 0 {
            self.began.set(None);
            self.taken.set(0);
        }
        self.bytes.set(self.bytes.get() + bytes);
    }

    /// The peer has taken bytes, or will never get them.
    #[inline]
    pub fn take(&self, bytes: usize) {
        self.bytes.set(self.bytes.get() - bytes);
        self.taken.set(self.taken.get() + bytes);
    }

    /// Whether the peer has taken less than the minimum for a whole window. A window that has ended begins anew. To be called several
    /// times a window: the first one begins with the first call.
    pub fn is_slow(&self, min: MinRate, now: Instant) -> bool {
        if self.bytes.get() == 0 {
            return false;
        }
        let began = self.began.get().unwrap_or_else(|| {
            self.began.set(Some(now));
            now
        });
        if now.saturating_duration_since(began) <= min.window {
            return false;
        }
        // Who has taken less than that, but all there was, is not slow.
        let least = min.least().min(self.bytes.get() + self.taken.get());
        let slow = self.taken.get() < least;
        self.began.set(Some(now));
        self.taken.set(0);
        slow
    }
}

/// Bytes of which each counts as taken by a peer once the protocol has written it, or has dropped it.
#[derive(Debug)]
pub struct UnsentBuf<B: Buf, T: AsRef<Unsent>> {
    bytes: B,
    owner: Rc<T>,
}

impl<B: Buf, T: AsRef<Unsent>> UnsentBuf<B, T> {
    /// The owner's count has these bytes already.
    #[inline]
    pub fn new(bytes: B, owner: Rc<T>) -> UnsentBuf<B, T> {
        UnsentBuf { bytes, owner }
    }
}

impl<B: Buf, T: AsRef<Unsent>> Buf for UnsentBuf<B, T> {
    #[inline]
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    #[inline]
    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    #[inline]
    fn chunks_vectored<'a>(&'a self, to: &mut [IoSlice<'a>]) -> usize {
        self.bytes.chunks_vectored(to)
    }

    #[inline]
    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
        (*self.owner).as_ref().take(count);
    }
}

impl<B: Buf, T: AsRef<Unsent>> Drop for UnsentBuf<B, T> {
    #[inline]
    fn drop(&mut self) {
        let rest = self.bytes.remaining();
        if rest > 0 {
            (*self.owner).as_ref().take(rest);
        }
    }
}

/// How fast a peer sends while it is waited for. Time in which nobody waits for it does not count. All times are those of one clock, which
/// may stand still while the peer is kept from sending.
#[derive(Debug)]
pub struct Awaited {
    min: MinRate,
    /// Waited in this window, without the wait that goes on.
    waited: Duration,
    came: usize,
    since: Option<Instant>,
}

impl Awaited {
    /// Nothing has come, and nobody waits.
    pub fn new(min: MinRate) -> Awaited {
        Awaited { min, waited: Duration::ZERO, came: 0, since: None }
    }

    /// Whether somebody waits.
    #[inline]
    pub fn is_waiting(&self) -> bool {
        self.since.is_some()
    }

    /// Nobody waits any more.
    pub fn end_wait(&mut self, now: Instant) {
        if let Some(since) = self.since.take() {
            self.waited += now.saturating_duration_since(since);
        }
    }

    /// Bytes have come.
    #[inline]
    pub fn came(&mut self, bytes: usize) {
        self.came += bytes;
    }

    /// Somebody waits, from now on if nobody did before. Returns after how long to call this again at the latest.
    ///
    /// # Errors
    /// For a whole window, the peer has sent less than the minimum.
    pub fn wait(&mut self, now: Instant) -> Result<Duration, TooSlow> {
        let since = *self.since.get_or_insert(now);
        let waited = self.waited + now.saturating_duration_since(since);
        if waited < self.min.window {
            return Ok(self.min.window - waited);
        }
        if self.came < self.min.least() {
            return Err(TooSlow);
        }
        *self = Awaited { since: Some(now), ..Awaited::new(self.min) };
        Ok(self.min.window)
    }
}

/// A peer has sent less than the minimum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooSlow;

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const MIN: MinRate = MinRate { rate: 10, window: Duration::from_secs(5) };

    #[test]
    fn a_peer_that_takes_enough_or_all_is_not_slow() {
        let start = Instant::now();
        let unsent = Unsent::default();
        unsent.add(120);
        assert!(!unsent.is_slow(MIN, start));
        unsent.take(50);
        assert!(!unsent.is_slow(MIN, start + 6 * SECOND));
        unsent.take(49);
        assert!(!unsent.is_slow(MIN, start + 11 * SECOND), "the window is not over");
        assert!(unsent.is_slow(MIN, start + 12 * SECOND), "49 of 50");
        unsent.take(21);
        assert!(!unsent.is_slow(MIN, start + 30 * SECOND), "it has all");
        unsent.add(10);
        assert!(!unsent.is_slow(MIN, start + 60 * SECOND), "the time in which nothing was due does not count");
        assert!(!unsent.is_slow(MIN, start + 65 * SECOND));
        assert!(unsent.is_slow(MIN, start + 66 * SECOND), "none of 10");
    }

    #[test]
    fn bytes_count_as_taken_when_they_are_written_or_dropped() {
        struct Owner(Unsent);
        impl AsRef<Unsent> for Owner {
            fn as_ref(&self) -> &Unsent {
                &self.0
            }
        }
        let owner = Rc::new(Owner(Unsent::default()));
        owner.0.add(10);
        let mut bytes = UnsentBuf::new(&[0; 10][..], owner.clone());
        bytes.advance(4);
        assert_eq!((owner.0.bytes(), bytes.remaining()), (6, 6));
        drop(bytes);
        assert_eq!(owner.0.bytes(), 0);
    }

    #[test]
    fn only_the_time_of_waiting_counts() {
        let start = Instant::now();
        let mut sender = Awaited::new(MIN);
        assert_eq!(sender.wait(start), Ok(5 * SECOND));
        sender.end_wait(start + 2 * SECOND);
        sender.came(1);
        // An hour in which nobody waits.
        let later = start + 3600 * SECOND;
        sender.came(1);
        assert_eq!(sender.wait(later), Ok(3 * SECOND));
        assert_eq!(sender.wait(later + 2 * SECOND), Ok(SECOND));
        assert_eq!(sender.wait(later + 3 * SECOND), Err(TooSlow));
    }

    #[test]
    fn a_sender_that_is_fast_enough_may_go_on_for_ever() {
        let start = Instant::now();
        let mut sender = Awaited::new(MIN);
        for second in 0..60 {
            assert!(sender.wait(start + second * SECOND).is_ok(), "{second}");
            sender.end_wait(start + second * SECOND + SECOND / 2);
            sender.came(11);
        }
        // Then nothing: what came in a window counts for it alone.
        let mut last = start + 60 * SECOND;
        while let Ok(left) = sender.wait(last) {
            assert!(left > Duration::ZERO);
            last += left;
        }
        assert!(last <= start + 70 * SECOND, "{:?}", last - start);
    }
}
