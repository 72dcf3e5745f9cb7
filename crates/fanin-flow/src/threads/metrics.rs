//! The metrics of pools of threads.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use super::pool::Pool;
use super::queue::{PoolGauges, Shared};
use super::wait_histogram::BOUNDS;

/// All pools of a configuration.
pub(crate) struct Pools(Vec<Arc<Shared>>);

impl Pools {
    pub(crate) fn of<'p>(pools: impl Iterator<Item = &'p Arc<Pool>>) -> Pools {
        Pools(pools.map(|pool| pool.shared.clone()).collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Pools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} pools of threads", self.0.len())
    }
}

type Gauge = (&'static str, &'static str, fn(&Shared, &PoolGauges) -> usize);

const GAUGES: [Gauge; 4] = [
    ("fanin_pool_threads", "Threads of a route's pool", |_, now| now.threads),
    ("fanin_pool_threads_limit", "Threads that a route's pool may have", |pool, _| pool.bounds.threads),
    ("fanin_pool_busy", "Threads of a route's pool that run a flow", |_, now| now.busy),
    ("fanin_pool_waiting", "Requests that wait for a thread", |_, now| now.waiting),
];

impl Collector for Pools {
    fn encode(&self, mut to: DescriptorEncoder) -> fmt::Result {
        let pools: Vec<(&Shared, PoolGauges)> = self.0.iter().map(|pool| (&**pool, pool.gauges())).collect();
        let labels = |pool: &Shared| [("method", pool.method.clone()), ("route", pool.path.clone())];
        for (name, help, pick) in GAUGES {
            let mut family = to.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (pool, now) in &pools {
                let value = i64::try_from(pick(pool, now)).unwrap_or(i64::MAX);
                family.encode_family(&labels(pool))?.encode_gauge(&value)?;
            }
        }
        let help = "Requests refused because all threads were busy and the queue was full";
        let mut family = to.encode_descriptor("fanin_pool_refused", help, None, MetricType::Counter)?;
        for (pool, _) in &pools {
            let refused = pool.refused.load(Relaxed);
            family.encode_family(&labels(pool))?.encode_counter::<NoLabelSet, _, u64>(&refused, None)?;
        }
        let help = "Seconds that requests waited for a thread";
        let mut family = to.encode_descriptor("fanin_pool_wait_seconds", help, None, MetricType::Histogram)?;
        for (pool, _) in &pools {
            let mut buckets = [(f64::INFINITY, 0); BOUNDS.len() + 1];
            for (at, bucket) in buckets.iter_mut().enumerate() {
                let bound = BOUNDS.get(at).map_or(f64::INFINITY, |bound| *bound as f64 / 1e6);
                *bucket = (bound, pool.waits.buckets[at].load(Relaxed));
            }
            let count = buckets.iter().map(|(_, count)| count).sum();
            let sum = pool.waits.sum_us.load(Relaxed) as f64 / 1e6;
            family.encode_family(&labels(pool))?.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
        }
        Ok(())
    }
}
