//! The queues, and who is next.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use slab::Slab;

use super::{Job, LaneSettings};
use crate::InferError;

/// The part of a request's time that waiting must leave: one in so many.
const RESERVE: u32 = 5;

/// A model's queue.
struct Lane {
    settings: LaneSettings,
    jobs: VecDeque<Job>,
    /// Expected nanoseconds of all that waits.
    backlog: u64,
    /// Threads that compute it.
    running: usize,
    /// Expected nanoseconds of what they compute.
    running_time: u64,
    /// Nanoseconds of threads that it has had, on a clock common to all lanes.
    had: u64,
    /// Its model is gone; the lane goes with its last job.
    removed: bool,
}

pub(super) struct State {
    lanes: Slab<Lane>,
    threads: usize,
    pub max_waiting: usize,
    waiting: usize,
    /// What the lane that was served last had had: a lane that was empty begins there, with nothing saved up.
    clock: u64,
    /// Threads that sleep.
    pub idle: usize,
    stopped: bool,
}

/// What a thread does next.
pub(super) enum Next {
    Stop,
    /// Computes these, which fit together.
    Run {
        lane: (usize, u64),
        jobs: Vec<Job>,
    },
    /// Sleeps, until then at most.
    Sleep(Option<Instant>),
}

impl State {
    pub fn new(threads: usize, max_waiting: usize) -> State {
        State { lanes: Slab::new(), threads, max_waiting, waiting: 0, clock: 0, idle: 0, stopped: false }
    }

    pub fn add(&mut self, settings: LaneSettings) -> usize {
        let lane = Lane {
            settings,
            jobs: VecDeque::new(),
            backlog: 0,
            running: 0,
            running_time: 0,
            had: self.clock,
            removed: false,
        };
        self.lanes.insert(lane)
    }

    pub fn configure(&mut self, lane: usize, settings: LaneSettings) {
        if let Some(lane) = self.lanes.get_mut(lane) {
            lane.settings = settings;
        }
    }

    pub fn remove(&mut self, number: usize) {
        if let Some(lane) = self.lanes.get_mut(number) {
            lane.removed = true;
            self.sweep(number);
        }
    }

    fn sweep(&mut self, number: usize) {
        if self.lanes.get(number).is_some_and(|lane| lane.removed && lane.jobs.is_empty() && lane.running == 0) {
            self.lanes.remove(number);
        }
    }

    pub fn waiting(&self) -> usize {
        self.waiting
    }

    pub fn is_empty(&self, lane: usize) -> bool {
        self.lanes.get(lane).is_none_or(|lane| lane.jobs.is_empty())
    }

    pub fn stop(&mut self) -> Vec<Job> {
        self.stopped = true;
        self.waiting = 0;
        self.lanes.iter_mut().flat_map(|(_, lane)| lane.jobs.drain(..)).collect()
    }

