//! Clients that send a request's body slower than `min_send_rate`.

use std::rc::Rc;

use fanin_io::min_rate::{Awaited, MinRate, TooSlow};
use tokio::time::Instant;

use crate::connection::ConnectionState;

/// How fast the client of a request sends its body. Only time in which the server waits for it counts, and in which no other body of its
/// connection is held back: those bodies may have taken the room of HTTP/2's flow control.
#[derive(Debug)]
pub(crate) struct SenderRate {
    conn: Rc<ConnectionState>,
    /// `None`: any rate will do.
    rate: Option<Awaited>,
}

impl SenderRate {
    pub(crate) fn new(conn: &Rc<ConnectionState>, server: &fanin_config::Server) -> SenderRate {
        let min = |window| Awaited::new(MinRate { rate: server.min_send_rate, window });
        SenderRate { conn: conn.clone(), rate: server.slow_sender_timeout.map(min) }
    }

    /// A part of the body has come.
    #[inline]
    pub(crate) fn came(&mut self, bytes: usize) {
        let Some(rate) = &mut self.rate else { return };
        if rate.is_waiting() {
            rate.end_wait(self.conn.sending_clock(Instant::now()).into_std());
        }
        rate.came(bytes);
    }

    /// The server waits for more. Returns when to call this again at the latest.
    ///
    /// # Errors
    /// The client is too slow, and is counted as such.
    pub(crate) fn wait(&mut self, now: Instant) -> Result<Option<Instant>, TooSlow> {
        let Some(rate) = &mut self.rate else { return Ok(None) };
        let left = rate.wait(self.conn.sending_clock(now).into_std());
        left.map(|left| Some(now + left)).inspect_err(|TooSlow| self.conn.on_slow_sender())
    }
}
