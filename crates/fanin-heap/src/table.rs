//! What lives of the noted allocations.
//!
//! A release must be cheap although hardly any is of a noted allocation: a small table of counts by a hash of the address says
//! "surely not noted" without a lock, nearly always.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustc_hash::FxBuildHasher;

use crate::recording;

/// Noted allocations at most; more are not noted.
pub const MOST: usize = 100_000;

/// A power of two, well above what is noted as a rule.
const CELLS: usize = 1 << 16;

/// How many noted allocations live by the hash of their address.
static COUNTS: [AtomicU16; CELLS] = [const { AtomicU16::new(0) }; CELLS];

static LIVE: Mutex<Live> = Mutex::new(Live { by_address: HashMap::with_hasher(FxBuildHasher), lost: 0 });

struct Live {
    by_address: HashMap<usize, Noted, FxBuildHasher>,
    /// Not noted because there were too many.
    lost: u64,
}

/// A noted allocation.
#[derive(Clone, Debug)]
pub(crate) struct Noted {
    pub size: usize,
    /// For how many allocations like it this one stands.
    pub weight: f64,
    /// Return addresses, innermost first.
    pub calls: Arc<[usize]>,
}

fn lock() -> MutexGuard<'static, Live> {
    // Each change is one insertion or removal.
    LIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn cell(address: usize) -> &'static AtomicU16 {
    // Fibonacci hashing: the upper bits of the product are the mixed ones. The index is below `CELLS` by the shift.
    let hash = (address as u64 >> 4).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    &COUNTS[(hash >> (64 - CELLS.trailing_zeros())) as usize]
}

pub(crate) fn allocated(address: usize, size: usize, every: usize, calls: Vec<usize>) {
    // The chance that at least one byte of it was drawn.
    let chance = -(-(size as f64) / every as f64).exp_m1();
    let noted = Noted { size, weight: 1.0 / chance.max(f64::MIN_POSITIVE), calls: calls.into() };
    let mut live = lock();
    if live.by_address.len() >= MOST {
        live.lost += 1;
        return;
    }
    if live.by_address.insert(address, noted).is_none() {
        cell(address).fetch_add(1, Relaxed);
    }
}

/// Forgets an allocation if it was noted.
#[inline]
pub(crate) fn released(address: usize) {
    // Whoever releases has got the address from who allocated, and so sees the count that was set before.
    if cell(address).load(Relaxed) != 0 {
        forget(address);
    }
}

/// The same for one whose address may belong to somebody else by now: who grew it has given it back already, and if another
/// thread has noted an allocation at that place in between, that one is lost. It is one sample of many.
pub(crate) fn moved(address: usize) {
    released(address);
}

#[cold]
fn forget(address: usize) {
    // What this crate itself releases while it notes something is not noted, and the lock is held then.
    if recording::is_recording() {
        return;
    }
    let removed = lock().by_address.remove(&address);
    if removed.is_some() {
        cell(address).fetch_sub(1, Relaxed);
    }
    // Released here, after the lock: releasing comes back to this function.
    drop(removed);
}

/// All that lives, and how many were not noted for want of room.
pub(crate) fn live() -> (Vec<Noted>, u64) {
    // Room is made outside of the lock: allocating may come back to it.
    let mut all = Vec::new();
    loop {
        let wanted = lock().by_address.len() + 64;
        all.reserve(wanted);
        let live = lock();
        if live.by_address.len() <= all.capacity() {
            all.extend(live.by_address.values().cloned());
            return (all, live.lost);
        }
    }
}
