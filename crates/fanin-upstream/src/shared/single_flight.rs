//! Single-flight: identical concurrent calls share one request.
//!
//! The first call of a key is the leader. It starts the request as a task of its own. The others are followers, on any
//! worker. The request belongs to none of them: it goes on as long as anybody waits, and is dropped when nobody does.
//! If it is lost because its worker ends, its followers may start over.

use std::collections::HashMap;
use std::collections::hash_map::{Entry, RandomState};
use std::fmt;
use std::future::Future;
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

use super::{Member, ParsedAnswer, RequestKey};
use crate::error::CallError;

/// The outcome of a shared request.
pub type SharedResult = Result<Arc<ParsedAnswer>, CallError>;

type Shard = Mutex<HashMap<RequestKey, Arc<Flight>>>;

/// A request in flight.
struct Flight {
    outcome: watch::Sender<Option<SharedResult>>,
    /// The call that makes it, if that is recorded.
    leader: Option<Member>,
}

impl Flight {
    fn follow(&self) -> Follower {
        Follower { outcome: self.outcome.subscribe(), leader: self.leader }
    }
}

const SHARDS: usize = 16;

/// The shared requests of one operation that are in flight.
#[derive(Default)]
pub struct SingleFlight {
    // Keys contain clients' bytes, so the hash is one that cannot be attacked.
    hash: RandomState,
    shards: [Shard; SHARDS],
}

impl fmt::Debug for SingleFlight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} shared requests", self.len())
    }
}

/// The role of a call among identical ones.
#[derive(Debug)]
pub enum FlightRole {
    /// The first: it has to start the request.
    Leader(Leader),
    /// A call that waits for the leader's request.
    Follower(Follower),
}

impl SingleFlight {
    /// Joins the request of this key, or becomes its leader. `call`: who joins, for whoever follows it.
    pub fn join(self: &Arc<Self>, key: &RequestKey, call: Option<Member>) -> FlightRole {
        match self.shard(key).lock().unwrap_or_else(PoisonError::into_inner).entry(key.clone()) {
            Entry::Occupied(flight) => FlightRole::Follower(flight.get().follow()),
            Entry::Vacant(entry) => {
                let flight = Arc::new(Flight { outcome: watch::Sender::new(None), leader: call });
                entry.insert(flight.clone());
                FlightRole::Leader(Leader { single_flight: self.clone(), key: key.clone(), flight })
            }
        }
    }

    /// Shared requests in flight.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().unwrap_or_else(PoisonError::into_inner).len()).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn shard(&self, key: &RequestKey) -> &Shard {
        // The high bits: the map inside uses the low ones.
        &self.shards[(self.hash.hash_one(key) >> 60) as usize % SHARDS]
    }

    /// Removes a request if it is still this one; with `unless_waited_for` only if nobody waits.
    fn leave(&self, key: &RequestKey, flight: &Arc<Flight>, unless_waited_for: bool) -> bool {
        let mut requests = self.shard(key).lock().unwrap_or_else(PoisonError::into_inner);
        // Joining takes the same lock, so nobody joins between the check and the removal.
        if unless_waited_for && flight.outcome.receiver_count() > 0 {
            return false;
        }
        if requests.get(key).is_some_and(|request| Arc::ptr_eq(request, flight)) {
            requests.remove(key);
        }
        true
    }
}

/// The leader. If it is dropped before it has run, its followers start over.
pub struct Leader {
    single_flight: Arc<SingleFlight>,
    key: RequestKey,
    flight: Arc<Flight>,
}

impl fmt::Debug for Leader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("lead")
    }
}

impl Leader {
    /// Waits for the request as a follower does.
    pub fn follow(&self) -> Follower {
        self.flight.follow()
    }

    /// The key of the request.
    pub fn key(&self) -> &RequestKey {
        &self.key
    }

    /// Runs the request until it ends or nobody waits for it. Somebody must have followed before.
    pub async fn run(self, work: impl Future<Output = SharedResult>) {
        tokio::pin!(work);
        loop {
            tokio::select! {
                biased;
                outcome = &mut work => {
                    // Removed first: a later call finds the answer in the cache, or starts anew.
                    self.single_flight.leave(&self.key, &self.flight, false);
                    self.flight.outcome.send_replace(Some(outcome));
                    return;
                }
                () = self.flight.outcome.closed() => {
                    if self.single_flight.leave(&self.key, &self.flight, true) {
                        return;
                    }
                }
            }
        }
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        self.single_flight.leave(&self.key, &self.flight, false);
    }
}

