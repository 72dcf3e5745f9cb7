//! How long something ready waits for its worker.
//!
//! Every 10 ms while there are requests, a task makes itself ready and goes to the end of the worker's queue: what it waits is
//! what a flow whose answer has just arrived waits. It measures our own work only, never a slow upstream.

use std::rc::Rc;
use std::time::Duration;

use tokio::time::Instant;

use super::WorkerState;
use crate::Application;

const EVERY: Duration = Duration::from_millis(10);
/// It goes to sleep after this many rounds without a request, so that an idle worker does nothing, and one with a request now
/// and then does not wake it each time.
const IDLE_ROUNDS: u32 = 100;

pub(super) async fn run<A: Application>(worker: Rc<WorkerState<A>>) {
    let mut idle = 0;
    loop {
        if worker.active.get() > 0 {
            idle = 0;
            let ready = Instant::now();
            tokio::task::yield_now().await;
            worker.stats.queueing.observe(ready.elapsed());
        } else {
            idle += 1;
        }
        worker.pulse.turn();
        if idle > IDLE_ROUNDS {
            idle = 0;
            worker.probe_sleeps.set(true);
            worker.wake_probe.notified().await;
        }
        tokio::time::sleep(EVERY).await;
    }
}
