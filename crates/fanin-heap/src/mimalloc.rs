//! mimalloc as the global allocator: its plain functions for the usual alignments, its aligned ones for others.
//!
//! The `mimalloc` crate asks for each allocation with its alignment. A size that is no power of two then gets a block that is larger
//! by the alignment whenever its size class has no block at hand, and always above 1 KB, and from then on each release in that
//! page has to look for the block's beginning. Nearly all allocations want no more than what `mi_malloc` promises anyway, as the
//! standard library knows of `malloc`; they ask for nothing else here.

use std::alloc::{GlobalAlloc, Layout};

use libmimalloc_sys::{
    mi_collect, mi_free, mi_malloc, mi_malloc_aligned, mi_option_set_default, mi_option_t, mi_realloc,
    mi_realloc_aligned, mi_zalloc, mi_zalloc_aligned,
};

/// The alignment of each block that is at least as large (`MI_MAX_ALIGN_SIZE` of mimalloc's `types.h`: that of C's
/// `max_align_t`). Smaller blocks are aligned to a machine word, which is at least the power of two below their size.
const ALWAYS: usize = 16;

/// Milliseconds until the system gets back what is free (`mi_option_purge_delay` of mimalloc's `mimalloc.h`, to which the crate
/// gives no name).
const PURGE_DELAY: mi_option_t = 15;

/// The allocator.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mimalloc;

/// From now on gives memory back to the system 10 ms after it became free, as mimalloc 2 does; mimalloc 3 waits for a second.
///
/// Many large buffers are written at their beginning only, so that most of their pages are never touched: an HTTP/2 connection has
/// 28 KB of them. When a thousand connections go at once and others come within that second, the new ones get the same memory
/// cut in another way, written pages where untouched ones were, and a process that serves as many connections as before takes
/// a quarter more. What is taken again within the second is then a page fault for each page, which a program that makes and drops
/// megabytes all the time pays for. `MIMALLOC_PURGE_DELAY` in the environment wins.
pub fn return_soon() {
    // SAFETY: any option may be set to any number at any time, and the delay is read anew for each memory that becomes free.
    #[allow(unsafe_code)]
    unsafe {
        mi_option_set_default(PURGE_DELAY, 10);
    }
}

/// Gives memory of this thread that is free back to the system.
///
/// mimalloc looks for such memory when a thread releases whole pages. A thread that has released much at once and then
/// does little keeps it otherwise. `true`: also the empty page
/// of each size, of up to 512 KiB, that it keeps for a while.
pub fn collect() {
    // SAFETY: may be called at any time on any thread; it touches free memory only.
    #[allow(unsafe_code)]
    unsafe {
        mi_collect(true);
    }
}

/// Whether a block is aligned as `layout` says without a word about it.
#[inline]
fn is_usual(layout: Layout, size: usize) -> bool {
    layout.align() <= ALWAYS && layout.align() <= size
}