/// A call that waits for a shared request. Dropping it stops waiting.
#[derive(Debug)]
pub struct Follower {
    outcome: watch::Receiver<Option<SharedResult>>,
    leader: Option<Member>,
}

impl Follower {
    /// The call that makes the request, if that is recorded.
    pub fn leader(&self) -> Option<Member> {
        self.leader
    }

    /// The outcome; `None` if the request was lost.
    pub async fn outcome(mut self) -> Option<SharedResult> {
        let outcome = self.outcome.wait_for(Option::is_some).await.ok()?;
        outcome.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::{HeaderMap, StatusCode};

    use super::*;
    use crate::request::{Answer, Request};
    use crate::shared::Body;

    fn key(path: &str) -> RequestKey {
        RequestKey::of(&Request::get(path))
    }

    fn ready(status: u16) -> Arc<ParsedAnswer> {
        let answer = Answer {
            status: StatusCode::from_u16(status).unwrap(),
            headers: HeaderMap::new().into(),
            body: "".into(),
            elapsed: Duration::ZERO,
            unrequested_part: false,
        };
        Arc::new(ParsedAnswer { answer, body: Body::Empty })
    }

    fn lead(single_flight: &Arc<SingleFlight>, path: &str) -> Leader {
        match single_flight.join(&key(path), None) {
            FlightRole::Leader(lead) => lead,
            FlightRole::Follower(_) => panic!("there is one already"),
        }
    }

    fn follow(single_flight: &Arc<SingleFlight>, path: &str) -> Follower {
        match single_flight.join(&key(path), None) {
            FlightRole::Follower(follow) => follow,
            FlightRole::Leader(_) => panic!("there is none"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn all_followers_get_the_same_outcome() {
        let single_flight = Arc::new(SingleFlight::default());
        let first = lead(&single_flight, "/a");
        let (one, two) = (first.follow(), follow(&single_flight, "/a"));
        let other = lead(&single_flight, "/b");
        assert_eq!(single_flight.len(), 2);
        let work = async {
            tokio::time::sleep(Duration::from_millis(5)).await;
            Ok(ready(201))
        };
        tokio::spawn(first.run(work));
        for outcome in [one.outcome().await, two.outcome().await] {
            assert_eq!(outcome.unwrap().unwrap().answer.status, 201);
        }
        drop(other);
        assert!(single_flight.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_shared_request_ends_with_its_last_waiter() {
        let single_flight = Arc::new(SingleFlight::default());
        let first = lead(&single_flight, "/a");
        let (leader, follower) = (first.follow(), follow(&single_flight, "/a"));
        let task = tokio::spawn(first.run(std::future::pending()));
        drop(leader);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(!task.is_finished() && single_flight.len() == 1, "somebody waits");
        drop(follower);
        task.await.unwrap();
        assert!(single_flight.is_empty());
        // The next call is a leader again.
        lead(&single_flight, "/a");
    }

    #[tokio::test(start_paused = true)]
    async fn followers_of_a_lost_request_may_start_over() {
        let single_flight = Arc::new(SingleFlight::default());
        let first = lead(&single_flight, "/a");
        let follower = follow(&single_flight, "/a");
        drop(first);
        assert!(follower.outcome().await.is_none());
        lead(&single_flight, "/a");
    }

    #[tokio::test]
    async fn followers_may_be_on_other_threads() {
        let single_flight = Arc::new(SingleFlight::default());
        let first = lead(&single_flight, "/a");
        let waiting: Vec<_> = (0..4)
            .map(|_| {
                let follow = follow(&single_flight, "/a");
                std::thread::spawn(move || {
                    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                    runtime.block_on(follow.outcome()).unwrap().unwrap().answer.status
                })
            })
            .collect();
        first.run(async { Ok(ready(200)) }).await;
        for thread in waiting {
            assert_eq!(thread.join().unwrap(), 200);
        }
    }
}
