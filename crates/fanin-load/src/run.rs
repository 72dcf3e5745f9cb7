//! The run: every request is sent when it is due, whatever became of earlier ones.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, interval_at, timeout_at};

use crate::dispatch::{Dispatch, Job};
use crate::error::LoadError;
use crate::http1::{self, Http1};
use crate::http2::Http2Client;
use crate::outcome::{Outcome, Progress};
use crate::pacer::Pacer;
use crate::plan::Plan;
use crate::protocol::Protocol;
use crate::record::{End, Record};

/// Interval of the check for timeouts of waiting requests and for due retries.
const EXPIRY_INTERVAL: Duration = Duration::from_millis(5);

/// The run ends this long after the last request's timeout in any case.
const GRACE: Duration = Duration::from_secs(5);

/// Runs a plan to its end: until the last request has its answer or has timed out.
///
/// `progress` is called every [`Plan::progress`]. Dropping the future ends the load at once.
pub async fn run(plan: &Plan, mut progress: impl FnMut(&Progress)) -> Result<Outcome, LoadError> {
    plan.check()?;
    let addr = resolve(&plan.request.host, plan.request.port).await?;
    let wire = match plan.protocol {
        Protocol::Http1 => Wire::Http1(Arc::new(Http1::new(plan, addr)?)),
        Protocol::Http2 | Protocol::Grpc => Wire::Http2(Arc::new(Http2Client::new(plan, addr)?)),
    };
    let duration = plan.shape.duration();
    // Dropping them ends them.
    let mut tasks = JoinSet::new();
    let start = Instant::now();
    let dispatch = Arc::new(Dispatch::new(plan, start));
    let mut ticks = interval_at((start + plan.progress).into(), plan.progress);
    let mut expiry = interval(EXPIRY_INTERVAL);
    expiry.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut schedule = plan.shape.schedule(plan.arrivals);
    let pacer = Pacer::start(schedule.clone(), start)?;
    let mut next = schedule.next();
    let last = start + duration + plan.timeout + GRACE;
    loop {
        tokio::select! {
            () = pacer.due(), if next.is_some() => {}
            () = dispatch.wake.notified() => {}
            // Tasks record their results themselves.
            Some(_) = tasks.join_next(), if !tasks.is_empty() => {}
            _ = expiry.tick() => dispatch.expire(Instant::now()).into_iter().for_each(|job| wire.send(&dispatch, job, &mut tasks)),
            _ = ticks.tick() => progress(&dispatch.progress(start.elapsed(), duration)),
        }
        let now = Instant::now();
        while let Some(since) = next.filter(|since| start + *since <= now) {
            if let Some(job) = dispatch.offer(since, now) {
                wire.send(&dispatch, job, &mut tasks);
            }
            next = schedule.next();
        }
        let nanos = next.map_or(u64::MAX, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX));
        dispatch.next.store(nanos, Ordering::Relaxed);
        // By then each has been answered or has timed out. A request lost by a bug of this crate shows as missing in the sum.
        if next.is_none() && (dispatch.state().in_flight == 0 || now > last) {
            break;
        }
    }
    drop(tasks);
    let record = std::mem::replace(&mut dispatch.state().record, Record::new(plan));
    Ok(record.outcome(plan))
}

/// The transport of the requests.
enum Wire {
    Http1(Arc<Http1>),
    Http2(Arc<Http2Client>),
}

impl Wire {
    fn send(&self, dispatch: &Arc<Dispatch>, job: Job, tasks: &mut JoinSet<()>) {
        match self {
            Wire::Http1(http1) => {
                if let Some(number) = dispatch.enqueue(job, http1.max_connections) {
                    tasks.spawn(http1::run(dispatch.clone(), http1.clone(), number));
                }
            }
            Wire::Http2(client) => {
                let (dispatch, client) = (dispatch.clone(), client.clone());
                tasks.spawn(async move {
                    let end = match timeout_at(dispatch.deadline(&job).into(), client.send()).await {
                        Ok(sent) => End::Sent(sent),
                        Err(_) => End::Timeout,
                    };
                    dispatch.ends(job, end);
                });
            }
        }
    }
}

/// The first address of a name.
// Called once before the load begins, so blocking a thread does no harm.
#[allow(clippy::disallowed_methods)]
async fn resolve(host: &str, port: u16) -> Result<SocketAddr, LoadError> {
    let bad = |cause| LoadError::Resolve { host: host.into(), cause };
    let mut found = tokio::net::lookup_host((host, port)).await.map_err(bad)?;
    found.next().ok_or_else(|| bad(std::io::Error::from(std::io::ErrorKind::NotFound)))
}
