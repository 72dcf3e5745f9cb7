//! State shared by the listeners of all workers: models, counters of what is in progress, the memory check.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwapOption;
use fanin_config::Priority;
use fanin_tls::{Handshakes, Listener};

use crate::{InferError, Models};

/// Path of ModelInfer, the protocol's main method.
pub const INFER_PATH: &str = "/inference.GRPCInferenceService/ModelInfer";

/// State that the listeners of all workers share.
pub struct Service {
    pub(super) models: Models,
    /// Requests in progress.
    pub(super) in_flight: AtomicUsize,
    /// Bytes that they hold: request bodies, and answers that clients have not read yet.
    pub(super) bytes: AtomicUsize,
    /// OpenConnection connections.
    pub(super) connections: AtomicUsize,
    /// Clients that watch the health.
    pub(super) watching: AtomicUsize,
    /// Connections closed because their clients read answers too slowly.
    pub(super) slow_readers: AtomicU64,
    /// TLS of the listeners. A reload replaces it; open connections go on.
    pub(super) tls: ArcSwapOption<Listener>,
    pub(crate) handshakes: Handshakes,
    /// Tells whether the process runs short of memory.
    memory_pressure: OnceLock<MemoryPressure>,
}

/// Tells whether memory runs so short that requests of a priority must be shed.
pub type MemoryPressure = Box<dyn Fn(Priority) -> bool + Send + Sync>;

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service").field("models", &self.models).field("in_flight", &self.in_flight()).finish()
    }
}

impl Service {
    /// For these models.
    pub fn new(models: Models) -> Arc<Service> {
        Arc::new(Service {
            models,
            in_flight: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            connections: AtomicUsize::new(0),
            watching: AtomicUsize::new(0),
            slow_readers: AtomicU64::new(0),
            tls: ArcSwapOption::empty(),
            handshakes: Handshakes::default(),
            memory_pressure: OnceLock::new(),
        })
    }

    /// Sets TLS for new connections. `None`: plain HTTP.
    pub fn set_tls(&self, tls: Option<Arc<Listener>>) {
        self.tls.store(tls);
    }

    /// Sets the check for memory pressure. Later calls have no effect.
    pub fn set_memory_pressure(&self, memory_pressure: MemoryPressure) {
        self.memory_pressure.get_or_init(|| memory_pressure);
    }

    /// The models.
    pub fn models(&self) -> &Models {
        &self.models
    }

    /// Requests in progress, over all connections.
    pub fn in_flight(&self) -> usize {
        self.in_flight.load(Relaxed)
    }

    /// OpenConnection connections.
    pub fn connections(&self) -> usize {
        self.connections.load(Relaxed)
    }

    /// The error of a request that is shed because a bound is reached. Counts it.
    #[cold]
    pub(super) fn overloaded(&self, message: String) -> InferError {
        let error = InferError::Overloaded(message);
        self.models.shared().outcomes.count(&error);
        error
    }

    fn is_under_pressure(&self, priority: Priority) -> bool {
        self.memory_pressure.get().is_some_and(|memory_pressure| memory_pressure(priority))
    }

    /// Checks that memory suffices.
    ///
    /// # Errors
    /// Memory runs too short for requests of this priority.
    pub(super) fn check_memory(&self, priority: Priority) -> Result<(), InferError> {
        match self.is_under_pressure(priority) {
            false => Ok(()),
            true => Err(self.overloaded(format!("memory runs short, {} requests are refused", priority.as_str()))),
        }
    }

    /// Checks that memory suffices.
    ///
    /// # Errors
    /// Memory runs too short for requests to this model.
    pub(super) fn check_memory_for_model(&self, model: &str) -> Result<(), InferError> {
        // Background requests are shed first. If they pass, no model's priority has to be looked up.
        if !self.is_under_pressure(Priority::Background) {
            return Ok(());
        }
        self.check_memory(self.models.config().settings_of(model).priority)
    }

    /// Bytes of requests in progress, and of answers that clients have not read yet.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    /// Connections closed since the start because their clients read answers too slowly.
    pub fn slow_readers(&self) -> u64 {
        self.slow_readers.load(Relaxed)
    }
}
