//! Connections that go on in another protocol after a response with status 101. The server reads, writes, bounds and counts; the
//! application knows the protocol.

use std::fmt;
use std::task::{Context, Poll};

use bytes::Bytes;

use crate::access_log::CLIENT_DISCONNECTED;

/// The other protocol of a connection. It runs on the request's worker, until it ends or is dropped because the client has left or
/// has been closed by a bound.
///
/// What it holds is bounded by itself: it gets bytes, and is polled for more, only when all that it gave has been written.
pub trait Upgraded: 'static {
    /// The client sent bytes. Some kilobytes at most, and they end anywhere.
    fn on_bytes(&mut self, bytes: &[u8]);

    /// The next bytes to send; `None` at the end of the connection. Polled after [`on_bytes`](Self::on_bytes), too.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>>;
}

/// A connection that is about to go on in another protocol, or does.
pub(crate) struct Takeover {
    pub(crate) upgraded: Box<dyn Upgraded>,
    /// What hyper wrote since the response was made: its head, and what was left of responses before it.
    pub(crate) head: Vec<u8>,
    pub(crate) outcome: UpgradeOutcome,
    end: Option<Box<dyn FnOnce(UpgradeOutcome)>>,
}

/// How such a connection ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UpgradeOutcome {
    /// What the client has got: 101 once the head is written.
    pub(crate) status: u16,
    /// Bytes after the head.
    pub(crate) bytes: u64,
    /// The protocol ended it.
    pub(crate) complete: bool,
}

impl Takeover {
    /// `end` is called once.
    pub(crate) fn new(upgraded: Box<dyn Upgraded>, end: impl FnOnce(UpgradeOutcome) + 'static) -> Box<Takeover> {
        let outcome = UpgradeOutcome { status: CLIENT_DISCONNECTED, bytes: 0, complete: false };
        Box::new(Takeover { upgraded, head: Vec::new(), outcome, end: Some(Box::new(end)) })
    }
}

impl fmt::Debug for Takeover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Takeover").field("outcome", &self.outcome).finish_non_exhaustive()
    }
}

impl Drop for Takeover {
    fn drop(&mut self) {
        if let Some(end) = self.end.take() {
            end(self.outcome);
        }
    }
}
