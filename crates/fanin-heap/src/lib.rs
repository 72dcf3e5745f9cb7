//! Sampling heap profiler for a running process, and the global allocator that it wraps.
//!
//! | module | content |
//! |---|---|
//! | `sample`, `recording` | which allocations are sampled (a Poisson process over bytes), and their stack traces |
//! | `table` | live samples by address |
//! | `pprof`, `text`, `mapping` | the profile in pprof's format and as text; the process's mappings |
//! | `mimalloc` | mimalloc as the global allocator |
//!
//! [`Sampling`] wraps the allocator. Off, it costs a relaxed load and a branch per allocation and release. On, it records about
//! one allocation per so many *bytes* with its stack trace, until it is released. The probability grows with the size, so the
//! samples can be scaled to the whole heap. Their number is bounded by the live bytes divided by that distance, and by [`MOST`].
//!
//! Sampling can be switched on once and not off again: allocations released in between would seem to be alive.
//!
//! The crate must not know about the server. It contains `unsafe`, because a global allocator needs it.

mod mapping;
mod mimalloc;
mod pprof;
mod recording;
mod sample;
mod table;
mod text;

use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

pub use mimalloc::{Mimalloc, collect, return_soon};
pub use pprof::{Names, pprof};
pub use table::MOST;
pub use text::text;

/// Mean bytes between two noted allocations; 0: none is.
static EVERY: AtomicUsize = AtomicUsize::new(0);

/// Begins to note an allocation about every so many bytes. Does nothing if that has begun before.
pub fn start(every: usize) {
    // A failed exchange means that it has begun.
    let _ = EVERY.compare_exchange(0, every.max(1), Relaxed, Relaxed);
}

/// The distance that [`start`] was given, if it was called.
pub fn every() -> Option<usize> {
    Some(EVERY.load(Relaxed)).filter(|every| *every > 0)
}

/// An allocator that notes some of its allocations.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sampling<A>(pub A);

#[cold]
#[inline(never)]
fn noted(address: *mut u8, size: usize, every: usize) {
    if !address.is_null() {
        sample::allocated(address.addr(), size, every);
    }
}

#[inline]
fn allocated(address: *mut u8, size: usize) {
    let every = EVERY.load(Relaxed);
    if every != 0 && sample::is_due(size, every) {
        noted(address, size, every);
    }
}

#[inline]
fn released(address: *mut u8) {
    if EVERY.load(Relaxed) != 0 {
        table::released(address.addr());
    }
}

// SAFETY: every request goes to the inner allocator as it came and its answer goes back as it came. What is done besides uses
// the address as a number only, and never unwinds: it neither indexes nor unwraps, and an allocation that it makes itself is not
// noted (see `sample`), so that it does not come back here without end.
#[allow(unsafe_code)]
unsafe impl<A: GlobalAlloc> GlobalAlloc for Sampling<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise about the layout is passed on.
        let address = unsafe { self.0.alloc(layout) };
        allocated(address, layout.size());
        address
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        let address = unsafe { self.0.alloc_zeroed(layout) };
        allocated(address, layout.size());
        address
    }

    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        // Before it is given back: after that another thread may have it, and note it.
        released(address);
        // SAFETY: the caller's promise that `address` came from here with this layout is passed on.
        unsafe { self.0.dealloc(address, layout) }
    }

    unsafe fn realloc(&self, address: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above, and the new size is the caller's promise.
        let moved = unsafe { self.0.realloc(address, layout, size) };
        // A failed one leaves the old as it is. In place or not, a grown buffer is a new allocation of its new size.
        if !moved.is_null() && EVERY.load(Relaxed) != 0 {
            table::moved(address.addr());
            allocated(moved, size);
        }
        moved
    }
}
