//! Measures queueing delay: how long a ready task waits for its worker.
//!
//! Every 10 ms while there are requests, a task makes itself ready and joins the end of the runtime's queue. It waits as long as a flow
//! whose answer has just arrived. A slow upstream does not change the result.

use std::rc::Rc;
use std::time::Duration;

use tokio::time::Instant;

use super::WorkerState;
use crate::Application;

const INTERVAL: Duration = Duration::from_millis(10);
/// It sleeps after this many intervals without a request, so that an idle worker does nothing. A request now and then does not wake it
/// each time.
const IDLE_INTERVALS: u32 = 100;

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
        worker.heartbeat.beat();
        if idle > IDLE_INTERVALS {
            idle = 0;
            worker.probe_sleeps.set(true);
            worker.wake_probe.notified().await;
        }
        tokio::time::sleep(INTERVAL).await;
    }
}
