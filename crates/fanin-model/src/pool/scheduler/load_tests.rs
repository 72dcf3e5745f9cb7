//! The scheduler under Poisson arrivals in simulated time.

use tokio::sync::oneshot;

use super::tests::{Bench, MS, bench, settings};
use super::*;

const MODELS: usize = 10;
/// Nanoseconds that a request takes.
const TAKES: u64 = 1_250_000;
const LEFT: Duration = Duration::from_millis(50);
/// The way to the client.
const BACK: Duration = Duration::from_millis(3);

#[derive(Clone, Copy, Default)]
struct Counted {
    offered: u32,
    good: u32,
    late: u32,
}

/// Offers each model its share of what one thread can do, for so long. One run in fifty takes four times as long as expected.
fn offer(shares: [f64; MODELS], time: Duration) -> [Counted; MODELS] {
    let mut bench = bench(1, 10_000);
    let queues: Vec<usize> = (0..MODELS).map(|_| bench.scheduler.add(settings(Priority::Normal))).collect();
    let mut random = fastrand::Rng::with_seed(7);
    let begun = bench.now;
    let gap = |random: &mut fastrand::Rng, share: f64| {
        Duration::from_nanos((-(1.0 - random.f64()).ln() * TAKES as f64 / share) as u64)
    };
    let mut next: Vec<Instant> = shares.iter().map(|share| begun + gap(&mut random, *share)).collect();
    let mut counted = [Counted::default(); MODELS];
    let mut running: Option<(Instant, (usize, u64), Job)> = None;
    loop {
        let model = (0..MODELS).min_by_key(|model| next[*model]).expect("there are some");
        let done = running.as_ref().map(|(until, ..)| *until);
        if let Some(until) = done.filter(|until| *until <= next[model]) {
            bench.now = until;
            let (_, queue, job) = running.take().expect("it is done");
            let mut outcome = RunOutcome::default();
            outcome.count(&job, until);
            let counted = &mut counted[queues.iter().position(|one| *one == queue.0).expect("a queue")];
            if until + BACK <= job.deadline {
                counted.good += 1
            } else {
                counted.late += 1
            }
            bench.scheduler.done(queue, outcome);
        } else {
            bench.now = next[model];
            if bench.now > begun + time {
                return counted;
            }
            next[model] += gap(&mut random, shares[model]);
            counted[model].offered += 1;
            // Refused requests are missing in the sums.
            let _ = bench.scheduler.push(queues[model], job(&bench), bench.now);
        }
        if running.is_none()
            && let Next::Run { queue, mut jobs } = bench.scheduler.next(bench.now)
        {
            let takes = if random.u32(..50) == 0 { 4 * TAKES } else { TAKES };
            running = jobs.pop().map(|job| (bench.now + Duration::from_nanos(takes), queue, job));
        }
    }
}

fn job(bench: &Bench) -> Job {
    let (reply, _) = oneshot::channel();
    Job {
        version: bench.version.clone(),
        inputs: Vec::new(),
        wanted: u64::MAX,
        rows: 1,
        predicted: TAKES,
        deadline: bench.now + LEFT,
        queued: bench.now,
        expected: 0,
        reply,
    }
}

fn sum(counted: &[Counted], of: fn(&Counted) -> u32) -> f64 {
    counted.iter().map(|one| f64::from(of(one))).sum()
}

#[test]
fn below_capacity_nearly_all_meet_their_deadline() {
    let counted = offer([0.08; MODELS], Duration::from_secs(60));
    let good = sum(&counted, |it| it.good) / sum(&counted, |it| it.offered);
    assert!(good >= 0.999, "{good}");
}

#[test]
fn above_capacity_goodput_stays_near_the_peak() {
    let time = Duration::from_secs(20);
    let counted = offer([0.5; MODELS], time);
    // What the thread could do, with one in fifty that takes four times as long.
    let most = time.as_nanos() as f64 / (TAKES as f64 * 1.06);
    let (good, late) = (sum(&counted, |it| it.good), sum(&counted, |it| it.late));
    assert!(good >= 0.95 * most, "{good} of {most}, {late} late");
    let worst = counted.iter().map(|it| it.good).min().expect("there are some");
    assert!(f64::from(worst) >= 0.8 * good / MODELS as f64, "{worst} of {good} for one model");
}

#[test]
fn a_flood_of_one_model_leaves_the_others_their_share() {
    let mut shares = [0.05; MODELS];
    shares[0] = 5.0;
    let counted = offer(shares, Duration::from_secs(60));
    let (good, offered) = (sum(&counted[1..], |it| it.good), sum(&counted[1..], |it| it.offered));
    assert!(good >= 0.995 * offered, "{good} of {offered}");
    let used = sum(&counted, |it| it.good) * TAKES as f64 * 1.06 / 60e9;
    assert!(used >= 0.95, "{used} of the thread");
    assert!(u64::from(counted[0].offered) * TAKES > 200 * 1000 * MS, "it was a flood");
}
