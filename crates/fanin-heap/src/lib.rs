//! A heap profile by allocation site, taken from a running process.
//!
//! [`Sampling`] stands in front of the program's allocator. Off, it costs a relaxed load and a branch at each allocation and
//! each release. On, about one allocation in so many *bytes* is noted with the calls that led to it, until it is released: large
//! ones nearly always, small ones rarely, each by the chance that its size gives it, so that the noted ones can be scaled to all
//! that live. What is noted is bounded by what lives divided by that distance, and by [`MOST`].
//!
//! [`pprof`] and [`text`] show what lives now. Sampling can be switched on once; it is not switched off, because what was
//! released meanwhile would seem to live.

mod mapping;
mod mimalloc;
mod pprof;
mod recording;
mod sample;
mod table;
mod text;

use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

pub use mimalloc::{Mimalloc, return_soon};
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
