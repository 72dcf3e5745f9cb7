//! The dashboard: readings of the metrics once a second, and the page that shows them.
//!
//! A reading is a scrape on the control thread: workers do nothing for it. It is made whether or not somebody looks, so that a page opened
//! after an incident shows the incident. Readings take at most one part in [`SHARE`] of one core: where one takes long because
//! there are thousands of routes, the next comes later.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use fanin_dashboard::{History, Query};
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::{HeaderValue, StatusCode};
use prometheus_client::encoding::text::encode_registry;
use prometheus_client::registry::Registry;
use rustix::time::ClockId;
use tokio::task::spawn_local;
use tokio::time::{Instant, sleep};

use super::super::reload::Reloader;
use crate::metrics::Frequent;
use crate::{Loader, Response};

/// Between two readings.
const EVERY: Duration = Duration::from_secs(1);
/// After a reading that takes one millisecond of CPU, there is a pause of at least as many milliseconds.
const SHARE: u32 = 200;

/// The history, and what is kept for the page.
pub(super) struct Dashboard {
    history: RefCell<History>,
    /// The number of a configuration, and its plans.
    plans: RefCell<Option<(u64, Bytes)>>,
    interval: Cell<Duration>,
}

impl Dashboard {
    /// Begins to read the metrics, until the runtime ends.
    pub(super) fn start<L: Loader>(reloader: &Rc<Reloader<L>>) -> Rc<Dashboard> {
        let dashboard =
            Rc::new(Dashboard { history: RefCell::default(), plans: RefCell::default(), interval: Cell::new(EVERY) });
        spawn_local(read(dashboard.clone(), reloader.clone()));
        dashboard
    }

    /// The page `/dashboard/data`.
    pub(super) fn data<L: Loader>(&self, reloader: &Reloader<L>, query: Option<&str>) -> Response {
        let mut data = self.history.borrow().data(&Query::parse(query.unwrap_or_default()));
        let metrics = &reloader.metrics;
        data.version = metrics.version().to_owned();
        data.generation = reloader.current.load().number;
        data.draining = reloader.is_draining();
        data.now_unix_ms = unix_ms();
        data.interval_s = self.interval.get().as_secs_f64();
        data.server.memory_used_bytes = metrics.memory.used();
        data.server.memory_budget_bytes = metrics.memory.budget();
        data.records_requests = true;
        data.find_problems();
        // Numbers, texts and maps with text as keys can always be written.
        let mut response = Response::json(serde_json::to_string(&data).unwrap_or_default());
        response.headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }

    pub(super) fn known_plans(&self, generation: u64) -> Option<Bytes> {
        self.plans.borrow().as_ref().filter(|(number, _)| *number == generation).map(|(_, plans)| plans.clone())
    }

    pub(super) fn keep_plans(&self, generation: u64, plans: Bytes) {
        *self.plans.borrow_mut() = Some((generation, plans));
    }
}

async fn read<L: Loader>(dashboard: Rc<Dashboard>, reloader: Rc<Reloader<L>>) {
    let start = Instant::now();
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Frequent(reloader.metrics.clone())));
    let mut text = String::with_capacity(16 << 10);
    loop {
        let before = cpu_time();
        text.clear();
        let generation = reloader.current.load_full();
        let written =
            encode_registry(&mut text, &registry).and_then(|()| encode_registry(&mut text, &generation.registry));
        drop(generation);
        // Writing to text cannot fail; a collector that does leaves out one reading.
        if written.is_ok() {
            dashboard.history.borrow_mut().add(start.elapsed(), unix_ms(), &text);
        }
        let pause = EVERY.max(cpu_time().saturating_sub(before) * SHARE);
        dashboard.interval.set(pause);
        sleep(pause).await;
    }
}

/// The CPU time of this thread: on a busy machine a reading may take long without costing much.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// The page `/dashboard`. It shows nothing until it has got data, for which it may need a token.
pub(super) fn page() -> Response {
    let page = fanin_dashboard::page();
    let mut response = Response::new(StatusCode::OK, page.html.as_str());
    let mut set = |name, value| response.headers.insert(name, HeaderValue::from_static(value));
    set(CONTENT_TYPE, "text/html; charset=utf-8");
    set(CONTENT_SECURITY_POLICY, &page.policy);
    set(X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(X_FRAME_OPTIONS, "DENY");
    set(REFERRER_POLICY, "no-referrer");
    // A new version of Fanin may have another page.
    set(CACHE_CONTROL, "no-cache");
    response
}
