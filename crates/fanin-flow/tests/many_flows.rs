//! A hundred thousand interleaved flows with random suspensions, failures and cancellations. Each answer equals that of a naive
//! evaluation, and all memory is freed.

mod common;

use std::ops::Range;
use std::rc::Rc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use common::{Script, Setup, after, paused, setup};
use fanin_upstream::ErrorKind;

const WORKERS: u64 = 2;
const WAVES: u64 = 5;
const FLOWS: u64 = 20_000;

const STAR: &str = "
def one(n, i):
    first = a.get(\"/first\", query = {\"n\": n, \"i\": i})
    if first[\"v\"] % 2 == 0:
        return b.get(\"/second\", query = {\"n\": n, \"i\": i}, default = {\"v\": -1})[\"v\"]
    return first[\"v\"]

def flow(req):
    n = int(req.query[\"n\"])
    last = c.get(\"/last\", query = {\"n\": n})
    return {\"items\": [one(n, i) for i in range(n % 4)], \"last\": last[\"v\"]}
";

/// A number that depends on `x` alone (SplitMix64).
fn mix(x: u64) -> u64 {
    let mut z = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The upstream's answer for `n` and `i`, and whether it fails.
fn value(path: &str, n: u64, i: u64) -> (u64, bool) {
    let seed = mix(n * 31 + i * 7 + path.len() as u64);
    (seed % 1000, seed.is_multiple_of(17))
}

fn number(query: &str, name: &str) -> u64 {
    query.split(['?', '&']).find_map(|pair| pair.strip_prefix(name)?.strip_prefix('=')?.parse().ok()).unwrap_or(0)
}

fn script(path_and_query: &str) -> Script {
    let (path, query) = path_and_query.split_once('?').unwrap();
    let (n, i) = (number(query, "n"), number(query, "i"));
    let (v, fails) = value(path, n, i);
    let delay = mix(n ^ (i << 40) ^ path.len() as u64) % 20;
    let script = after(delay, format!("{{\"v\": {v}}}"));
    if fails { script.error(ErrorKind::Refused) } else { script }
}

/// The naive evaluation: the body, or the upstream whose call fails first in program order.
fn expected(n: u64) -> Result<String, &'static str> {
    let mut items = Vec::new();
    for i in 0..n % 4 {
        let (first, fails) = value("/first", n, i);
        if fails {
            return Err("a");
        }
        items.push(if first % 2 == 0 {
            match value("/second", n, i) {
                (_, true) => "-1".to_owned(),
                (second, false) => second.to_string(),
            }
        } else {
            first.to_string()
        });
    }
    match value("/last", n, 0) {
        (_, true) => Err("c"),
        (last, false) => Ok(format!("{{\"items\":[{}],\"last\":{last}}}", items.join(","))),
    }
}

fn resident_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Outcomes of flows.
#[derive(Debug, Default)]
struct Ends {
    answered: u64,
    failed: u64,
    cancelled: u64,
}

/// Runs these flows at once and compares each with the naive evaluation.
async fn wave(it: &Rc<Setup>, flows: Range<u64>, ends: &mut Ends) {
    let flows: Vec<_> = flows
        .map(|n| {
            let it = it.clone();
            tokio::task::spawn_local(async move {
                let flow = it.flows.run(0, it.incoming(&format!("/?n={n}")));
                // One client in eight leaves early.
                let patience = if mix(n).is_multiple_of(8) { mix(n + 1) % 25 } else { 3_600_000 };
                (n, tokio::time::timeout(Duration::from_millis(patience), flow).await.ok())
            })
        })
        .collect();
    for flow in flows {
        let (n, reply) = flow.await.unwrap();
        match reply.map(|reply| reply.result) {
            None => ends.cancelled += 1,
            Some(Ok(success)) => {
                ends.answered += 1;
                assert_eq!(Ok(String::from_utf8(success.body.concat()).unwrap()), expected(n), "{n}");
            }
            Some(Err(error)) => {
                ends.failed += 1;
                assert_eq!(expected(n), Err(error.upstream.as_deref().unwrap()), "{n}: {error}");
            }
        }
    }
    it.events.borrow_mut().clear();
}

/// A thread with a runtime and flows of its own, like a worker. Runs the waves that it receives and reports the end of each.
fn worker(waves: &Receiver<Range<u64>>, ended: &Sender<()>) -> Ends {
    let mut ends = Ends::default();
    paused(async {
        let it = Rc::new(setup(STAR, |_, request| script(&request.path_and_query)));
        for flows in waves {
            wave(&it, flows, &mut ends).await;
            let _ = ended.send(());
        }
    });
    ends
}

/// On the threads executor, as many as threads and queue entries.
fn flows_a_wave() -> u64 {
    if common::threaded() { 500 } else { FLOWS }
}

#[test]
fn hundred_thousand_flows_match_the_naive_evaluation_and_free_their_memory() {
    let workers = (0..WORKERS).map(|_| {
        let ((waves, received), (ended, end)) = (channel(), channel());
        (waves, end, thread::spawn(move || worker(&received, &ended)))
    });
    let workers: Vec<_> = workers.collect();
    let flows = flows_a_wave() / WORKERS;
    let mut held = Vec::new();
    for number in 0..WAVES {
        for (at, (waves, _, _)) in (number * WORKERS..).zip(&workers) {
            let _ = waves.send(at * flows..(at + 1) * flows);
        }
        // No thread runs a wave while memory is read. A thread that panicked drops its channel and is reported below.
        for (_, end, _) in &workers {
            let _ = end.recv();
        }
        held.push(resident_kb());
    }
    let mut all = Ends::default();
    for (waves, _, thread) in workers {
        drop(waves);
        let ends = thread.join().unwrap();
        all.answered += ends.answered;
        all.failed += ends.failed;
        all.cancelled += ends.cancelled;
    }
    let count = WAVES * flows_a_wave();
    assert_eq!(all.answered + all.failed + all.cancelled, count);
    assert!(all.answered > count / 2 && all.failed > count / 100 && all.cancelled > count / 100, "{all:?}");
    let (first, last) = (held[0], held[held.len() - 1]);
    assert!(last < first * 11 / 10 + 4096, "{first} kB after the first wave, {last} kB at the end");
}
