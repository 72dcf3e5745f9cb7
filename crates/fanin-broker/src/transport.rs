//! What every broker can do: take messages, and give those of all instances back.

use bytes::Bytes;

use crate::error::LinkError;
use crate::target::Target;

/// A broker's protocol.
pub(crate) trait Transport {
    type Sender: Sender;
    type Receiver: Receiver;

    /// Connects and subscribes. Messages that are sent after this has ended come back, also its own. `most` is the largest message that
    /// the receiver takes.
    async fn connect(target: &Target, most: usize) -> Result<(Self::Sender, Self::Receiver), LinkError>;
}

pub(crate) trait Sender {
    /// Gives messages to the broker, in this order. Gives how many it does not take because they are too large.
    async fn send(&mut self, messages: &[Bytes]) -> Result<usize, LinkError>;
}

pub(crate) trait Receiver {
    /// The next message. It may be dropped while it waits, and loses none then.
    async fn next(&mut self) -> Result<Bytes, LinkError>;
}
