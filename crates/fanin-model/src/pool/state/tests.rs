use std::sync::Arc;

use tokio::sync::oneshot;

use super::*;
use crate::engine::Engine;
use crate::repository::Version;
use crate::{Data, DataType, Signature, Tensor};

/// Gives its input back.
struct Echo;

impl Engine for Echo {
    fn platform(&self) -> &str {
        "echo"
    }
    fn signature(&self) -> &Signature {
        static NONE: Signature = Signature { inputs: Vec::new(), outputs: Vec::new() };
        &NONE
    }
    fn memory(&self) -> usize {
        0
    }
    fn rows_are_independent(&self) -> bool {
        true
    }
    fn infer(&self, inputs: &[Tensor], _: u64) -> Result<Vec<Tensor>, InferError> {
        Ok(inputs.to_vec())
    }
}

pub(super) const MS: u64 = 1_000_000;

pub(super) struct Bench {
    pub(super) state: State,
    pub(super) now: Instant,
    pub(super) version: Arc<Version>,
    replies: Vec<oneshot::Receiver<Result<Vec<Tensor>, InferError>>>,
}

pub(super) fn bench(threads: usize, max_waiting: usize) -> Bench {
    let version = Arc::new(Version::for_test("echo", Box::new(Echo)));
    Bench { state: State::new(threads, max_waiting), now: Instant::now(), version, replies: Vec::new() }
}

pub(super) fn settings(priority: Priority) -> LaneSettings {
    LaneSettings { priority, limit: 1, max_batch: 1, max_delay: Duration::ZERO }
}

impl Bench {
    /// A job of so many milliseconds, with so many until its deadline; told apart by its first number.
    fn job(&mut self, number: f64, takes: u64, left: u64) -> Job {
        let (reply, answer) = oneshot::channel();
        self.replies.push(answer);
        let data = Data::Fp64(vec![number]);
        let shape = smallvec::smallvec![1, 1];
        Job {
            version: self.version.clone(),
            inputs: vec![Tensor { name: "x".into(), datatype: DataType::Fp64, shape, data }],
            wanted: u64::MAX,
            rows: 1,
            predicted: takes * MS,
            deadline: self.now + Duration::from_millis(left),
            queued: self.now,
            expected: 0,
            reply,
        }
    }

    fn push(&mut self, lane: usize, number: f64, takes: u64, left: u64) -> Result<Option<Job>, InferError> {
        let job = self.job(number, takes, left);
        self.state.push(lane, job, self.now)
    }

    /// Runs what is next; gives the numbers of the jobs.
    fn run(&mut self) -> Vec<f64> {
        match self.state.next(self.now) {
            Next::Run { lane, jobs } => {
                self.state.done(lane, Ends::default());
                jobs.iter()
                    .map(|job| if let Data::Fp64(all) = &job.inputs[0].data { all[0] } else { f64::NAN })
                    .collect()
            }
            Next::Sleep(_) => Vec::new(),
            Next::Stop => panic!("it was not stopped"),
        }
    }
}

#[test]
fn a_flood_of_one_model_delays_its_own_requests_only() {
    let mut bench = bench(1, 10_000);
    let flood = bench.state.add(settings(Priority::Normal));
    let others: Vec<_> = (0..9).map(|_| bench.state.add(settings(Priority::Normal))).collect();
    for number in 0..1000 {
        bench.push(flood, f64::from(number), 1, 100_000).expect("it fits");
    }
    bench.run();
    for (number, lane) in (2000..).zip(&others) {
        bench.push(*lane, f64::from(number), 1, 100_001).expect("it fits");
    }
    // All nine are done after what is tolerated and a turn of each, not behind 999.
    let order: Vec<f64> = (0..20).flat_map(|_| bench.run()).collect();
    assert_eq!(order.iter().filter(|number| **number >= 2000.0).count(), 9, "{order:?}");
}

