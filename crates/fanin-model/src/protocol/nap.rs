//! Reading what comes in pieces while the models have more to do than they can.
//!
//! When computing takes all cores, each packet of a client takes a core from it: two switches, and a way through kernel and HTTP/2
//! on caches that are full of trees. Measured with models of a megabyte, a refusal costs 70 microseconds like this, four times
//! what it costs where several are read in one go. So a worker that has refused something looks away for a moment: the threads
//! that compute have work for far longer than that, and whoever is read a little later waits a little less in the queue.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::yield_now;

use super::{Service, Serving};

/// The longest that a worker looks away.
const LONGEST: Duration = Duration::from_millis(4);
/// The part of what waits for the threads that it may look away: they must not run out of work, nor answers wait for long.
const PART: u32 = 8;
/// Shorter than this it is not worth its two switches.
const SHORTEST: Duration = Duration::from_micros(250);

/// Looks away whenever it is told that a request was refused because too much waits. Ends with the worker's runtime.
pub(super) async fn run(service: Arc<Service>, serving: Rc<Serving>) {
    loop {
        serving.refused.notified().await;
        // What is ready now is done first: answers are written, and what these wake.
        yield_now().await;
        yield_now().await;
        let time = length(service.models.shared().pool.backlog());
        if !time.is_zero() {
            rest(time);
        }
    }
}

/// How long to look away with so much to do.
fn length(backlog: Duration) -> Duration {
    let time = (backlog / PART).min(LONGEST);
    if time < SHORTEST { Duration::ZERO } else { time }
}

/// Blocks the worker, which is the point: its epoll would be woken by each packet.
#[allow(clippy::disallowed_methods)]
fn rest(time: Duration) {
    std::thread::sleep(time);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nap_is_short_beside_what_waits() {
        let ms = Duration::from_millis;
        assert_eq!([length(ms(0)), length(Duration::from_micros(900))], [ms(0), ms(0)]);
        assert_eq!([length(ms(4)), length(ms(32)), length(ms(500))], [Duration::from_micros(500), ms(4), ms(4)]);
    }
}