// SAFETY: mimalloc gives a block of at least the size asked for, or null, and never unwinds. Its blocks are aligned to 16 bytes from
// a size of 16 on, and to a machine word (8 bytes) below: so to any alignment up to 16 that is not above the size. Every other
// alignment is asked for. All its ways to allocate can be mixed with all its ways to move and to free.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Mimalloc {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: any size and any power of two may be asked for; null is an answer.
        unsafe {
            match is_usual(layout, layout.size()) {
                true => mi_malloc(layout.size()).cast(),
                false => mi_malloc_aligned(layout.size(), layout.align()).cast(),
            }
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        unsafe {
            match is_usual(layout, layout.size()) {
                true => mi_zalloc(layout.size()).cast(),
                false => mi_zalloc_aligned(layout.size(), layout.align()).cast(),
            }
        }
    }

    #[inline]
    unsafe fn dealloc(&self, address: *mut u8, _layout: Layout) {
        // SAFETY: the caller promises that the block came from here and is used no more.
        unsafe { mi_free(address.cast()) }
    }

    #[inline]
    unsafe fn realloc(&self, address: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above; a failed one leaves the block as it is.
        unsafe {
            match is_usual(layout, size) {
                true => mi_realloc(address.cast(), size).cast(),
                false => mi_realloc_aligned(address.cast(), size, layout.align()).cast(),
            }
        }
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use libmimalloc_sys::mi_option_get;

    use super::*;

    /// Bytes of this process that are in memory.
    fn resident() -> usize {
        let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
        pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
    }

    #[test]
    #[allow(unsafe_code)]
    fn what_is_free_goes_back_to_the_system_soon() {
        // mimalloc 3's own delay, which no other option has: the number is that option's.
        // SAFETY: any option may be read at any time.
        assert_eq!(unsafe { mi_option_get(PURGE_DELAY) }, 1000);
        return_soon();
        // SAFETY: as above.
        assert_eq!(unsafe { mi_option_get(PURGE_DELAY) }, 10);
        let buffer = Layout::from_size_align(16 << 10, 1).unwrap();
        let before = resident();
        // SAFETY: sizes are not zero, blocks are written within their size and freed once with the layout that they have.
        unsafe {
            let buffers: Vec<_> = (0..4096).map(|_| Mimalloc.alloc(buffer)).collect();
            buffers.iter().for_each(|block| block.write_bytes(1, buffer.size()));
            assert!(resident() > before + (48 << 20));
            buffers.into_iter().for_each(|block| Mimalloc.dealloc(block, buffer));
            // A program that goes on.
            let other = Layout::from_size_align(3000, 1).unwrap();
            let begun = std::time::Instant::now();
            while resident() > before + (16 << 20) && begun.elapsed().as_secs() < 60 {
                let blocks: Vec<_> = (0..1000).map(|_| Mimalloc.alloc(other)).collect();
                blocks.into_iter().for_each(|block| Mimalloc.dealloc(block, other));
                std::thread::park_timeout(std::time::Duration::from_millis(1));
            }
        }
        assert!(resident() <= before + (16 << 20), "{} MB are left", (resident() - before) >> 20);
    }

    #[test]
    #[allow(unsafe_code)]
    fn every_block_is_aligned_and_keeps_what_it_holds() {
        for align in (0..=12).map(|power| 1_usize << power) {
            let mut blocks = Vec::new();
            for size in (1..200).chain((200..5000).step_by(37)).chain([70_000, 300_000]) {
                let layout = Layout::from_size_align(size, align).unwrap();
                // SAFETY: sizes are not zero, blocks are written and read within their size and freed once, with the layout that
                // they have then.
                unsafe {
                    let block = Mimalloc.alloc(layout);
                    assert!(!block.is_null() && block.addr().is_multiple_of(align), "{layout:?}");
                    block.write_bytes(size as u8, size);
                    let zeroed = Mimalloc.alloc_zeroed(layout);
                    assert!(zeroed.addr().is_multiple_of(align), "{layout:?}");
                    assert!((0..size).all(|at| zeroed.add(at).read() == 0));
                    Mimalloc.dealloc(zeroed, layout);
                    let larger = size + size / 2 + 1;
                    let block = Mimalloc.realloc(block, layout, larger);
                    assert!(block.addr().is_multiple_of(align), "{layout:?}");
                    assert!((0..size).all(|at| block.add(at).read() == size as u8));
                    let smaller = size.div_ceil(3);
                    let layout = Layout::from_size_align(larger, align).unwrap();
                    let block = Mimalloc.realloc(block, layout, smaller);
                    assert!(block.addr().is_multiple_of(align), "{layout:?}");
                    assert!((0..smaller).all(|at| block.add(at).read() == size as u8));
                    blocks.push((block, Layout::from_size_align(smaller, align).unwrap()));
                }
            }
            for (block, layout) in blocks {
                // SAFETY: as above.
                unsafe { Mimalloc.dealloc(block, layout) };
            }
        }
    }
}
