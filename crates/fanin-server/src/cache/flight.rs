//! Equal requests at the same time: the first one leads, the others wait for its response.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

/// The requests of one cache that others may wait for.
#[derive(Debug, Default)]
pub(super) struct Flights {
    running: Mutex<HashMap<Box<[u8]>, Flight>>,
    waiting: AtomicUsize,
}

#[derive(Debug)]
struct Flight {
    /// Closed when it has ended. `true`: its response is not for others.
    end: watch::Receiver<bool>,
    spoiled: Arc<AtomicBool>,
}

/// What a request does that others may be like.
pub(super) enum Join {
    /// It is the first one.
    Lead(Lead),
    /// It waits for the first one.
    Follow(Follow),
    /// Too many wait.
    Alone,
}

/// The right to answer for others, for as long as it lives. Dropped without a word, the next one leads.
#[derive(Debug)]
pub(super) struct Lead {
    flights: Arc<Flights>,
    key: Box<[u8]>,
    end: watch::Sender<bool>,
    spoiled: Arc<AtomicBool>,
}

/// How a flight has ended for its followers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The response may have been kept.
    LookAgain,
    /// The response is not for others.
    GoAlone,
}

/// The wait for another request's response.
pub(crate) type Follow = Pin<Box<dyn Future<Output = End>>>;

/// Counts a follower for as long as it waits.
struct Waiting(Arc<Flights>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Flights {
    /// At most `most` requests wait at a time.
    pub(super) fn join(self: &Arc<Self>, key: &[u8], most: usize) -> Join {
        let mut running = self.running();
        if let Some(flight) = running.get(key) {
            if self.waiting.fetch_add(1, Ordering::Relaxed) >= most {
                self.waiting.fetch_sub(1, Ordering::Relaxed);
                return Join::Alone;
            }
            let (mut end, waiting) = (flight.end.clone(), Waiting(self.clone()));
            return Join::Follow(Box::pin(async move {
                let _waiting = waiting;
                while !*end.borrow_and_update() {
                    if end.changed().await.is_err() {
                        return if *end.borrow() { End::GoAlone } else { End::LookAgain };
                    }
                }
                End::GoAlone
            }));
        }
        Join::Lead(self.begin(&mut running, key))
    }

    /// Leads, unless another request does already.
    pub(super) fn try_lead(self: &Arc<Self>, key: &[u8]) -> Option<Lead> {
        let mut running = self.running();
        (!running.contains_key(key)).then(|| self.begin(&mut running, key))
    }

    fn begin(self: &Arc<Self>, running: &mut HashMap<Box<[u8]>, Flight>, key: &[u8]) -> Lead {
        let (sender, end) = watch::channel(false);
        let spoiled = Arc::<AtomicBool>::default();
        running.insert(key.into(), Flight { end, spoiled: spoiled.clone() });
        Lead { flights: self.clone(), key: key.into(), end: sender, spoiled }
    }

    /// What runs now for this target must not be kept: it may be from before a change.
    pub(super) fn spoil(&self, primary: &[u8]) {
        for (key, flight) in self.running().iter() {
            if key.starts_with(primary) {
                flight.spoiled.store(true, Ordering::Release);
            }
        }
    }

    fn running(&self) -> MutexGuard<'_, HashMap<Box<[u8]>, Flight>> {
        // Held for a look-up, which cannot panic.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lead {
    /// Whether the response is from before a change.
    pub(super) fn is_spoiled(&self) -> bool {
        self.spoiled.load(Ordering::Acquire)
    }

    /// The response is not for others, who need not wait for its end.
    pub(super) fn release(&self) {
        self.end.send_replace(true);
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        // Before the channel closes, so that who looks again does not find this one.
        self.flights.running().remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn followers_wait_for_the_first_one_and_the_next_one_leads() {
        let flights = Arc::<Flights>::default();
        let Join::Lead(lead) = flights.join(b"a", 2) else { panic!("nobody leads yet") };
        assert!(flights.try_lead(b"a").is_none() && flights.try_lead(b"b").is_some());
        let Join::Follow(first) = flights.join(b"a", 2) else { panic!("it follows") };
        let Join::Follow(second) = flights.join(b"a", 2) else { panic!("it follows") };
        assert!(matches!(flights.join(b"a", 2), Join::Alone), "two wait");
        drop(second);
        assert!(matches!(flights.join(b"a", 2), Join::Follow(_)));
        drop(lead);
        assert_eq!(first.await, End::LookAgain);
        assert!(matches!(flights.join(b"a", 2), Join::Lead(_)));
        assert_eq!(flights.waiting.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn followers_of_a_response_for_one_client_go_alone() {
        let flights = Arc::<Flights>::default();
        let Join::Lead(lead) = flights.join(b"a", 2) else { panic!("nobody leads yet") };
        let Join::Follow(early) = flights.join(b"a", 2) else { panic!("it follows") };
        lead.release();
        assert_eq!(early.await, End::GoAlone, "the lead goes on");
        let Join::Follow(late) = flights.join(b"a", 2) else { panic!("it follows") };
        drop(lead);
        assert_eq!(late.await, End::GoAlone);
    }

    #[test]
    fn a_change_spoils_what_runs_for_its_target() {
        let flights = Arc::<Flights>::default();
        let Join::Lead(one) = flights.join(b"shop\n/a\0x", 2) else { panic!("nobody leads yet") };
        let Join::Lead(other) = flights.join(b"shop\n/b", 2) else { panic!("nobody leads yet") };
        flights.spoil(b"shop\n/a");
        assert!(one.is_spoiled() && !other.is_spoiled());
    }
}
