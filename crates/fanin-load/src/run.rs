//! The run: every request is sent when it is due, whatever the others do.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, interval_at, timeout_at};

use crate::client::{Client, Sent};
use crate::error::LoadError;
use crate::lane;
use crate::outcome::{Outcome, Progress};
use crate::pace::Pacer;
use crate::plan::{Plan, Protocol};
use crate::record::{Done, End, Record};
use crate::tls::Tls;

/// How often it is looked for who has waited for a connection for too long, and who tries again.
const SWEEP: Duration = Duration::from_millis(5);

/// How long after the last request has to be given up the run ends in any case.
const LOST: Duration = Duration::from_secs(5);
/// What is no moment of a run, and can be added to one: ten years, nanoseconds.
const DISTANT: u64 = 10 * 365 * 24 * 3600 * 1_000_000_000;

/// Runs a plan to its end: until the last request has its answer or has been given up.
///
/// `progress` is called every [`Plan::progress`]. Dropping the future ends the load at once.
pub async fn run(plan: &Plan, mut progress: impl FnMut(&Progress)) -> Result<Outcome, LoadError> {
    plan.check()?;
    let addr = resolve(&plan.request.host, plan.request.port).await?;
    let wire = match plan.protocol {
        Protocol::Http1 => Wire::Lanes(Arc::new(Http1::new(plan, addr)?)),
        Protocol::Http2 | Protocol::Grpc => Wire::Streams(Arc::new(Client::new(plan, addr)?)),
    };
    let duration = plan.shape.duration();
    // Dropping them ends them.
    let mut tasks = JoinSet::new();
    let start = Instant::now();
    let load = Arc::new(Load::new(plan, start));
    let mut ticks = interval_at((start + plan.progress).into(), plan.progress);
    let mut sweeps = interval(SWEEP);
    sweeps.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut schedule = plan.shape.schedule(plan.arrivals);
    let pacer = Pacer::start(schedule.clone(), start)?;
    let mut next = schedule.next();
    let last = start + duration + plan.timeout + LOST;
    loop {
        tokio::select! {
            () = pacer.rings(), if next.is_some() => {}
            () = load.look.notified() => {}
            // Lanes do not end, and what a stream's request came to it has told.
            Some(_) = tasks.join_next(), if !tasks.is_empty() => {}
            _ = sweeps.tick() => load.sweep(Instant::now()).into_iter().for_each(|job| wire.send(&load, job, &mut tasks)),
            _ = ticks.tick() => progress(&load.progress(start.elapsed(), duration)),
        }
        let now = Instant::now();
        while let Some(since) = next.filter(|since| start + *since <= now) {
            if let Some(job) = load.offer(since, now) {
                wire.send(&load, job, &mut tasks);
            }
            next = schedule.next();
        }
        let nanos = next.map_or(u64::MAX, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX));
        load.next.store(nanos, Ordering::Relaxed);
        // By then each has been answered or given up. What is missing, a fault in this crate has lost, and it is missing in the sum.
        if next.is_none() && (load.state().in_flight == 0 || now > last) {
            break;
        }
    }
    drop(tasks);
    let record = std::mem::replace(&mut load.state().record, Record::new(plan));
    Ok(record.outcome(plan))
}

/// How requests get to the server.
enum Wire {
    Lanes(Arc<Http1>),
    Streams(Arc<Client>),
}

/// What every lane needs.
#[derive(Debug)]
pub(crate) struct Http1 {
    pub(crate) addr: SocketAddr,
    pub(crate) tls: Option<Tls>,
    /// The request, whole.
    pub(crate) bytes: Vec<u8>,
    /// It is a HEAD.
    pub(crate) head: bool,
    /// Lanes at most.
    most: usize,
}

impl Http1 {
    fn new(plan: &Plan, addr: SocketAddr) -> Result<Http1, LoadError> {
        let tls = match plan.request.secure {
            true => Some(Tls::new(&plan.trust, &plan.request.host, plan.protocol)?),
            false => None,
        };
        let head = plan.request.method == http::Method::HEAD;
        Ok(Http1 { addr, tls, bytes: lane::bytes(&plan.request), head, most: plan.connections })
    }
}

impl Wire {
    fn send(&self, load: &Arc<Load>, job: Job, tasks: &mut JoinSet<()>) {
        match self {
            Wire::Lanes(http1) => {
                let mut state = load.state();
                state.waiting.push_back(job);
                match state.idle.pop() {
                    Some((_, waker)) => {
                        drop(state);
                        waker.wake();
                    }
                    None if state.lanes < http1.most => {
                        let number = state.lanes;
                        state.lanes += 1;
                        drop(state);
                        tasks.spawn(lane::run(load.clone(), http1.clone(), number));
                    }
                    None => {}
                }
            }
            Wire::Streams(client) => {
                let (load, client) = (load.clone(), client.clone());
                tasks.spawn(async move {
                    let end = match timeout_at(load.deadline(&job).into(), client.send()).await {
                        Ok(sent) => End::Sent(sent),
                        Err(_) => End::Timeout,
                    };
                    load.ends(job, end);
                });
            }
        }
    }
}

