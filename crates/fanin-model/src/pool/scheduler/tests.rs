use std::sync::Arc;

use tokio::sync::oneshot;

use super::*;
use crate::engine::Engine;
use crate::repository::Version;
use crate::{Data, DataType, Signature, Tensor};

/// Returns its input.
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
    pub(super) scheduler: Scheduler,
    pub(super) now: Instant,
    pub(super) version: Arc<Version>,
    replies: Vec<oneshot::Receiver<Result<Vec<Tensor>, InferError>>>,
}

pub(super) fn bench(threads: usize, max_waiting: usize) -> Bench {
    let version = Arc::new(Version::for_test("echo", Box::new(Echo)));
    Bench { scheduler: Scheduler::new(threads, max_waiting), now: Instant::now(), version, replies: Vec::new() }
}

pub(super) fn settings(priority: Priority) -> QueueSettings {
    QueueSettings { priority, limit: 1, max_batch: 1, max_delay: Duration::ZERO }
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

    fn push(&mut self, queue: usize, number: f64, takes: u64, left: u64) -> Result<Option<Job>, InferError> {
        let job = self.job(number, takes, left);
        self.scheduler.push(queue, job, self.now)
    }

    /// Runs what is next; gives the numbers of the jobs.
    fn run(&mut self) -> Vec<f64> {
        match self.scheduler.next(self.now) {
            Next::Run { queue, jobs } => {
                self.scheduler.done(queue, RunOutcome::default());
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
    let flood = bench.scheduler.add(settings(Priority::Normal));
    let others: Vec<_> = (0..9).map(|_| bench.scheduler.add(settings(Priority::Normal))).collect();
    for number in 0..1000 {
        bench.push(flood, f64::from(number), 1, 100_000).expect("it fits");
    }
    bench.run();
    for (number, queue) in (2000..).zip(&others) {
        bench.push(*queue, f64::from(number), 1, 100_001).expect("it fits");
    }
    // All nine are done after the tolerance and one job each, not behind 999.
    let order: Vec<f64> = (0..20).flat_map(|_| bench.run()).collect();
    assert_eq!(order.iter().filter(|number| **number >= 2000.0).count(), 9, "{order:?}");
}

#[test]
fn models_share_thread_time_not_requests() {
    let mut bench = bench(1, 1000);
    let (heavy, light) =
        (bench.scheduler.add(settings(Priority::Normal)), bench.scheduler.add(settings(Priority::Normal)));
    for _ in 0..100 {
        bench.push(heavy, 1.0, 10, 100_000).expect("it fits");
        bench.push(light, 0.0, 1, 100_000).expect("it fits");
    }
    let order: Vec<f64> = (0..110).flat_map(|_| bench.run()).collect();
    let heavy = order.iter().sum::<f64>();
    assert!((9.0..=11.0).contains(&heavy), "{heavy} of the heavy ones among 110");
}

#[test]
fn a_request_that_would_miss_its_deadline_is_refused_at_once() {
    let mut bench = bench(1, 1000);
    let queue = bench.scheduler.add(settings(Priority::Normal));
    for _ in 0..4 {
        bench.push(queue, 0.0, 10, 50).expect("it fits");
    }
    // 40 ms wait before it, and a tenth of its spare time is reserved for the way to the client.
    let error = bench.push(queue, 0.0, 10, 54).err().expect("it does not fit");
    assert_eq!(error.to_string(), "the request would wait 40.0ms and take 10.0ms, its deadline is in 54.0ms");
    bench.push(queue, 0.0, 10, 55).expect("it fits");
    // A request of another model goes before most of them.
    let other = bench.scheduler.add(settings(Priority::Normal));
    bench.push(other, 0.0, 10, 60).expect("it fits");
    let error = bench.push(other, 0.0, 2000, 2038).err().expect("it does not fit");
    assert!(error.to_string().starts_with("the request would wait 35.0ms"), "{error}");
    bench.push(other, 0.0, 2000, 2039).expect("it fits");
    // Two threads would halve the wait, but this model is limited to one.
    let mut bench = self::bench(2, 1000);
    let queue = bench.scheduler.add(settings(Priority::Normal));
    for _ in 0..4 {
        bench.push(queue, 0.0, 10, 50).expect("it fits");
    }
    assert!(bench.push(queue, 0.0, 10, 54).is_err());
}

#[test]
fn late_answers_raise_the_reserve_and_timely_ones_lower_it() {
    let mut bench = bench(1, 1000);
    let queue = bench.scheduler.add(settings(Priority::Normal));
    let runs_out = |bench: &mut Bench, outcome: RunOutcome| {
        bench.push(queue, 0.0, 10, 50).expect("nothing waits");
        let Next::Run { queue, .. } = bench.scheduler.next(bench.now) else { panic!("it waits") };
        bench.scheduler.done(queue, outcome);
        // Whether one that waits 20 ms may leave less than 12 for the way to the client.
        let fits = (0..2).all(|_| bench.push(queue.0, 0.0, 10, 42).is_ok()) && bench.push(queue.0, 0.0, 10, 42).is_ok();
        while !bench.run().is_empty() {}
        fits
    };
    let (late, fine) = (RunOutcome { late: 1, in_time: 0 }, RunOutcome { late: 0, in_time: 1 });
    assert!(runs_out(&mut bench, fine));
    let allowed = (0..100).take_while(|_| runs_out(&mut bench, late)).count();
    assert!((15..=20).contains(&allowed), "{allowed} late ones before it is more careful");
    let kept = (0..10_000).take_while(|_| !runs_out(&mut bench, fine)).count();
    assert!((1..=200).contains(&kept), "{kept} answers in time before it is less careful");
    // The reserve is at most half.
    for _ in 0..100 {
        runs_out(&mut bench, late);
    }
    bench.push(queue, 0.0, 10, 31).expect("it fits");
    bench.push(queue, 0.0, 10, 31).expect("it fits");
}

#[test]
fn an_answer_without_time_for_the_way_back_counts_as_late() {
    let mut bench = bench(1, 1000);
    let job = bench.job(0.0, 10, 60);
    let at = |ms| {
        let mut outcome = RunOutcome::default();
        outcome.count(&job, bench.now + Duration::from_millis(ms));
        (outcome.in_time, outcome.late)
    };
    assert_eq!([at(10), at(55), at(56), at(70)], [(1, 0), (1, 0), (0, 1), (0, 1)]);
}

#[test]
fn the_earliest_deadline_goes_first() {
    let mut bench = bench(1, 3);
    let queue = bench.scheduler.add(settings(Priority::Normal));
    bench.push(queue, 1.0, 10, 100).expect("it fits");
    bench.push(queue, 2.0, 10, 300).expect("it fits");
    // Behind the others it would be late, in front of them it is not.
    assert!(bench.push(queue, 3.0, 10, 9).is_err());
    bench.push(queue, 3.0, 10, 15).expect("it fits");
    assert_eq!([bench.run(), bench.run(), bench.run()], [vec![3.0], vec![1.0], vec![2.0]]);
    // Equal deadlines: first come, first served.
    bench.push(queue, 4.0, 10, 100).expect("it fits");
    bench.push(queue, 5.0, 10, 100).expect("it fits");
    assert_eq!([bench.run(), bench.run()], [vec![4.0], vec![5.0]]);
    // A critical request evicts the one with the latest deadline.
    let critical = bench.scheduler.add(settings(Priority::Critical));
    for (number, left) in [(6.0, 900), (7.0, 100), (8.0, 500)] {
        bench.push(queue, number, 10, left).expect("it fits");
    }
    let evicted = bench.push(critical, 9.0, 10, 100).expect("it has the higher priority").expect("one is evicted");
    assert_eq!(evicted.inputs[0].data, Data::Fp64(vec![6.0]));
}

#[test]
fn models_with_similar_thread_time_are_served_by_deadline() {
    let mut bench = bench(1, 1000);
    let (one, other) =
        (bench.scheduler.add(settings(Priority::Normal)), bench.scheduler.add(settings(Priority::Normal)));
    for left in 100..103 {
        bench.push(one, 0.0, 2, left).expect("it fits");
    }
    bench.push(other, 1.0, 2, 103).expect("it fits");
    // Earlier deadlines go first although all are of one model, and the prediction says so.
    let message = bench.push(other, 1.0, 2000, 2008).err().expect("it takes longer").to_string();
    assert!(message.starts_with("the request would wait 8.0ms"), "{message}");
    bench.push(one, 2.0, 2, 104).expect("it fits");
    assert_eq!((0..5).flat_map(|_| bench.run()).collect::<Vec<_>>(), [0.0, 0.0, 0.0, 1.0, 2.0]);
}

#[test]
fn the_predicted_wait_counts_jobs_of_other_models() {
    let mut bench = bench(1, 1000);
    let (one, other) =
        (bench.scheduler.add(settings(Priority::Normal)), bench.scheduler.add(settings(Priority::Normal)));
    for _ in 0..8 {
        bench.push(one, 0.0, 10, 1000).expect("it fits");
    }
    bench.push(other, 1.0, 10, 1001).expect("it fits");
    // The other queue starts at this one's virtual time, so this one runs two jobs before it has used too much.
    assert_eq!((0..3).flat_map(|_| bench.run()).collect::<Vec<_>>(), [0.0, 0.0, 1.0]);
    // Six wait: one or two of them run before the other's next but one.
    bench.push(other, 1.0, 10, 1002).expect("it fits");
    let message = bench.push(other, 1.0, 2000, 2027).err().expect("it takes longer").to_string();
    assert!(message.starts_with("the request would wait 25.0ms"), "{message}");
}

#[test]
fn the_wait_factor_follows_observed_waits() {
    let mut bench = bench(1, 1000);
    let queue = bench.scheduler.add(settings(Priority::Normal));
    // Something else takes half of the core: each run takes twice its prediction.
    for _ in 0..200 {
        for number in 0..3 {
            bench.push(queue, f64::from(number), 10, 1000).expect("it fits");
        }
        for _ in 0..3 {
            bench.run();
            bench.now += Duration::from_millis(20);
        }
    }
    bench.push(queue, 0.0, 10, 44).expect("it fits");
    bench.push(queue, 0.0, 10, 44).expect("it fits");
    // The prediction is 20 ms, corrected to about 40.
    let message = bench.push(queue, 0.0, 10, 45).err().expect("it would be late").to_string();
    let waits =
        message.split("wait ").nth(1).and_then(|rest| rest.split("ms").next()).and_then(|ms| ms.parse::<f64>().ok());
    assert!(waits.is_some_and(|waits| (36.0..=44.0).contains(&waits)), "{message}");
    bench.run();
    bench.run();
    // And back, but never below the prediction.
    for _ in 0..1000 {
        bench.push(queue, 1.0, 10, 1000).expect("it fits");
        bench.push(queue, 2.0, 10, 1000).expect("it fits");
        for _ in 0..2 {
            bench.run();
            bench.now += Duration::from_millis(1);
        }
    }
    bench.push(queue, 0.0, 10, 18).expect("it fits");
    let message = bench.push(queue, 0.0, 10, 19).err().expect("it would be late").to_string();
    assert!(message.starts_with("the request would wait 10.0ms and take 10.0ms"), "{message}");
}

#[test]
fn a_full_queue_evicts_the_lowest_priority() {
    let mut bench = bench(1, 2);
    let low = bench.scheduler.add(settings(Priority::Low));
    let high = bench.scheduler.add(settings(Priority::Critical));
    bench.push(low, 1.0, 1, 1000).expect("it fits");
    bench.push(low, 2.0, 1, 1000).expect("it fits");
    let error = bench.push(low, 3.0, 1, 1000).err().expect("it is full");
    assert_eq!(error.to_string(), "2 requests are already waiting (max_waiting)");
    let evicted = bench.push(high, 4.0, 1, 1000).expect("it has the higher priority").expect("one is evicted");
    assert_eq!(evicted.inputs[0].data, Data::Fp64(vec![2.0]));
    assert_eq!([bench.run(), bench.run(), bench.run()], [vec![4.0], vec![1.0], vec![]]);
}

#[test]
fn a_model_holds_no_more_threads_than_its_limit() {
    let mut bench = bench(3, 100);
    let queue = bench.scheduler.add(QueueSettings { limit: 0, ..settings(Priority::Normal) });
    for _ in 0..3 {
        bench.push(queue, 0.0, 10, 1000).expect("it fits");
    }
    assert!(matches!(bench.scheduler.next(bench.now), Next::Run { .. }));
    let Next::Run { queue: second, .. } = bench.scheduler.next(bench.now) else { panic!("two of three threads") };
    assert!(matches!(bench.scheduler.next(bench.now), Next::Sleep(None)));
    assert!(bench.scheduler.done(second, RunOutcome::default()), "another can go on now");
    assert!(matches!(bench.scheduler.next(bench.now), Next::Run { .. }));
}

#[test]
fn a_batch_waits_at_most_max_delay() {
    let mut bench = bench(1, 100);
    let batched = QueueSettings { max_batch: 3, max_delay: Duration::from_millis(5), ..settings(Priority::Normal) };
    let queue = bench.scheduler.add(batched);
    bench.push(queue, 1.0, 1, 1000).expect("it fits");
    bench.push(queue, 2.0, 1, 1000).expect("it fits");
    assert!(
        matches!(bench.scheduler.next(bench.now), Next::Sleep(Some(until)) if until == bench.now + batched.max_delay)
    );
    bench.push(queue, 3.0, 1, 1000).expect("it fits");
    bench.push(queue, 4.0, 1, 1000).expect("it fits");
    assert_eq!(bench.run(), [1.0, 2.0, 3.0]);
    assert!(bench.run().is_empty());
    bench.now += batched.max_delay;
    assert_eq!(bench.run(), [4.0]);
}

#[test]
fn a_batch_is_split_into_the_rows_of_each_request() {
    let mut bench = bench(1, 100);
    let mut jobs: Vec<Job> = (0..3).map(|number| bench.job(f64::from(number), 1, 1000)).collect();
    jobs[1].rows = 2;
    jobs[1].inputs[0].shape[0] = 2;
    jobs[1].inputs[0].data = Data::Fp64(vec![7.0, 8.0]);
    assert!(crate::pool::batch::can_batch(&jobs[0], &jobs[1]));
    let outcome = crate::pool::batch::run(jobs, bench.now);
    assert_eq!(outcome, RunOutcome { in_time: 3, late: 0 });
    let answers: Vec<_> =
        bench.replies.iter_mut().map(|reply| reply.try_recv().expect("answered").expect("fine")).collect();
    assert_eq!(answers[0][0].data, Data::Fp64(vec![0.0]));
    assert_eq!(answers[1][0].data, Data::Fp64(vec![7.0, 8.0]));
    assert_eq!(answers[1][0].shape.as_slice(), [2, 1]);
    assert_eq!(answers[2][0].data, Data::Fp64(vec![2.0]));
}
