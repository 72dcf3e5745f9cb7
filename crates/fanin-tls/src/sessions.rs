//! Resumption of sessions.

use std::sync::Arc;

use ring::digest::{Context, SHA256};
use rustls::ServerConfig;
use rustls::crypto::ring::Ticketer;
use rustls::server::{NoServerSessionStorage, ProducesTickets, ServerSessionMemoryCache, StoresServerSessions};

/// Most sessions that are kept for clients of TLS 1.2 without tickets.
const STORED: usize = 1024;

/// What lets clients resume sessions: keys of tickets, which change every six hours, and a bounded store. All workers share it, and reloads
/// keep it.
///
/// A resumed session has the client certificate of its first handshake, which is not verified again. So the state is for one set of
/// authorities and revocation lists: with others, all sessions begin anew.
#[derive(Clone, Debug)]
pub(crate) struct Sessions {
    tickets: Arc<dyn ProducesTickets>,
    store: Arc<dyn StoresServerSessions>,
    verified_by: [u8; 32],
}

impl Sessions {
    /// Those of the generation before, if clients are verified as then. `verified_by`: all that decides whether a client is accepted.
    pub fn new(before: Option<&Sessions>, verified_by: &[Vec<u8>]) -> Result<Sessions, rustls::Error> {
        let mut hash = Context::new(&SHA256);
        for part in verified_by {
            hash.update(&(part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        let mut digest = [0; 32];
        digest.copy_from_slice(hash.finish().as_ref());
        if let Some(before) = before.filter(|before| before.verified_by == digest) {
            return Ok(before.clone());
        }
        Ok(Sessions { tickets: Ticketer::new()?, store: ServerSessionMemoryCache::new(STORED), verified_by: digest })
    }

    pub fn apply(&self, config: &mut ServerConfig) {
        config.ticketer = self.tickets.clone();
        config.session_storage = self.store.clone();
    }

    /// No session is resumed.
    pub fn none(config: &mut ServerConfig) {
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
}
