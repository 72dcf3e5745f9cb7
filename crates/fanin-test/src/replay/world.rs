//! The flows and upstreams of one thread, which run many requests.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use fanin_flow::{Detail, Flows};
use fanin_push::Channels;
use fanin_upstream::{Upstreams, WorkerClient};
use tokio::task::LocalSet;
use tokio::time::Instant;

use super::answers::Answers;
use super::figures::Tally;
use super::ignore::Ignore;
use super::inner::Inner;
use super::play::play;
use super::player::Player;
use super::timeline::{Arrivals, Timeline};
use crate::error::TestError;
use crate::setting::Setting;

/// How long the first fetch of snapshots may take.
const SNAPSHOT_WAIT: Duration = Duration::from_secs(30);

/// What a thread replays: these requests count, those around are there so that they find what they found.
pub(crate) struct Part {
    pub(crate) all: Range<usize>,
    pub(crate) counted: Range<usize>,
}

/// Replays a part.
///
/// # Errors
/// The configuration has changed since it was checked.
pub(crate) fn replay(
    setting: &Arc<Setting>,
    answers: &Arc<Answers>,
    ignore: &Ignore,
    part: Part,
    seed: u64,
) -> Result<Tally, TestError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
    let timeline = Timeline::new(&runtime);
    let mut local = LocalSet::new();
    fanin_flow::parse_inline();
    let config = &setting.config;
    let entered = runtime.enter();
    let upstreams = Upstreams::new(config.upstreams.values())
        .map_err(|errors| TestError::Upstreams(errors.iter().map(ToString::to_string).collect()))?;
    let flows = Flows::compile(config, &upstreams, false).map_err(TestError::Flows)?;
    flows.set_channels(&Channels::new(config.push.clone()));
    let player = Rc::new(Player {
        answers: answers.clone(),
        setting: setting.clone(),
        timeline: timeline.clone(),
        anchor: (Instant::now(), Duration::ZERO).into(),
        running: RefCell::default(),
        unattributed: Cell::new(0),
    });
    let client = WorkerClient::scripted(player.clone(), seed);
    let worker = Arc::new(flows).worker(Rc::new(client.clone()), Box::new(|_| {}), Detail::Requests);
    drop(entered);
    begin(&runtime, &local, &client, &upstreams);
    let inner = Rc::new(Inner {
        flows: worker,
        player,
        ignore: ignore.clone(),
        tally: RefCell::default(),
        running: Cell::new(0),
    });
    let mut arrivals = {
        let _entered = runtime.enter();
        Requests::new(&inner, part)
    };
    timeline.run(&runtime, &mut local, &mut arrivals);
    let tally = inner.tally.take();
    // What still runs may look for the runtime when it is dropped.
    let _entered = runtime.enter();
    drop(local);
    Ok(tally)
}

/// Fetches the snapshots, as a server does when it starts.
fn begin(runtime: &tokio::runtime::Runtime, local: &LocalSet, client: &Rc<WorkerClient>, upstreams: &Upstreams) {
    let waiting: Vec<_> = upstreams.iter().filter(|upstream| upstream.snapshot().is_some()).cloned().collect();
    if waiting.is_empty() {
        return;
    }
    local.block_on(runtime, async move {
        client.refresh_snapshots(upstreams);
        let end = Instant::now() + SNAPSHOT_WAIT;
        let is_there = |upstream: &Arc<fanin_upstream::Upstream>| {
            upstream.snapshot().is_none_or(|snapshot| snapshot.table().is_some())
        };
        while Instant::now() < end && !waiting.iter().all(is_there) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
}

/// The requests of a part, as they arrive.
struct Requests {
    inner: Rc<Inner>,
    part: Part,
    next: usize,
    /// When the next one arrives: each at a time of its own.
    at: Instant,
}

impl Requests {
    fn new(inner: &Rc<Inner>, part: Part) -> Requests {
        let answers = &inner.player.answers;
        let first = if part.all.is_empty() { Duration::ZERO } else { arrival(answers, part.all.start) };
        inner.player.begin(first);
        let mut requests = Requests { inner: inner.clone(), next: part.all.start, part, at: Instant::now() };
        requests.set_time(Instant::now());
        requests
    }

    fn set_time(&mut self, not_before: Instant) {
        if self.next < self.part.all.end {
            let answers = &self.inner.player.answers;
            self.at = self.inner.player.at(arrival(answers, self.next)).max(not_before);
        }
    }
}

/// When a flow began, since the recording began.
fn arrival(answers: &Answers, number: usize) -> Duration {
    let request = answers.request(number);
    Duration::from_micros(request.arrived_us + request.queued_us)
}

impl Arrivals for Requests {
    fn next(&self) -> Option<Instant> {
        (self.next < self.part.all.end).then_some(self.at)
    }

    fn begin(&mut self, local: &LocalSet) {
        let (number, at) = (self.next, self.at);
        let is_counted = self.part.counted.contains(&number);
        let inner = self.inner.clone();
        inner.running.set(inner.running.get() + usize::from(is_counted));
        local.spawn_local(async move {
            play(inner.clone(), number, at, is_counted).await;
            inner.running.set(inner.running.get() - usize::from(is_counted));
        });
        self.next += 1;
        self.set_time(at + Duration::from_nanos(1));
    }

    fn are_done(&self) -> bool {
        self.next >= self.part.counted.end && self.inner.running.get() == 0
    }
}
