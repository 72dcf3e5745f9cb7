//! Read throttling: pausing a worker before its next read while the compute pool is overloaded.
//!
//! When computing occupies all cores, each packet of a client takes a core away from it, with two context switches and cold
//! caches. A refusal that is read alone costs several times one that is read with others. So a worker that has refused a
//! request pauses for a moment. The pool has work for much longer than that, so no thread runs dry.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::yield_now;

use super::service::Service;
use super::serving::Serving;

/// The longest pause.
const LONGEST: Duration = Duration::from_millis(4);
/// A pause is this fraction of the pool's backlog: the pool must not run out of work, nor answers wait for long.
const FRACTION: u32 = 8;
/// A shorter pause is not worth its two context switches.
const SHORTEST: Duration = Duration::from_micros(250);

/// Pauses the worker whenever a request was refused because of the queues. Ends with the worker's runtime.
pub(super) async fn run(service: Arc<Service>, serving: Rc<Serving>) {
    loop {
        serving.refused.notified().await;
        // Ready tasks run first: they write answers.
        yield_now().await;
        yield_now().await;
        let time = pause_for(service.models.shared().pool.backlog());
        if !time.is_zero() {
            pause(time);
        }
    }
}

/// How long to pause, given the pool's backlog.
fn pause_for(backlog: Duration) -> Duration {
    let time = (backlog / FRACTION).min(LONGEST);
    if time < SHORTEST { Duration::ZERO } else { time }
}

/// Blocks the worker on purpose: an awaiting worker would be woken by each packet.
#[allow(clippy::disallowed_methods)]
fn pause(time: Duration) {
    std::thread::sleep(time);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_short_beside_the_backlog() {
        let ms = Duration::from_millis;
        assert_eq!([pause_for(ms(0)), pause_for(Duration::from_micros(900))], [ms(0), ms(0)]);
        assert_eq!(
            [pause_for(ms(4)), pause_for(ms(32)), pause_for(ms(500))],
            [Duration::from_micros(500), ms(4), ms(4)]
        );
    }
}
