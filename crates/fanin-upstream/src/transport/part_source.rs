//! Bodies that a transport does not collect: it leaves a source of their parts, which is read as fast as its reader takes them.

use std::cell::RefCell;
use std::fmt;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;

use crate::error::Failure;

/// What the parts of one body are read from. Dropping it before the end closes the connection, or resets its stream.
pub(crate) trait PartSource {
    /// The next part, never an empty one. `None` at the end; it is not polled after that.
    fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Failure>>>;

    /// How the server has ended a gRPC stream.
    fn ending(&mut self) -> Option<Ending> {
        None
    }
}

/// The status and the trailers that ended a gRPC stream.
#[derive(Clone, Debug)]
pub struct Ending {
    /// The status code: `OK`, `NOT_FOUND`.
    pub code: &'static str,
    /// The status message.
    pub message: String,
    /// The trailers without the status.
    pub trailers: HeaderMap,
}

/// A body that is complete already.
impl PartSource for Bytes {
    fn poll_part(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Bytes, Failure>>> {
        Poll::Ready(if self.is_empty() { None } else { Some(Ok(std::mem::take(self))) })
    }
}

/// A body as a transport leaves it once it has the answer's head.
pub(crate) struct PartBody {
    pub source: Box<dyn PartSource>,
    /// Bytes of the whole body, if they are announced.
    pub announced: Option<u64>,
}

/// Where an attempt leaves the body of its answer.
#[derive(Default)]
pub(crate) struct SourceSlot(RefCell<Option<PartBody>>);

impl fmt::Debug for SourceSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SourceSlot")
    }
}

impl SourceSlot {
    pub fn put(&self, source: impl PartSource + 'static, announced: Option<u64>) {
        let before = self.0.borrow_mut().replace(PartBody { source: Box::new(source), announced });
        // It may return a connection to its pool, which must find nothing borrowed.
        drop(before);
    }

    pub fn take(&self) -> Option<PartBody> {
        self.0.borrow_mut().take()
    }
}
