//! A program with the allocator in front: what it holds is found at the line that allocated it, and no more.

use std::alloc::System;
use std::hint::black_box;

use fanin_heap::Sampling;

#[global_allocator]
static ALLOCATOR: Sampling<System> = Sampling(System);

#[inline(never)]
fn hold(count: usize, size: usize) -> Vec<Vec<u8>> {
    (0..count).map(|_| black_box(vec![1_u8; size])).collect()
}

/// Bytes of sites that have this function.
fn bytes_of(function: &str) -> f64 {
    let text = fanin_heap::text();
    let sites = text.split("\n\n").skip(1).filter(|site| site.contains(function));
    sites.filter_map(|site| site.trim_start().split(' ').next()?.parse::<f64>().ok()).sum::<f64>() * 1e3
}

// One test: what is noted belongs to the process.
#[test]
fn what_lives_is_found_by_the_line_that_allocated_it() {
    let before = hold(1000, 10_000);
    assert_eq!(fanin_heap::text(), "heap profiling is off\n");
    fanin_heap::start(64 << 10);
    fanin_heap::start(1);
    assert_eq!(fanin_heap::every(), Some(64 << 10));
    // 20 MB: some 300 samples, so that a deviation of a third is five times the usual one.
    let held = hold(2000, 10_000);
    let found = bytes_of("profile::hold");
    assert!((found - 20e6).abs() < 7e6, "{found}\n{}", fanin_heap::text());
    drop(before);
    // Released by another thread, and a buffer that grows: neither stays.
    let mut grown: Vec<u8> = Vec::with_capacity(1 << 20);
    std::thread::spawn(move || drop(held)).join().expect("it ends");
    grown.reserve(8 << 20);
    let left = bytes_of("profile::hold");
    assert!(left < 1e6, "{left}\n{}", fanin_heap::text());
    let grown_found = bytes_of("what_lives_is_found");
    assert!((grown_found - (8 << 20) as f64).abs() < 1e6, "{grown_found}\n{}", fanin_heap::text());
    drop(grown);
    // Threads that allocate and release at once leave nothing behind.
    let threads: Vec<_> =
        (0..4).map(|_| std::thread::spawn(|| (0..50).for_each(|_| drop(hold(100, 10_000))))).collect();
    threads.into_iter().for_each(|thread| thread.join().expect("it ends"));
    assert!(bytes_of("profile::hold") < 1e6, "{}", fanin_heap::text());
    assert!(fanin_heap::pprof(fanin_heap::Names::Found).starts_with(&[0x1f, 0x8b]));
}
