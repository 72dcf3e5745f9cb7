//! All upstreams of a configuration, and what a reload keeps of them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use fanin_tracecontext::Annotations;
use prometheus_client::registry::Registry;

use crate::error::BuildError;
use crate::grpc::Services;
use crate::metrics::MetricsRegistry;
use crate::upstream::Upstream;

/// The upstreams of one configuration, by name.
pub struct Upstreams {
    by_name: BTreeMap<Arc<str>, Arc<Upstream>>,
    metrics: Arc<MetricsRegistry>,
}

impl fmt::Debug for Upstreams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.by_name.keys()).finish()
    }
}

impl Upstreams {
    /// Builds the upstreams. Reads the files named in `tls`. Names are resolved when they are first needed.
    ///
    /// # Errors
    /// All mistakes, each with its upstream and key.
    pub fn new<'a>(
        configs: impl IntoIterator<Item = &'a fanin_config::Upstream>,
    ) -> Result<Upstreams, Vec<BuildError>> {
        let empty = Upstreams { by_name: BTreeMap::new(), metrics: Arc::default() };
        let upstreams = empty.reload(configs)?;
        empty.switch_to(&upstreams);
        Ok(upstreams)
    }

    /// Builds the upstreams of a changed configuration. An unchanged upstream is taken over as it is, with connections,
    /// calls in flight and policies' state. A changed one keeps its counters, the number of its calls in flight, and
    /// its connections if it is reached in the same way. Nothing takes effect before [`Upstreams::switch_to`].
    ///
    /// # Errors
    /// As [`Upstreams::new`]. The present upstreams then stay as they are.
    pub fn reload<'a>(
        &self,
        configs: impl IntoIterator<Item = &'a fanin_config::Upstream>,
    ) -> Result<Upstreams, Vec<BuildError>> {
        let mut by_name = BTreeMap::new();
        let mut errors = Vec::new();
        for config in configs {
            let name: Arc<str> = config.name.as_str().into();
            let before = self.by_name.get(&name);
            // The files that an unchanged configuration names may have changed.
            let services = match Services::load(config) {
                Ok(services) => services,
                Err(error) => {
                    errors.push(error);
                    continue;
                }
            };
            if let Some(before) = before
                && before.config() == config
                && before.services().map(|services| &**services) == services.as_ref()
                && before.has_same_tls_files()
            {
                by_name.insert(name, before.clone());
                continue;
            }
            match Upstream::build(config, services.map(Arc::new), self.metrics.of(&name), before) {
                Ok(upstream) => {
                    by_name.insert(name, upstream);
                }
                Err(mut more) => errors.append(&mut more),
            }
        }
        match errors.is_empty() {
            true => Ok(Upstreams { by_name, metrics: self.metrics.clone() }),
            false => Err(errors),
        }
    }

    /// The same upstreams without anything that calls have left behind: empty caches, closed breakers, full budgets, no snapshots. What
    /// the configuration alone determines is shared. For tests, each of which has upstreams of its own.
    ///
    /// # Errors
    /// As [`Upstreams::new`], if files that the configuration names have changed.
    pub fn anew(&self) -> Result<Upstreams, Vec<BuildError>> {
        let metrics: Arc<MetricsRegistry> = Arc::default();
        let mut by_name = BTreeMap::new();
        for (name, known) in &self.by_name {
            by_name.insert(name.clone(), known.anew(metrics.of(name))?);
        }
        let upstreams = Upstreams { by_name, metrics };
        Upstreams { by_name: BTreeMap::new(), metrics: Arc::default() }.switch_to(&upstreams);
        Ok(upstreams)
    }

    /// Switches from these upstreams to `next`: the new limits apply, and connections of upstreams that are not in
    /// `next` are closed as they become free. Running calls end normally.
    pub fn switch_to(&self, next: &Upstreams) {
        for (name, upstream) in &next.by_name {
            if !self.by_name.get(name).is_some_and(|old| Arc::ptr_eq(old, upstream)) {
                upstream.activate();
            }
        }
        for (name, upstream) in &self.by_name {
            let successor = next.by_name.get(name);
            if !successor.is_some_and(|new| Arc::ptr_eq(new, upstream)) {
                upstream.retire(successor);
            }
        }
    }

    /// The upstream of that name.
    pub fn get(&self, name: &str) -> Option<&Arc<Upstream>> {
        self.by_name.get(name)
    }

    /// All upstreams, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Upstream>> {
        self.by_name.values()
    }

    /// Adds traces that stand for the buckets of histograms.
    pub fn exemplars(&self, to: &mut Annotations) {
        self.metrics.exemplars(to);
    }

    /// Adds the metrics of all upstreams, also of later reloads, to a registry. To be called once a process.
    pub fn register(&self, registry: &mut Registry) {
        registry.register_collector(Box::new(self.metrics.clone()));
    }
}
