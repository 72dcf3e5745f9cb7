//! Memory that a thread has freed goes back to the system although the thread does little afterwards. A process of its own: tests of
//! one process share what is resident.

#![cfg(not(miri))]

use std::time::{Duration, Instant};

use fanin_heap::Mimalloc;

#[global_allocator]
static ALLOCATOR: Mimalloc = Mimalloc;

/// Bytes of this process that are in memory.
fn resident() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").expect("Linux has it");
    pages.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).expect("a number") * 4096
}

#[test]
fn collecting_gives_back_what_a_quiet_thread_has_freed() {
    fanin_heap::return_soon();
    let buffers: Vec<_> = (0..512).map(|_| vec![1_u8; 16 << 10]).collect();
    let held = resident();
    drop(buffers);
    let begun = Instant::now();
    while resident() + (6 << 20) > held && begun.elapsed() < Duration::from_secs(60) {
        std::thread::park_timeout(Duration::from_millis(20));
        fanin_heap::collect();
    }
    assert!(resident() + (6 << 20) <= held, "of 8 MB {} KB were given back", held.saturating_sub(resident()) >> 10);
}
