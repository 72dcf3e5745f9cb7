//! `fanin record`: requests with what their calls were answered, for `fanin replay`.
//!
//! - `session`: one recording: what is recorded, and the bytes that nobody has fetched yet. `capture`: a request while it is answered.
//! - `convert`: what has been captured, as the file has it. `pages`: the admin pages. `command`: `fanin record`.
//!
//! A worker does little: it keeps what the flow had anyway, and puts it into a queue. A thread makes the file.

mod capture;
mod captured;
pub mod command;
mod convert;
mod pages;
mod session;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use arc_swap::ArcSwapOption;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

pub use capture::Capture;
pub use pages::page;
use session::Session;

/// The recording of a process. Kept by reloads.
#[derive(Debug, Default)]
pub struct Recordings {
    /// Whether requests may be recorded: what a request without a recording costs.
    is_on: AtomicBool,
    current: ArcSwapOption<Session>,
    counts: Counts,
}

/// Requests of all recordings, by what became of them.
#[derive(Debug, Clone, Default)]
struct Counts(Family<Labels, Counter>);

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    outcome: &'static str,
}

impl Counts {
    fn count(&self, outcome: &'static str) {
        self.0.get_or_create(&Labels { outcome }).inc();
    }
}

impl Recordings {
    /// Adds its metrics to a registry.
    pub fn register(&self, registry: &mut Registry) {
        let help = "Requests chosen for a recording, by what became of them";
        registry.register("fanin_recording_requests", help, self.counts.0.clone());
        for outcome in ["recorded", "dropped", "left_out"] {
            drop(self.counts.0.get_or_create(&Labels { outcome }));
        }
    }

    /// The session that chooses requests now.
    #[inline]
    fn active(&self) -> Option<Arc<Session>> {
        if !self.is_on.load(Relaxed) {
            return None;
        }
        let session = self.current.load_full()?;
        if session.has_ended() {
            self.is_on.store(false, Relaxed);
            return None;
        }
        Some(session)
    }
}
