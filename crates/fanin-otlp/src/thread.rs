//! The thread that exports. It looks for work a few times a second, so that no worker has to wake it.

use std::fmt;
use std::sync::mpsc::Receiver;
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use tokio::runtime::Builder;
use tokio::time::{sleep, timeout_at};

use crate::collector::Collector;
use crate::measurements::{self, Times};
use crate::metrics::Counters;
use crate::record::RequestRecord;
use crate::{spans, text};

/// How often it looks.
const PAUSE: Duration = Duration::from_millis(100);
/// How long requests are collected for one export.
const COLLECT: Duration = Duration::from_secs(1);
/// Most spans of one export, but for those of its last request.
const BATCH: usize = 512;
/// Failed exports are logged once in this time.
const QUIET: Duration = Duration::from_secs(60);

/// Where metrics come from: OpenMetrics text.
pub(crate) struct Source(pub(crate) Box<dyn Fn() -> String + Send + Sync>);

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Source")
    }
}

/// What the thread and the others tell each other.
#[derive(Debug, Default)]
pub(crate) struct Signals {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Nothing is sent after this; what is left is sent at once.
    end: Option<Instant>,
    ended: bool,
}

impl Signals {
    /// Ends the thread when it has sent what is left, at the latest then.
    pub(crate) fn end(&self, deadline: Instant) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).end = Some(deadline);
    }

    /// Waits for the thread's end.
    pub(crate) fn wait_until(&self, deadline: Instant) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let left = deadline.saturating_duration_since(Instant::now());
        drop(self.changed.wait_timeout_while(state, left, |state| !state.ended));
    }

    fn deadline(&self) -> Option<Instant> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).end
    }
}

/// Set when the thread ends, however that is.
struct Ended<'a>(&'a Signals);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner).ended = true;
        self.0.changed.notify_all();
    }
}

/// Exports until it is told to end.
pub(crate) fn run(
    collector: &Collector,
    records: &Receiver<RequestRecord>,
    source: &OnceLock<Source>,
    counters: &Counters,
    signals: &Signals,
) {
    let _ended = Ended(signals);
    // One more thread looks up the collector's name.
    let runtime = match Builder::new_current_thread().enable_all().max_blocking_threads(1).build() {
        Ok(runtime) => runtime,
        Err(error) => return tracing::error!(%error, "[otlp] cannot be started; nothing is sent"),
    };
    let metrics_due = collector.metrics.map(|every| Instant::now() + every);
    let started = SystemTime::now();
    let mut exporter = Exporter { collector, records, source, counters, signals, started, metrics_due, logged: None };
    runtime.block_on(exporter.run());
}

struct Exporter<'a> {
    collector: &'a Collector,
    records: &'a Receiver<RequestRecord>,
    counters: &'a Counters,
    signals: &'a Signals,
    source: &'a OnceLock<Source>,
    /// Since when metrics count, as far as this thread knows.
    started: SystemTime,
    /// When metrics are sent next.
    metrics_due: Option<Instant>,
    /// When a failure was logged.
    logged: Option<Instant>,
}

impl Exporter<'_> {
    async fn run(&mut self) {
        let mut client = self.collector.client();
        loop {
            let ends = self.signals.deadline();
            let batch = self.batch().await;
            let is_last = batch.is_empty() && ends.is_some();
            if !batch.is_empty() {
                let requests = batch.len();
                let spans: Vec<_> = batch.into_iter().flat_map(spans::of).collect();
                let count = spans.len();
                match self.in_time(client.send_spans(spans)).await {
                    Ok(()) => self.counters.sent(count),
                    Err(error) => {
                        self.counters.export_failed(requests);
                        self.log(&error);
                    }
                }
            }
            if self.metrics_due.is_some_and(|due| is_last || Instant::now() >= due) {
                self.metrics_due = self.collector.metrics.map(|every| Instant::now() + every);
                if let Some(Source(read)) = self.source.get() {
                    let metrics = measurements::scope(text::parse(&read()), Times::since(self.started));
                    if let Err(error) = self.in_time(client.send_metrics(metrics)).await {
                        self.log(&error);
                    }
                }
            }
            if is_last {
                return;
            }
            if self.signals.deadline().is_some_and(|deadline| Instant::now() >= deadline) {
                return self.counters.export_failed(self.records.try_iter().count());
            }
        }
    }

    /// Requests with spans for one export, once some have come. Empty at the end.
    async fn batch(&self) -> Vec<RequestRecord> {
        let (mut batch, mut spans, mut since) = (Vec::new(), 0, None);
        loop {
            for record in self.records.try_iter() {
                spans += 1 + record.calls.len();
                batch.push(record);
                if spans >= BATCH {
                    return batch;
                }
            }
            let now = Instant::now();
            let since = *since.get_or_insert(now);
            let is_due = self.metrics_due.is_some_and(|due| now >= due);
            if is_due || self.signals.deadline().is_some() || !batch.is_empty() && now >= since + COLLECT {
                return batch;
            }
            sleep(PAUSE).await;
        }
    }

    /// An export, within its timeout and until the end.
    async fn in_time(&self, export: impl Future<Output = Result<(), String>>) -> Result<(), String> {
        let timeout = Instant::now() + self.collector.timeout;
        tokio::select! {
            sent = timeout_at(timeout.into(), export) => {
                sent.unwrap_or_else(|_| Err("the collector does not answer in time".to_owned()))
            }
            () = self.past_end() => Err("the process ends".to_owned()),
        }
    }

    async fn past_end(&self) {
        while self.signals.deadline().is_none_or(|deadline| Instant::now() < deadline) {
            sleep(PAUSE).await;
        }
    }

    fn log(&mut self, error: &str) {
        if self.logged.is_none_or(|logged| logged.elapsed() >= QUIET) {
            self.logged = Some(Instant::now());
            tracing::warn!(error, "[otlp] cannot export; what is not sent is dropped");
        }
    }
}