#[test]
fn threads_time_not_requests_is_what_is_shared() {
    let mut bench = bench(1, 1000);
    let (heavy, light) = (bench.state.add(settings(Priority::Normal)), bench.state.add(settings(Priority::Normal)));
    for _ in 0..100 {
        bench.push(heavy, 1.0, 10, 100_000).expect("it fits");
        bench.push(light, 0.0, 1, 100_000).expect("it fits");
    }
    let order: Vec<f64> = (0..110).flat_map(|_| bench.run()).collect();
    let heavy = order.iter().sum::<f64>();
    assert!((9.0..=11.0).contains(&heavy), "{heavy} of the heavy ones among 110");
}

#[test]
fn what_cannot_be_done_in_time_is_refused_at_once() {
    let mut bench = bench(1, 1000);
    let lane = bench.state.add(settings(Priority::Normal));
    for _ in 0..4 {
        bench.push(lane, 0.0, 10, 50).expect("it fits");
    }
    // 40 ms wait in front of it, and a tenth of what computing leaves is kept for the way back.
    let error = bench.push(lane, 0.0, 10, 54).err().expect("it does not fit");
    assert_eq!(error.to_string(), "the request would wait 40.0ms and take 10.0ms, its deadline is in 54.0ms");
    bench.push(lane, 0.0, 10, 55).expect("it fits");
    // Another model is in front of most of them.
    let other = bench.state.add(settings(Priority::Normal));
    bench.push(other, 0.0, 10, 60).expect("it fits");
    let error = bench.push(other, 0.0, 2000, 2038).err().expect("it does not fit");
    assert!(error.to_string().starts_with("the request would wait 35.0ms"), "{error}");
    bench.push(other, 0.0, 2000, 2039).expect("it fits");
    // With two threads, half the wait; but this model may have one only.
    let mut bench = self::bench(2, 1000);
    let lane = bench.state.add(settings(Priority::Normal));
    for _ in 0..4 {
        bench.push(lane, 0.0, 10, 50).expect("it fits");
    }
    assert!(bench.push(lane, 0.0, 10, 54).is_err());
}

#[test]
fn what_was_computed_for_nobody_raises_the_reserve_and_the_rest_lowers_it() {
    let mut bench = bench(1, 1000);
    let lane = bench.state.add(settings(Priority::Normal));
    let runs_out = |bench: &mut Bench, ends: Ends| {
        bench.push(lane, 0.0, 10, 50).expect("nothing waits");
        let Next::Run { lane, .. } = bench.state.next(bench.now) else { panic!("it waits") };
        bench.state.done(lane, ends);
        // Whether one that waits 20 ms may leave less than 12 for the way back.
        let fits = (0..2).all(|_| bench.push(lane.0, 0.0, 10, 42).is_ok()) && bench.push(lane.0, 0.0, 10, 42).is_ok();
        while !bench.run().is_empty() {}
        fits
    };
    let (late, fine) = (Ends { late: 1, in_time: 0 }, Ends { late: 0, in_time: 1 });
    assert!(runs_out(&mut bench, fine));
    let allowed = (0..100).take_while(|_| runs_out(&mut bench, late)).count();
    assert!((15..=20).contains(&allowed), "{allowed} late ones before it is more careful");
    let kept = (0..10_000).take_while(|_| !runs_out(&mut bench, fine)).count();
    assert!((1..=200).contains(&kept), "{kept} answers in time before it is less careful");
    // However many are late, half of the time stays.
    for _ in 0..100 {
        runs_out(&mut bench, late);
    }
    bench.push(lane, 0.0, 10, 31).expect("it fits");
    bench.push(lane, 0.0, 10, 31).expect("it fits");
}

#[test]
fn too_late_is_what_leaves_no_time_for_the_way_back() {
    let mut bench = bench(1, 1000);
    let job = bench.job(0.0, 10, 60);
    let at = |ms| {
        let mut ends = Ends::default();
        ends.count(&job, bench.now + Duration::from_millis(ms));
        (ends.in_time, ends.late)
    };
    assert_eq!([at(10), at(55), at(56), at(70)], [(1, 0), (1, 0), (0, 1), (0, 1)]);
}

