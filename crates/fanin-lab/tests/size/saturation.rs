//! A log of a saturated pool is recognized; logs with bursts or slow backends are not taken for one.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use fanin_lab::size::Options;

use crate::logs::{Form, Request, log, size_text};

const BEGIN: i64 = 36_000_000;

/// Poisson arrivals in milliseconds: `rates` are requests a second for a minute each.
fn arrivals(rates: &[f64]) -> Vec<i64> {
    let mut random = Random(7);
    let mut all = Vec::new();
    for (minute, rate) in rates.iter().enumerate() {
        let (mut at, end) = (minute as f64 * 60e3, (minute + 1) as f64 * 60e3);
        loop {
            at += random.exponential(1e3 / rate);
            if at >= end {
                break;
            }
            all.push(BEGIN + at as i64);
        }
    }
    all
}

struct Random(u64);

impl Random {
    fn exponential(&mut self, mean: f64) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let uniform = ((self.0 >> 11) + 1) as f64 / (1_u64 << 53) as f64;
        -uniform.ln() * mean
    }
}

/// Requests through a pool of `threads`, each computing 400 ms on average. The log has their waits, or only their service.
fn pool(arrivals: &[i64], threads: usize, with_waits: bool) -> Vec<Request> {
    let mut random = Random(9);
    let mut free: BinaryHeap<Reverse<i64>> = (0..threads).map(|_| Reverse(0)).collect();
    let mut requests = Vec::new();
    for arrival in arrivals {
        let begin = free.pop().expect("a thread").0.max(*arrival);
        let end = begin + random.exponential(400.0) as i64 + 1;
        free.push(Reverse(end));
        let start = if with_waits { *arrival } else { begin };
        requests.push(Request { start, length: end - start });
    }
    requests
}

fn warnings(requests: &[Request]) -> Vec<String> {
    size_text(log(Form::Fanin, requests, false), &Options::default()).unwrap().warnings
}

fn saturation(requests: &[Request]) -> Option<String> {
    warnings(requests).into_iter().find(|warning| warning.contains("saturated"))
}

#[test]
fn waits_in_front_of_a_full_pool_are_recognized() {
    // 20 threads serve 50 requests a second.
    let requests = pool(&arrivals(&[20.0, 30.0, 65.0, 70.0, 20.0]), 20, true);
    let warning = saturation(&requests).expect("a warning");
    assert!(warning.contains("latency grows with the number in progress"), "{warning}");
}

#[test]
fn a_full_pool_is_recognized_if_only_service_times_are_logged() {
    let requests = pool(&arrivals(&[20.0, 30.0, 65.0, 70.0, 20.0]), 20, false);
    let warning = saturation(&requests).expect("a warning");
    assert!(warning.contains("20 requests were in progress"), "{warning}");
}

#[test]
fn a_pool_with_room_is_not_saturated() {
    for rates in [&[20.0, 30.0, 65.0, 70.0, 20.0][..], &[100.0; 3], &[5.0, 200.0, 5.0]] {
        let requests = pool(&arrivals(rates), 1000, true);
        assert_eq!(saturation(&requests), None, "{rates:?}");
    }
}

#[test]
fn slow_backends_are_not_taken_for_saturation() {
    // Everything takes ten times as long for a minute, at the same rate.
    let mut random = Random(3);
    let requests: Vec<Request> = arrivals(&[50.0; 3])
        .into_iter()
        .map(|start| {
            let slow = (BEGIN + 60_000..BEGIN + 120_000).contains(&start);
            Request { start, length: (random.exponential(50.0) + if slow { 2000.0 } else { 200.0 }) as i64 }
        })
        .collect();
    assert_eq!(saturation(&requests), None);
}
