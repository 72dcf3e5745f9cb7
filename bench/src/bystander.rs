//! What a core does to anyone who happens to be there: a thread that wants to run for a moment every millisecond, and notes when it
//! could not. On a machine that others use too, this is what tells a server's delay from the machine's.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::process;

/// How often it looks.
const EVERY: Duration = Duration::from_millis(1);
/// A turn of the scheduler on a busy core is no disturbance; what is longer than a few of them is.
const NOTED: Duration = Duration::from_millis(5);

/// A thread on a core.
#[derive(Debug)]
pub struct Bystander {
    stalls: Arc<Mutex<Vec<(Instant, Instant)>>>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Bystander {
    /// Begins to look.
    pub fn start(core: usize) -> io::Result<Bystander> {
        let (stalls, ends) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (noted, end) = (stalls.clone(), ends.clone());
        let look = move || {
            // Where it can't be bound to the core it sees no stall of it, and excuses nothing.
            if process::pin(core).is_err() {
                return;
            }
            while !end.load(Relaxed) {
                let before = Instant::now();
                process::pause(EVERY);
                if before.elapsed() > EVERY + NOTED {
                    // Pushing leaves the list whole.
                    noted.lock().unwrap_or_else(PoisonError::into_inner).push((before + EVERY, Instant::now()));
                }
            }
        };
        let thread = std::thread::Builder::new().name("bystander".into()).spawn(look)?;
        Ok(Bystander { stalls, ends, thread: Some(thread) })
    }

    /// For how much of this time it wanted to run and could not.
    pub fn stalled(&self, from: Instant, to: Instant) -> Duration {
        let stalls = self.stalls.lock().unwrap_or_else(PoisonError::into_inner);
        stalls.iter().map(|(begun, ended)| (*ended).min(to).saturating_duration_since((*begun).max(from))).sum()
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        self.ends.store(true, Relaxed);
        // A thread that panicked has said so.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
