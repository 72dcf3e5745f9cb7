//! The run: every due request becomes a task, whatever the others do.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::{interval_at, timeout_at};

use crate::client::{Client, Sent};
use crate::error::LoadError;
use crate::outcome::{Outcome, Progress};
use crate::pace::Pacer;
use crate::plan::Plan;
use crate::record::{Done, End, Record};

/// Runs a plan to its end: until the last request has its answer or has been given up.
///
/// `progress` is called every [`Plan::progress`]. Dropping the future ends the load at once.
pub async fn run(plan: &Plan, mut progress: impl FnMut(&Progress)) -> Result<Outcome, LoadError> {
    plan.check()?;
    let client = Client::new(plan, resolve(&plan.request.host, plan.request.port).await?)?;
    let duration = plan.shape.duration();
    let mut record = Record::new(plan);
    let mut tasks = JoinSet::new();
    let start = Instant::now();
    let mut ticks = interval_at((start + plan.progress).into(), plan.progress);
    let mut pacer = Pacer::start(plan.shape.schedule(plan.arrivals), start)?;
    let mut scheduling = true;
    while scheduling || !tasks.is_empty() {
        tokio::select! {
            due = pacer.next(), if scheduling => match due {
                Some(due) => {
                    let since = due.saturating_duration_since(start);
                    record.offered(since, due.elapsed());
                    if tasks.len() >= plan.max_in_flight {
                        record.done(Done { due: since, latency: Duration::ZERO, retried: 0, end: End::Unsent });
                    } else {
                        let retries = Retries { left: plan.retries, pause: plan.retry_pause };
                        tasks.spawn(one(Arc::clone(&client), due, since, plan.timeout, retries));
                        record.most_in_flight = record.most_in_flight.max(tasks.len());
                    }
                }
                None => scheduling = false,
            },
            // A task ends with a panic only if this crate has a fault, and then its request is missing in the sum.
            Some(Ok(done)) = tasks.join_next(), if !tasks.is_empty() => record.done(done),
            _ = ticks.tick() => progress(&record.progress(start.elapsed(), duration, tasks.len())),
        }
    }
    Ok(record.outcome(plan))
}

/// How often a client may try again.
struct Retries {
    left: u32,
    pause: Duration,
}

async fn one(client: Arc<Client>, due: Instant, since: Duration, patience: Duration, mut retries: Retries) -> Done {
    let end = (due + patience).into();
    let mut retried = 0;
    let tries = async {
        loop {
            let sent = client.send().await;
            if matches!(sent, Sent::Answer { status: 200..300, .. }) || retries.left == 0 {
                return sent;
            }
            retries.left -= 1;
            tokio::time::sleep(retries.pause.mul_f64(fastrand::f64())).await;
            retried += 1;
        }
    };
    let end = match timeout_at(end, tries).await {
        Ok(sent) => End::Sent(sent),
        Err(_) => End::Timeout,
    };
    Done { due: since, latency: due.elapsed(), retried, end }
}

/// The first address of a name.
// Once, before the load begins: a blocking thread for it harms nobody.
#[allow(clippy::disallowed_methods)]
async fn resolve(host: &str, port: u16) -> Result<SocketAddr, LoadError> {
    let bad = |cause| LoadError::Resolve { host: host.into(), cause };
    let mut found = tokio::net::lookup_host((host, port)).await.map_err(bad)?;
    found.next().ok_or_else(|| bad(std::io::Error::from(std::io::ErrorKind::NotFound)))
}
