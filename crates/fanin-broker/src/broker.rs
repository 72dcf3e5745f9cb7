//! The broker of the process, and the thread of its link.

use std::io;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use fanin_push::Channels;
use prometheus_client::registry::Registry;
use tokio::runtime::Builder;
use tokio::sync::watch;

use crate::link::Link;
use crate::metrics::Metrics;
use crate::outbox::Outbox;
use crate::target::{Kind, Target};

/// Threads that resolve names and read certificates.
const BLOCKING: usize = 2;
/// Links of this instance before whose events may still come back.
const FORMER: usize = 16;
/// How long the end of the process waits for the last events.
const END: Duration = Duration::from_millis(1500);

/// The link of this process to a broker, if one is configured.
#[derive(Debug)]
pub struct Broker {
    channels: Arc<Channels>,
    metrics: Metrics,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    running: Option<Running>,
    /// How this instance was named in former links.
    former: Vec<u64>,
}

#[derive(Debug)]
struct Running {
    target: Target,
    stop: watch::Sender<bool>,
    /// Disconnected when the thread has ended.
    ended: Receiver<()>,
}

impl Broker {
    /// No link yet.
    pub fn new(channels: Arc<Channels>) -> Arc<Broker> {
        Arc::new(Broker { channels, metrics: Metrics::default(), state: Mutex::default() })
    }

    /// Adds the metrics.
    pub fn register(&self, registry: &mut Registry) {
        self.metrics.register(registry);
    }

    /// From now on events go to this broker, and come from it. The link stays if it is the same one.
    pub fn configure(&self, target: Option<&Target>) {
        let mut state = self.state();
        if state.running.as_ref().map(|running| &running.target) == target {
            return;
        }
        let old = state.running.take();
        let outbox = target.map(|target| Arc::new(Outbox::new(target.queue, target.queue_size, &self.metrics)));
        self.channels.set_relay(outbox.clone().map(|outbox| outbox as _));
        // The old link takes nothing more in before the new one does.
        if let Some(old) = old {
            let _ = old.stop.send(true);
        }
        let (Some(target), Some(outbox)) = (target, outbox) else { return };
        let origin = outbox.origin();
        match self.start(target, outbox, state.former.clone()) {
            Ok(running) => state.running = Some(running),
            Err(error) => {
                self.channels.set_relay(None);
                tracing::error!("the thread of the broker cannot be started, events stay in this instance: {error}");
            }
        }
        if state.former.len() == FORMER {
            state.former.remove(0);
        }
        state.former.push(origin);
    }

    fn start(&self, target: &Target, outbox: Arc<Outbox>, former: Vec<u64>) -> io::Result<Running> {
        let (stop, stopped) = watch::channel(false);
        let (end, ended) = channel::<()>();
        let link = Link {
            target: target.clone(),
            channels: self.channels.clone(),
            outbox,
            former,
            metrics: self.metrics.clone(),
            stop: stopped,
        };
        let runtime = Builder::new_current_thread().enable_all().max_blocking_threads(BLOCKING).build()?;
        thread::Builder::new().name("fanin-broker".into()).spawn(move || {
            // Dropped with the thread.
            let _end = end;
            match link.target.kind {
                #[cfg(feature = "redis")]
                Kind::Redis => runtime.block_on(link.run::<crate::redis::Redis>()),
                #[cfg(feature = "nats")]
                Kind::Nats => runtime.block_on(link.run::<crate::nats::Nats>()),
                // `Target` refuses what is not built.
                #[cfg(not(all(feature = "redis", feature = "nats")))]
                _ => {}
            }
            // A name may still be being resolved.
            runtime.shutdown_background();
        })?;
        Ok(Running { target: target.clone(), stop, ended })
    }

    /// Sends what waits, and ends the link. Blocks for a second or two at most.
    pub fn end(&self) {
        let running = self.state().running.take();
        self.channels.set_relay(None);
        if let Some(running) = running {
            let _ = running.stop.send(true);
            let _ = running.ended.recv_timeout(END);
        }
    }

    /// Only changes of the link run under this lock. None waits, and one that panics leaves no half of a link.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