#[test]
fn who_has_less_time_goes_first() {
    let mut bench = bench(1, 3);
    let lane = bench.state.add(settings(Priority::Normal));
    bench.push(lane, 1.0, 10, 100).expect("it fits");
    bench.push(lane, 2.0, 10, 300).expect("it fits");
    // Behind the others it would be late, in front of them it is not.
    assert!(bench.push(lane, 3.0, 10, 9).is_err());
    bench.push(lane, 3.0, 10, 15).expect("it fits");
    assert_eq!([bench.run(), bench.run(), bench.run()], [vec![3.0], vec![1.0], vec![2.0]]);
    // Of two with the same deadline the first that came.
    bench.push(lane, 4.0, 10, 100).expect("it fits");
    bench.push(lane, 5.0, 10, 100).expect("it fits");
    assert_eq!([bench.run(), bench.run()], [vec![4.0], vec![5.0]]);
    // A critical request takes the place of the one that has most time left.
    let critical = bench.state.add(settings(Priority::Critical));
    for (number, left) in [(6.0, 900), (7.0, 100), (8.0, 500)] {
        bench.push(lane, number, 10, left).expect("it fits");
    }
    let evicted = bench.push(critical, 9.0, 10, 100).expect("it has the right of way").expect("one had to go");
    assert_eq!(evicted.inputs[0].data, Data::Fp64(vec![6.0]));
}

#[test]
fn models_that_have_had_about_as_much_do_not_overtake_each_other() {
    let mut bench = bench(1, 1000);
    let (one, other) = (bench.state.add(settings(Priority::Normal)), bench.state.add(settings(Priority::Normal)));
    for left in 100..103 {
        bench.push(one, 0.0, 2, left).expect("it fits");
    }
    bench.push(other, 1.0, 2, 103).expect("it fits");
    // What is there first goes first, although it is all of one model; and that is what is expected.
    let told = bench.push(other, 1.0, 2000, 2008).err().expect("it takes longer").to_string();
    assert!(told.starts_with("the request would wait 8.0ms"), "{told}");
    bench.push(one, 2.0, 2, 104).expect("it fits");
    assert_eq!((0..5).flat_map(|_| bench.run()).collect::<Vec<_>>(), [0.0, 0.0, 0.0, 1.0, 2.0]);
}

#[test]
fn another_models_turns_are_counted_as_they_will_come() {
    let mut bench = bench(1, 1000);
    let (one, other) = (bench.state.add(settings(Priority::Normal)), bench.state.add(settings(Priority::Normal)));
    for _ in 0..8 {
        bench.push(one, 0.0, 10, 1000).expect("it fits");
    }
    bench.push(other, 1.0, 10, 1001).expect("it fits");
    // The other begins where this one stood, which has its two turns before it has had too much.
    assert_eq!((0..3).flat_map(|_| bench.run()).collect::<Vec<_>>(), [0.0, 0.0, 1.0]);
    // Six wait: one or two of them before the other's next but one, by what both will have had then.
    bench.push(other, 1.0, 10, 1002).expect("it fits");
    let told = bench.push(other, 1.0, 2000, 2027).err().expect("it takes longer").to_string();
    assert!(told.starts_with("the request would wait 25.0ms"), "{told}");
}

#[test]
fn waits_that_were_longer_than_expected_are_expected_to_be_so_again() {
    let mut bench = bench(1, 1000);
    let lane = bench.state.add(settings(Priority::Normal));
    // Something else takes half of the core: each run takes twice what is expected of it.
    for _ in 0..200 {
        for number in 0..3 {
            bench.push(lane, f64::from(number), 10, 1000).expect("it fits");
        }
        for _ in 0..3 {
            bench.run();
            bench.now += Duration::from_millis(20);
        }
    }
    bench.push(lane, 0.0, 10, 44).expect("it fits");
    bench.push(lane, 0.0, 10, 44).expect("it fits");
    // 20 ms wait in front by prediction, about 40 by experience.
    let told = bench.push(lane, 0.0, 10, 45).err().expect("it would be late").to_string();
    let waits =
        told.split("wait ").nth(1).and_then(|rest| rest.split("ms").next()).and_then(|ms| ms.parse::<f64>().ok());
    assert!(waits.is_some_and(|waits| (36.0..=44.0).contains(&waits)), "{told}");
    bench.run();
    bench.run();
    // And back: but never below what is predicted.
    for _ in 0..1000 {
        bench.push(lane, 1.0, 10, 1000).expect("it fits");
        bench.push(lane, 2.0, 10, 1000).expect("it fits");
        for _ in 0..2 {
            bench.run();
            bench.now += Duration::from_millis(1);
        }
    }
    bench.push(lane, 0.0, 10, 18).expect("it fits");
    let told = bench.push(lane, 0.0, 10, 19).err().expect("it would be late").to_string();
    assert!(told.starts_with("the request would wait 10.0ms and take 10.0ms"), "{told}");
}

