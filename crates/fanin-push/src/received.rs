//! What comes from other instances: their events, and gaps where events are missing.

use std::sync::atomic::Ordering;

use crate::channels::{Channels, PublishError, SHARDS, check};
use crate::mailbox::Listener;

impl Channels {
    /// Takes an event of another instance. `false`: no subscriber and no log here has this channel, and none is made, so that what others
    /// publish takes no memory here.
    ///
    /// # Errors
    /// An invalid name, or a bound.
    pub fn receive(&self, channel: &str, name: Option<&str>, data: &[u8]) -> Result<bool, PublishError> {
        let settings = self.settings();
        check(&settings, channel, name, data)?;
        let channel = loop {
            let shard = self.shard(channel);
            let Some(found) = shard.get(channel).cloned() else {
                // A client with an id of a channel that was removed has missed this event. Later channels start above that id.
                self.first_place.fetch_add(1, Ordering::AcqRel);
                return Ok(false);
            };
            drop(shard);
            let mut log = found.log();
            if log.removed {
                continue;
            }
            // What others publish does not keep a channel: without use here it is removed, however busy it is elsewhere.
            let used = log.used;
            self.append(&settings, &mut log, name, data);
            log.used = used;
            drop(log);
            break found;
        };
        channel.listeners().iter().for_each(Listener::wake);
        Ok(true)
    }

    /// Events of other instances are missing in the channels that `affects` names. Each of their subscribers gets `lost`, one after another
    /// within the time of `retry`. Clients that come back with an earlier id get it, too.
    pub fn add_gap(&self, affects: impl Fn(&str) -> bool) {
        // For the channels that were removed, as in `receive`.
        self.first_place.fetch_add(1, Ordering::AcqRel);
        for at in 0..SHARDS {
            let affected: Vec<_> = self.lock(at).values().filter(|channel| affects(&channel.name)).cloned().collect();
            for channel in affected {
                let mut log = channel.log();
                if log.removed {
                    continue;
                }
                let bytes = log.bytes();
                log.add_gap();
                self.forget_bytes(bytes);
                drop(log);
                channel.listeners().iter().for_each(Listener::wake);
            }
        }
    }
}