/// A request that is due.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    /// Its moment, from the start.
    since: Duration,
    /// How much later the generator came to it.
    lag: Duration,
    retried: u32,
}

/// What is under way.
#[derive(Debug)]
pub(crate) struct Load {
    start: Instant,
    timeout: Duration,
    max_in_flight: usize,
    retries: u32,
    retry_pause: Duration,
    /// Nothing is, or something is due.
    look: Notify,
    /// The next request that is not sent yet, nanoseconds from the start.
    next: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    record: Record,
    in_flight: usize,
    /// For a lane, by their moments but for those that are tried again.
    waiting: VecDeque<Job>,
    /// Who tries again, and when.
    again: Vec<(Instant, Job)>,
    /// Lanes that wait for a request, the last used on top.
    idle: Vec<(usize, Waker)>,
    lanes: usize,
}

impl Load {
    fn new(plan: &Plan, start: Instant) -> Load {
        let state = State {
            record: Record::new(plan),
            in_flight: 0,
            waiting: VecDeque::new(),
            again: Vec::new(),
            idle: Vec::new(),
            lanes: 0,
        };
        Load {
            start,
            timeout: plan.timeout,
            max_in_flight: plan.max_in_flight,
            retries: plan.retries,
            retry_pause: plan.retry_pause,
            look: Notify::new(),
            next: AtomicU64::new(0),
            state: Mutex::new(state),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing that holds it panics half way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request has become due; `None`: too many are under way.
    fn offer(&self, since: Duration, now: Instant) -> Option<Job> {
        let mut state = self.state();
        let lag = now.saturating_duration_since(self.start + since);
        state.record.offered(since, lag);
        if state.in_flight >= self.max_in_flight {
            state.record.done(Done { due: since, latency: Duration::ZERO, lag, retried: 0, end: End::Unsent });
            return None;
        }
        state.in_flight += 1;
        state.record.most_in_flight = state.record.most_in_flight.max(state.in_flight);
        Some(Job { since, lag, retried: 0 })
    }

    /// When it is given up.
    pub(crate) fn deadline(&self, job: &Job) -> Instant {
        self.start + job.since + self.timeout
    }

    /// A lane has nothing to do: the next request that waits.
    pub(crate) fn poll_job(&self, lane: usize, cx: &mut Context<'_>) -> Poll<Job> {
        let mut state = self.state();
        if let Some(at) = state.idle.iter().rposition(|(number, _)| *number == lane) {
            state.idle.remove(at);
        }
        match state.waiting.pop_front() {
            Some(job) => Poll::Ready(job),
            None => {
                state.idle.push((lane, cx.waker().clone()));
                Poll::Pending
            }
        }
    }

    /// A request ended, or is tried again.
    pub(crate) fn ends(&self, job: Job, end: End) {
        let now = Instant::now();
        let mut state = self.state();
        let good = matches!(end, End::Sent(Sent::Answer { status: 200..300, .. }));
        if !good && job.retried < self.retries && end != End::Timeout {
            let again = now + self.retry_pause.mul_f64(fastrand::f64());
            state.again.push((again, Job { retried: job.retried + 1, ..job }));
            return;
        }
        self.done(&mut state, job, end, now);
    }

    fn done(&self, state: &mut State, job: Job, end: End, now: Instant) {
        let latency = now.saturating_duration_since(self.start + job.since);
        state.record.done(Done { due: job.since, latency, lag: job.lag, retried: job.retried, end });
        state.in_flight -= 1;
        // The pacer's thread may have to wait for this very core.
        let due = self.start + Duration::from_nanos(self.next.load(Ordering::Relaxed).min(DISTANT)) <= now;
        if due || state.in_flight == 0 {
            self.look.notify_one();
        }
    }

    /// Gives up who has waited too long, and gives who is to be tried again.
    fn sweep(&self, now: Instant) -> Vec<Job> {
        let mut state = self.state();
        while let Some(job) = state.waiting.front().copied().filter(|job| self.deadline(job) <= now) {
            state.waiting.pop_front();
            self.done(&mut state, job, End::Timeout, now);
        }
        let mut due = Vec::new();
        let mut at = 0;
        while let Some((again, job)) = state.again.get(at).copied() {
            if self.deadline(&job) <= now {
                state.again.swap_remove(at);
                self.done(&mut state, job, End::Timeout, now);
            } else if again <= now {
                state.again.swap_remove(at);
                due.push(job);
            } else {
                at += 1;
            }
        }
        due
    }

    fn progress(&self, elapsed: Duration, duration: Duration) -> Progress {
        let mut state = self.state();
        let in_flight = state.in_flight;
        state.record.progress(elapsed, duration, in_flight)
    }
}

/// The first address of a name.
// Once, before the load begins: a blocking thread for it harms nobody.
#[allow(clippy::disallowed_methods)]
async fn resolve(host: &str, port: u16) -> Result<SocketAddr, LoadError> {
    let bad = |cause| LoadError::Resolve { host: host.into(), cause };
    let mut found = tokio::net::lookup_host((host, port)).await.map_err(bad)?;
    found.next().ok_or_else(|| bad(std::io::Error::from(std::io::ErrorKind::NotFound)))
}