#[test]
fn a_full_queue_refuses_the_least_important() {
    let mut bench = bench(1, 2);
    let low = bench.state.add(settings(Priority::Low));
    let high = bench.state.add(settings(Priority::Critical));
    bench.push(low, 1.0, 1, 1000).expect("it fits");
    bench.push(low, 2.0, 1, 1000).expect("it fits");
    let error = bench.push(low, 3.0, 1, 1000).err().expect("it is full");
    assert_eq!(error.to_string(), "2 requests wait already (max_waiting)");
    let evicted = bench.push(high, 4.0, 1, 1000).expect("it has the right of way").expect("one had to go");
    assert_eq!(evicted.inputs[0].data, Data::Fp64(vec![2.0]));
    assert_eq!([bench.run(), bench.run(), bench.run()], [vec![4.0], vec![1.0], vec![]]);
}

#[test]
fn a_model_holds_no_more_threads_than_its_limit() {
    let mut bench = bench(3, 100);
    let lane = bench.state.add(LaneSettings { limit: 0, ..settings(Priority::Normal) });
    for _ in 0..3 {
        bench.push(lane, 0.0, 10, 1000).expect("it fits");
    }
    assert!(matches!(bench.state.next(bench.now), Next::Run { .. }));
    let Next::Run { lane: second, .. } = bench.state.next(bench.now) else { panic!("two of three threads") };
    assert!(matches!(bench.state.next(bench.now), Next::Sleep(None)));
    assert!(bench.state.done(second, Ends::default()), "another can go on now");
    assert!(matches!(bench.state.next(bench.now), Next::Run { .. }));
}

#[test]
fn requests_wait_for_each_other_as_long_as_they_may() {
    let mut bench = bench(1, 100);
    let batched = LaneSettings { max_batch: 3, max_delay: Duration::from_millis(5), ..settings(Priority::Normal) };
    let lane = bench.state.add(batched);
    bench.push(lane, 1.0, 1, 1000).expect("it fits");
    bench.push(lane, 2.0, 1, 1000).expect("it fits");
    assert!(matches!(bench.state.next(bench.now), Next::Sleep(Some(until)) if until == bench.now + batched.max_delay));
    bench.push(lane, 3.0, 1, 1000).expect("it fits");
    bench.push(lane, 4.0, 1, 1000).expect("it fits");
    assert_eq!(bench.run(), [1.0, 2.0, 3.0]);
    assert!(bench.run().is_empty());
    bench.now += batched.max_delay;
    assert_eq!(bench.run(), [4.0]);
}

#[test]
fn requests_computed_together_get_their_own_rows() {
    let mut bench = bench(1, 100);
    let mut jobs: Vec<Job> = (0..3).map(|number| bench.job(f64::from(number), 1, 1000)).collect();
    jobs[1].rows = 2;
    jobs[1].inputs[0].shape[0] = 2;
    jobs[1].inputs[0].data = Data::Fp64(vec![7.0, 8.0]);
    assert!(crate::pool::batch::together(&jobs[0], &jobs[1]));
    let ends = crate::pool::batch::run(jobs, bench.now);
    assert_eq!(ends, Ends { in_time: 3, late: 0 });
    let answers: Vec<_> =
        bench.replies.iter_mut().map(|reply| reply.try_recv().expect("answered").expect("fine")).collect();
    assert_eq!(answers[0][0].data, Data::Fp64(vec![0.0]));
    assert_eq!(answers[1][0].data, Data::Fp64(vec![7.0, 8.0]));
    assert_eq!(answers[1][0].shape.as_slice(), [2, 1]);
    assert_eq!(answers[2][0].data, Data::Fp64(vec![2.0]));
}
