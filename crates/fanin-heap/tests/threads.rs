//! The allocator under threads that grow buffers and hand them to each other while profiles are taken: every byte stays what it
//! was, and nothing that was released is told.

use std::alloc::System;
use std::sync::mpsc::sync_channel;

use fanin_heap::Sampling;

#[global_allocator]
static ALLOCATOR: Sampling<System> = Sampling(System);

const THREADS: usize = 4;
// Miri is a thousand times slower.
const ROUNDS: usize = if cfg!(miri) { 20 } else { 2000 };

#[inline(never)]
fn made(number: usize, round: usize) -> Vec<u8> {
    let mut buffer = vec![number as u8; 1 + round % 700];
    // Grown in place or moved, its samples go with it.
    buffer.resize(2000 + round % 3000, number as u8);
    buffer.shrink_to(100);
    buffer
}

#[test]
fn what_threads_hand_to_each_other_is_whole_and_gone_when_released() {
    fanin_heap::start(500);
    let (mut senders, receivers): (Vec<_>, Vec<_>) = (0..THREADS).map(|_| sync_channel::<Vec<u8>>(16)).unzip();
    // Each sends to the next one, which releases.
    senders.rotate_left(1);
    let threads = senders.into_iter().zip(receivers).enumerate().map(|(number, (next, own))| {
        std::thread::spawn(move || {
            let before = (number + THREADS - 1) % THREADS;
            for round in 0..ROUNDS {
                next.send(made(number, round)).expect("the next one receives as much");
                let buffer = own.recv().expect("the one before sends as much");
                assert_eq!(buffer.len(), 2000 + round % 3000);
                assert!(buffer.iter().all(|byte| *byte == before as u8), "thread {number}, round {round}");
            }
        })
    });
    let threads: Vec<_> = threads.collect();
    while !cfg!(miri) && threads.iter().any(|thread| !thread.is_finished()) {
        assert!(fanin_heap::pprof(fanin_heap::Names::Left).starts_with(&[0x1f, 0x8b]));
    }
    threads.into_iter().for_each(|thread| thread.join().expect("nothing was broken"));
    if cfg!(miri) {
        return;
    }
    let text = fanin_heap::text();
    assert!(!text.contains("threads::made"), "{text}");
    // And what lives is told.
    let held = made(1, 99);
    let kept: Vec<_> = (0..100).map(|round| made(1, round)).collect();
    assert!(fanin_heap::text().contains("threads::made"), "{}", fanin_heap::text());
    drop((held, kept));
}
