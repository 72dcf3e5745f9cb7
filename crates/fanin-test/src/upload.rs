//! The body of a request on a route that does not collect it: there as a whole.

use std::task::{Context, Poll};

use bytes::Bytes;
use fanin_flow::{ClientUpload, FlowError};

/// A body that is complete already.
pub(crate) struct WholeBody {
    left: Bytes,
    length: u64,
}

impl WholeBody {
    pub(crate) fn boxed(body: Bytes) -> Box<dyn ClientUpload> {
        let length = body.len() as u64;
        Box::new(WholeBody { left: body, length })
    }
}

impl ClientUpload for WholeBody {
    fn poll_part(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Bytes, FlowError>>> {
        Poll::Ready(if self.left.is_empty() { None } else { Some(Ok(std::mem::take(&mut self.left))) })
    }

    fn announced(&self) -> Option<u64> {
        Some(self.length)
    }
}
