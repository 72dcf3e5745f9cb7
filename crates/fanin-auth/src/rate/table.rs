//! Budgets by key, without locks: the generic cell rate algorithm (GCRA) in a table of fixed size.
//!
//! Of each key the table has one number, the time at which its budget will be full again. A key whose time has passed is the same as one
//! that was never seen: only such a place is given to another key. So no flood of keys can make the table forget one that has used up its
//! budget. While all places of a set are in use, further keys of the set share one budget.
//!
//! Two threads may, in the moment in which a place changes its key, count one request for the wrong one of both, or give a new key two
//! places. The error is one burst at most, for one refill.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Places of a set. It is two cache lines.
const WAYS: usize = 8;

/// Places for each key that fits: sets are filled by chance, some more than others.
const SPARE: usize = 2;

/// Nanoseconds of budget that a request needs, and that a key may use up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate {
    /// Time in which one request's budget comes back.
    pub interval: u64,
    /// The whole budget.
    pub burst: u64,
}

/// The outcome for one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// It may go on. Nanoseconds of budget that are used now.
    Yes { used: u64 },
    /// It may not. Nanoseconds of budget that are used, and after how many it may.
    No { used: u64, wait: u64 },
}

/// The budgets of one limit.
#[derive(Debug)]
pub(crate) struct Table {
    sets: Box<[Set]>,
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct Set {
    places: [Place; WAYS],
    /// Full again at this time: the budget of keys without a place.
    shared: AtomicU64,
}

#[derive(Debug, Default)]
struct Place {
    /// 0: never used.
    key: AtomicU64,
    full_at: AtomicU64,
}

impl Table {
    /// For about so many keys at a time.
    pub fn new(keys: usize) -> Table {
        let sets = (keys * SPARE).div_ceil(WAYS).next_power_of_two();
        Table { sets: (0..sets).map(|_| Set::default()).collect() }
    }

    /// Takes the budget of `cost` requests. `key` is a hash that clients cannot predict, `now` in nanoseconds.
    pub fn take(&self, key: u64, now: u64, rate: Rate, cost: u64) -> Taken {
        // 0 is an unused place.
        let key = key.max(1);
        charge(self.budget(key, now), now, rate, cost)
    }

    /// Gives back what was taken at `now`.
    pub fn give_back(&self, key: u64, now: u64, rate: Rate, cost: u64) {
        let amount = rate.interval.saturating_mul(cost);
        let _ = self.budget(key.max(1), now).fetch_update(Relaxed, Relaxed, |full| Some(full.saturating_sub(amount)));
    }

    /// The budget of a key. A new key gets a place whose budget is full.
    fn budget(&self, key: u64, now: u64) -> &AtomicU64 {
        // The upper bits select the set: the lower ones are those that differ between keys of one set.
        let set = &self.sets[(key >> 32) as usize & (self.sets.len() - 1)];
        if let Some(place) = set.places.iter().find(|place| place.key.load(Relaxed) == key) {
            return &place.full_at;
        }
        for place in &set.places {
            let old = place.key.load(Relaxed);
            if place.full_at.load(Relaxed) <= now {
                match place.key.compare_exchange(old, key, Relaxed, Relaxed) {
                    Ok(_) => return &place.full_at,
                    // Another thread has the same new key.
                    Err(other) if other == key => return &place.full_at,
                    Err(_) => {}
                }
            }
        }
        &set.shared
    }
}

fn charge(full_at: &AtomicU64, now: u64, rate: Rate, cost: u64) -> Taken {
    let cost = rate.interval.saturating_mul(cost);
    let mut full = full_at.load(Relaxed);
    loop {
        let used = full.saturating_sub(now);
        let after = used.saturating_add(cost);
        if after > rate.burst {
            return Taken::No { used, wait: after - rate.burst };
        }
        match full_at.compare_exchange_weak(full, now + after, Relaxed, Relaxed) {
            Ok(_) => return Taken::Yes { used: after },
            Err(other) => full = other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten a second, five at once.
    const RATE: Rate = Rate { interval: 100, burst: 500 };

    fn passes(table: &Table, key: u64, now: u64) -> bool {
        matches!(table.take(key, now, RATE, 1), Taken::Yes { .. })
    }

    #[test]
    fn a_burst_then_the_rate() {
        let table = Table::new(10);
        assert_eq!((0..9).filter(|_| passes(&table, 7, 1000)).count(), 5);
        assert_eq!(table.take(7, 1000, RATE, 1), Taken::No { used: 500, wait: 100 });
        assert_eq!(table.take(7, 1040, RATE, 2), Taken::No { used: 460, wait: 160 });
        assert_eq!((1000..2000).filter(|now| passes(&table, 7, *now)).count(), 9);
        assert_eq!(
            table.take(7, 100_000, RATE, 5),
            Taken::Yes { used: 500 },
            "a pause fills it to the burst, not more"
        );
        assert!(!passes(&table, 7, 100_000) && passes(&table, 8, 100_000));
    }

    #[test]
    fn what_is_given_back_can_be_taken_again() {
        let table = Table::new(10);
        assert_eq!(table.take(7, 0, RATE, 5), Taken::Yes { used: 500 });
        table.give_back(7, 0, RATE, 2);
        assert_eq!((0..9).filter(|_| passes(&table, 7, 0)).count(), 2);
    }

    #[test]
    fn a_flood_of_keys_resets_nobody_and_is_limited_as_a_whole() {
        let table = Table::new(64);
        let now = 1_000_000;
        while passes(&table, 1 << 32, now) {}
        // A thousand times as many keys as fit, all at once.
        let mut passed = 0;
        for key in 0..64_000_u64 {
            let key = key.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 2;
            passed += usize::from(passes(&table, key, now));
            assert!(!passes(&table, 1 << 32, now), "the key is still there");
        }
        let places = table.sets.len() * WAYS;
        assert!(passed < places + table.sets.len() * 5 && passed > places / 2, "{passed} of {places}");
        assert!(passes(&table, 1 << 32, now + 100), "and gets its budget back in time");
    }

    #[test]
    fn threads_share_a_budget_exactly() {
        let table = Table::new(10);
        let rate = Rate { interval: 1, burst: 50_000 };
        let passed: usize = std::thread::scope(|scope| {
            let run = || (0..40_000).filter(|_| matches!(table.take(7, 5, rate, 1), Taken::Yes { .. })).count();
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(run)).collect();
            threads.into_iter().map(|thread| thread.join().expect("it counts")).sum()
        });
        assert_eq!(passed, 50_000);
    }
}