    /// Adds a job, or refuses it. Gives a job of lower priority that had to go for it.
    pub fn push(&mut self, number: usize, job: Job, now: Instant) -> Result<Option<Job>, InferError> {
        if self.stopped {
            return Err(InferError::Unavailable("the server ends".to_owned()));
        }
        let Some(lane) = self.lanes.get(number) else {
            return Err(InferError::Unavailable("the model has been unloaded".to_owned()));
        };
        let priority = lane.settings.priority;
        let wait = self.wait(number, job.predicted);
        let left = job.deadline.saturating_duration_since(now);
        // A queue that is just as long as the deadline makes all of it late by the way back, and computes it for nobody.
        let reserve = if wait.is_zero() { Duration::ZERO } else { left / RESERVE };
        if wait + Duration::from_nanos(job.predicted) > left.saturating_sub(reserve) {
            return Err(InferError::Overloaded(format!(
                "the request would wait {wait:.1?} and take {:.1?}, its deadline is in {left:.1?}",
                Duration::from_nanos(job.predicted)
            )));
        }
        let mut evicted = None;
        if self.waiting >= self.max_waiting {
            // The newest of the least important, if that is less important than this one.
            let last = self.lanes.iter_mut().filter(|(_, lane)| !lane.jobs.is_empty());
            let last = last.max_by_key(|(_, lane)| lane.settings.priority).map(|(_, lane)| lane);
            match last.filter(|lane| lane.settings.priority > priority) {
                Some(lane) => {
                    evicted = lane.jobs.pop_back();
                    if let Some(evicted) = &evicted {
                        lane.backlog = lane.backlog.saturating_sub(evicted.predicted);
                        self.waiting -= 1;
                    }
                }
                None => {
                    return Err(InferError::Overloaded(format!(
                        "{} requests wait already (max_waiting)",
                        self.waiting
                    )));
                }
            }
        }
        let clock = self.clock;
        if let Some(lane) = self.lanes.get_mut(number) {
            if lane.jobs.is_empty() && lane.running == 0 {
                lane.had = lane.had.max(clock);
            }
            lane.backlog += job.predicted;
            lane.jobs.push_back(job);
            self.waiting += 1;
        }
        Ok(evicted)
    }

    /// How long a job of this lane is expected to wait for a thread.
    fn wait(&self, number: usize, own: u64) -> Duration {
        let Some(lane) = self.lanes.get(number) else { return Duration::ZERO };
        let busy: usize = self.lanes.iter().map(|(_, lane)| lane.running).sum();
        if lane.jobs.is_empty() && busy < self.threads && lane.running < self.limit(lane) {
            return Duration::ZERO;
        }
        let mut ahead = 0_u64;
        for (other, one) in &self.lanes {
            ahead += one.running_time / 2;
            ahead += if other == number {
                one.backlog
            } else {
                match one.settings.priority.cmp(&lane.settings.priority) {
                    std::cmp::Ordering::Less => one.backlog,
                    // Lanes take turns: another gets no more in the meantime than this one.
                    std::cmp::Ordering::Equal => one.backlog.min(lane.backlog + own),
                    std::cmp::Ordering::Greater => 0,
                }
            };
        }
        let by_all = ahead / self.threads as u64;
        let by_own = (lane.backlog + lane.running_time / 2) / self.limit(lane) as u64;
        Duration::from_nanos(by_all.max(by_own))
    }

    fn limit(&self, lane: &Lane) -> usize {
        match lane.settings.limit {
            0 => (self.threads - 1).max(1),
            limit => limit.min(self.threads),
        }
    }

    /// What a thread does next.
    pub fn next(&mut self, now: Instant) -> Next {
        if self.stopped {
            return Next::Stop;
        }
        let mut wake: Option<Instant> = None;
        let mut best: Option<(usize, (fanin_config::Priority, u64))> = None;
        for (number, lane) in &self.lanes {
            let Some(first) = lane.jobs.front() else { continue };
            if lane.running >= self.limit(lane) {
                continue;
            }
            if lane.settings.max_batch > 1 {
                let full = lane.jobs.iter().map(|job| job.rows).sum::<usize>() >= lane.settings.max_batch;
                let due = first.queued + lane.settings.max_delay;
                if !full && due > now {
                    wake = Some(wake.map_or(due, |wake| wake.min(due)));
                    continue;
                }
            }
            let rank = (lane.settings.priority, lane.had);
            if best.is_none_or(|(_, best)| rank < best) {
                best = Some((number, rank));
            }
        }
        let Some((number, _)) = best else { return Next::Sleep(wake) };
        let lane = &mut self.lanes[number];
        let mut jobs: Vec<Job> = Vec::new();
        let mut rows = 0;
        let mut time = 0;
        while let Some(job) = lane.jobs.front() {
            let fits =
                jobs.is_empty() || rows + job.rows <= lane.settings.max_batch && super::batch::together(&jobs[0], job);
            if !fits {
                break;
            }
            // It is there, as the condition of the loop says.
            let Some(job) = lane.jobs.pop_front() else { break };
            rows += job.rows;
            time += job.predicted;
            jobs.push(job);
        }
        self.waiting -= jobs.len();
        self.clock = self.clock.max(lane.had);
        lane.had += time;
        lane.backlog = lane.backlog.saturating_sub(time);
        lane.running += 1;
        lane.running_time += time;
        Next::Run { lane: (number, time), jobs }
    }

