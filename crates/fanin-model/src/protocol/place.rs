//! A request's place among those in progress: one of so many, and so many bytes of what all of them may hold.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::Service;
use crate::InferError;
use crate::repository::Bounds;

/// A place keeps holding so much more than it needs: it will be given back soon.
const SLACK: usize = 16 << 10;

/// A place. It is given back when it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    service: Arc<Service>,
    bytes: usize,
    /// Bytes that all may hold together.
    most: usize,
}

impl Place {
    /// A place that holds no bytes yet.
    ///
    /// # Errors
    /// As many requests as may be are in progress.
    pub fn take(service: &Arc<Service>, bounds: &Bounds) -> Result<Place, InferError> {
        let before = service.in_flight.fetch_add(1, Relaxed);
        // It counts already; dropping it gives it back.
        let place = Place { service: service.clone(), bytes: 0, most: bounds.max_in_progress };
        if before < bounds.limit {
            return Ok(place);
        }
        Err(service.refuses(format!("{} requests are in progress already (models.limit)", bounds.limit)))
    }

    /// It holds so many bytes more.
    ///
    /// # Errors
    /// All requests together would hold too many.
    pub fn add(&mut self, bytes: usize) -> Result<(), InferError> {
        self.bytes += bytes;
        if self.service.bytes.fetch_add(bytes, Relaxed).saturating_add(bytes) <= self.most {
            return Ok(());
        }
        Err(self.full())
    }

    /// The answer is there and the request is not needed any more.
    ///
    /// # Errors
    /// All requests together would hold too many.
    pub fn answers(&mut self, bytes: usize) -> Result<(), InferError> {
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
        let most = fanin_config::format_size(self.most as u64);
        self.service.refuses(format!("requests and answers in progress hold {most} already (models.max_in_progress)"))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.service.in_flight.fetch_sub(1, Relaxed);
        self.service.bytes.fetch_sub(self.bytes, Relaxed);
    }
}
