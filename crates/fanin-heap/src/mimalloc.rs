//! mimalloc, asked for the usual alignments in the usual way.
//!
//! The `mimalloc` crate asks for each allocation with its alignment. A size that is no power of two then gets a block that is larger
//! by the alignment whenever its size class has no block at hand, and always above 1 KB, and from then on each release in that
//! page has to look for the block's beginning. Nearly all allocations want no more than what `mi_malloc` promises anyway, as the
//! standard library knows of `malloc`; they ask for nothing else here.

use std::alloc::{GlobalAlloc, Layout};

use libmimalloc_sys::{
    mi_free, mi_malloc, mi_malloc_aligned, mi_realloc, mi_realloc_aligned, mi_zalloc, mi_zalloc_aligned,
};

/// The alignment of each block that is at least as large (`MI_MAX_ALIGN_SIZE` of mimalloc's `types.h`: that of C's
/// `max_align_t`). Smaller blocks are aligned to a machine word, which is at least the power of two below their size.
const ALWAYS: usize = 16;

/// The allocator.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mimalloc;

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
    use super::*;

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