    /// A thread has ended a run. Tells whether the lane may go on where it could not before.
    pub fn done(&mut self, (number, time): (usize, u64)) -> bool {
        let Some(lane) = self.lanes.get_mut(number) else { return false };
        lane.running -= 1;
        lane.running_time = lane.running_time.saturating_sub(time);
        let more = !lane.jobs.is_empty();
        self.sweep(number);
        more
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fanin_config::Priority;
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

    const MS: u64 = 1_000_000;

    struct Bench {
        state: State,
        now: Instant,
        version: Arc<Version>,
        replies: Vec<oneshot::Receiver<Result<Vec<Tensor>, InferError>>>,
    }

    fn bench(threads: usize, max_waiting: usize) -> Bench {
        let version = Arc::new(Version::for_test("echo", Box::new(Echo)));
        Bench { state: State::new(threads, max_waiting), now: Instant::now(), version, replies: Vec::new() }
    }

    fn settings(priority: Priority) -> LaneSettings {
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
                    self.state.done(lane);
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
            bench.push(*lane, f64::from(number), 1, 100_000).expect("it fits");
        }
        // All nine are done within a turn of each, not behind 999.
        let order: Vec<f64> = (0..10).flat_map(|_| bench.run()).collect();
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
        // 40 ms wait in front of it.
        let error = bench.push(lane, 0.0, 10, 49).err().expect("it does not fit");
        assert_eq!(error.to_string(), "the request would wait 40.0ms and take 10.0ms, its deadline is in 49.0ms");
        // A fifth of the time is kept for the way back.
        assert!(bench.push(lane, 0.0, 10, 60).is_err());
        bench.push(lane, 0.0, 10, 63).expect("it fits");
        // Another model is in front of most of them.
        let other = bench.state.add(settings(Priority::Normal));
        bench.push(other, 0.0, 10, 25).expect("it fits");
        // With two threads, half the wait; but this model may have one only.
        let mut bench = self::bench(2, 1000);
        let lane = bench.state.add(settings(Priority::Normal));
        for _ in 0..4 {
            bench.push(lane, 0.0, 10, 50).expect("it fits");
        }
        assert!(bench.push(lane, 0.0, 10, 49).is_err());
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
        assert!(bench.state.done(second), "another can go on now");
        assert!(matches!(bench.state.next(bench.now), Next::Run { .. }));
    }

    #[test]
    fn requests_wait_for_each_other_as_long_as_they_may() {
        let mut bench = bench(1, 100);
        let batched = LaneSettings { max_batch: 3, max_delay: Duration::from_millis(5), ..settings(Priority::Normal) };
        let lane = bench.state.add(batched);
        bench.push(lane, 1.0, 1, 1000).expect("it fits");
        bench.push(lane, 2.0, 1, 1000).expect("it fits");
        assert!(
            matches!(bench.state.next(bench.now), Next::Sleep(Some(until)) if until == bench.now + batched.max_delay)
        );
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
        crate::pool::batch::run(jobs, bench.now);
        let answers: Vec<_> =
            bench.replies.iter_mut().map(|reply| reply.try_recv().expect("answered").expect("fine")).collect();
        assert_eq!(answers[0][0].data, Data::Fp64(vec![0.0]));
        assert_eq!(answers[1][0].data, Data::Fp64(vec![7.0, 8.0]));
        assert_eq!(answers[1][0].shape.as_slice(), [2, 1]);
        assert_eq!(answers[2][0].data, Data::Fp64(vec![2.0]));
    }
}
