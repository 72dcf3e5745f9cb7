//! The in-flight budget: a permit for each request in progress, and the bytes that all of them hold together.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::service::Service;
use crate::InferError;
use crate::repository::Bounds;

/// A permit whose answer is smaller than its request keeps up to this many bytes: returning them is not worth an atomic operation.
const SLACK: usize = 16 << 10;

/// The right of one request to be in progress. Released on drop.
#[derive(Debug)]
pub(super) struct InFlightPermit {
    service: Arc<Service>,
    bytes: usize,
    /// The budget: bytes that all requests may hold together.
    max: usize,
}

impl InFlightPermit {
    /// Takes a permit that holds no bytes yet.
    ///
    /// # Errors
    /// `models.limit` requests are in progress.
    pub fn acquire(service: &Arc<Service>, bounds: &Bounds) -> Result<InFlightPermit, InferError> {
        let before = service.in_flight.fetch_add(1, Relaxed);
        // It counts already; dropping it releases it.
        let permit = InFlightPermit { service: service.clone(), bytes: 0, max: bounds.max_in_progress };
        if before < bounds.limit {
            return Ok(permit);
        }
        Err(service.overloaded(format!("{} requests are in progress already (models.limit)", bounds.limit)))
    }

    /// Adds bytes that the request holds.
    ///
    /// # Errors
    /// The budget is used up.
    pub fn add(&mut self, bytes: usize) -> Result<(), InferError> {
        self.bytes += bytes;
        if self.service.bytes.fetch_add(bytes, Relaxed).saturating_add(bytes) <= self.max {
            return Ok(());
        }
        Err(self.full())
    }

    /// Replaces the bytes of the request, which is no longer needed, by those of its answer.
    ///
    /// # Errors
    /// The budget is used up.
    pub fn replace_by_answer(&mut self, bytes: usize) -> Result<(), InferError> {
        if bytes > self.bytes {
            return self.add(bytes - self.bytes);
        }
        if self.bytes - bytes > SLACK {
            self.service.bytes.fetch_sub(self.bytes - bytes, Relaxed);
            self.bytes = bytes;
        }
        Ok(())
    }

    #[cold]
    fn full(&self) -> InferError {
        let max = fanin_config::format_size(self.max as u64);
        self.service.overloaded(format!("requests and answers in progress hold {max} already (models.max_in_progress)"))
    }
}

impl Drop for InFlightPermit {
    fn drop(&mut self) {
        self.service.in_flight.fetch_sub(1, Relaxed);
        self.service.bytes.fetch_sub(self.bytes, Relaxed);
    }
}
