//! The handle of the export: it belongs to the process, and reloads keep it.

use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use fanin_config::{Otlp, Tracing};
use fanin_tracecontext::TraceContext;
use prometheus_client::registry::Registry;

use crate::collector::Collector;
use crate::metrics::Counters;
use crate::record::RequestRecord;
use crate::thread::{Signals, Source, run};

/// Where spans are sent, and which. Made from a valid configuration.
#[derive(Clone, Debug)]
pub struct Target {
    collector: Arc<Collector>,
    slow: Option<Duration>,
    queue: usize,
}

/// Makes a target of a configuration. `None`: it wants no export.
///
/// # Errors
/// What is wrong with it.
pub fn check(otlp: Option<&Otlp>, tracing: Option<&Tracing>) -> Result<Option<Target>, String> {
    let Some(otlp) = otlp else { return Ok(None) };
    let collector = Collector::new(otlp).map_err(|(key, problem)| format!("otlp.{key}: {problem}"))?;
    let slow = tracing.and_then(|tracing| tracing.slow);
    Ok(Some(Target { collector: Arc::new(collector), slow, queue: otlp.queue }))
}

impl Target {
    /// Whether the spans of a request are sent.
    pub fn wants(&self, context: &TraceContext, status: u16, duration: Duration) -> bool {
        context.is_sampled() || status >= 500 || self.slow.is_some_and(|slow| duration >= slow)
    }
}

/// Sends what workers give it.
#[derive(Debug, Default)]
pub struct Export {
    running: ArcSwapOption<Running>,
    source: Arc<OnceLock<Source>>,
    counters: Counters,
}

/// The thread, and what it is given.
#[derive(Debug)]
struct Running {
    queue: SyncSender<RequestRecord>,
    signals: Arc<Signals>,
}

impl Running {
    fn start(target: &Target, source: &Arc<OnceLock<Source>>, counters: &Counters) -> std::io::Result<Running> {
        let (queue, records): (_, Receiver<RequestRecord>) = sync_channel(target.queue);
        let signals = Arc::new(Signals::default());
        let (collector, counters, ours) = (target.collector.clone(), counters.clone(), signals.clone());
        let source = source.clone();
        let body = move || run(&collector, &records, &source, &counters, &ours);
        thread::Builder::new().name("fanin-otlp".to_owned()).spawn(body)?;
        Ok(Running { queue, signals })
    }
}

impl Export {
    /// Sends to this target from now on. What waits for another one is still sent there.
    pub fn configure(&self, target: Option<&Target>) {
        let next = target.and_then(|target| match Running::start(target, &self.source, &self.counters) {
            Ok(running) => Some(Arc::new(running)),
            Err(error) => {
                tracing::error!(%error, "the thread of [otlp] cannot be started; nothing is sent");
                None
            }
        });
        if let Some(old) = self.running.swap(next) {
            old.signals.end(Instant::now() + LAST);
        }
    }

    /// Takes metrics from here, as OpenMetrics text. The first source stays.
    pub fn measure(&self, source: impl Fn() -> String + Send + Sync + 'static) {
        let _ = self.source.set(Source(Box::new(source)));
    }

    /// Gives the spans of a request to the thread. Never waits: a full queue drops them. Whether it has taken them.
    pub fn send(&self, request: RequestRecord) -> bool {
        let running = self.running.load();
        let Some(running) = &*running else { return false };
        match running.queue.try_send(request) {
            Ok(()) => true,
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.counters.queue_full();
                false
            }
        }
    }

    /// Sends what is left, for at most this long, and ends.
    pub fn end(&self, within: Duration) {
        let Some(running) = self.running.swap(None) else { return };
        let deadline = Instant::now() + within;
        running.signals.end(deadline);
        running.signals.wait_until(deadline + GRACE);
    }

    /// Adds the counts to a registry.
    pub fn register(&self, registry: &mut Registry) {
        self.counters.register(registry);
    }
}

/// How long the thread may take to notice its deadline.
const GRACE: Duration = Duration::from_millis(300);
/// How long a target that a reload replaced may still take.
const LAST: Duration = Duration::from_secs(10);
