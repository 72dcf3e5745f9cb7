//! Which allocations are noted, and by which calls.
//!
//! Each thread counts down the bytes to its next one; the distances are exponentially distributed, so that every byte has the
//! same chance, whatever pattern the program allocates in.

use std::cell::Cell;

use crate::{recording, table};

/// Calls of one site; the outermost of a deeper one are left out.
const DEPTH: usize = 40;

thread_local! {
    /// Bytes to the next one. Without a destructor: allocations of a thread's end come here as well.
    static LEFT: Cell<i64> = const { Cell::new(0) };
    /// State of the random numbers; 0 before the first.
    static RANDOM: Cell<u64> = const { Cell::new(0) };
}

/// Whether this allocation is the thread's next one.
#[inline]
pub(crate) fn is_due(size: usize, every: usize) -> bool {
    // A thread that ends has no counters any more, and notes nothing.
    LEFT.try_with(|left| {
        let rest = left.get().saturating_sub(i64::try_from(size).unwrap_or(i64::MAX));
        left.set(rest);
        rest < 0 && draw(left, every)
    })
    .unwrap_or(false)
}

/// Draws the next distance. The first of a thread only begins the count: a thread's first allocation is no better than others.
#[cold]
fn draw(left: &Cell<i64>, every: usize) -> bool {
    RANDOM
        .try_with(|random| {
            let first = random.get() == 0;
            if first {
                // The cell's address differs by thread.
                random.set((std::ptr::from_ref(random).addr() as u64) | 1);
            }
            // Marsaglia's xorshift64.
            let mut state = random.get();
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            random.set(state);
            // Above 0 and at most 1.
            let uniform = ((state >> 11) + 1) as f64 / (1_u64 << 53) as f64;
            left.set((-uniform.ln() * every as f64) as i64);
            !first
        })
        .unwrap_or(false)
}

/// Notes an allocation with the calls that led to it.
pub(crate) fn allocated(address: usize, size: usize, every: usize) {
    if !recording::begin() {
        return;
    }
    let mut calls = Vec::with_capacity(DEPTH);
    backtrace::trace(|frame| {
        calls.push(frame.ip().addr());
        calls.len() < DEPTH
    });
    table::allocated(address, size, every, calls);
    recording::end();
}
