//! What all tests of a folder share.

use std::sync::{Arc, OnceLock};

use fanin_config::{Config, Executor};
use fanin_flow::Flows;
use fanin_server::RouteFinder;
use fanin_static::Static;
use fanin_upstream::{Upstreams, without_network};

use crate::error::TestError;

/// What all tests of a folder share: nothing of it changes while they run.
pub(crate) struct Setting {
    /// The configuration, its upstreams without a network.
    pub(crate) config: Config,
    pub(crate) finder: RouteFinder,
    /// What answers the routes that have no flow.
    pub(crate) statics: Vec<Option<Static>>,
    /// Upstreams that nothing calls: each test has the same ones, as new.
    pub(crate) upstreams: Upstreams,
    /// The flows, compiled once.
    flows: OnceLock<Arc<Flows>>,
}

impl Setting {
    /// The configuration as tests run it.
    ///
    /// # Errors
    /// Routes that contradict each other, and upstreams that cannot be.
    pub(crate) fn new(mut config: Config) -> Result<Setting, TestError> {
        config.upstreams.values_mut().for_each(without_network);
        for route in &mut config.routes {
            // Virtual time and threads that wait in real time do not go together.
            route.executor = Executor::Coroutines;
        }
        let finder = RouteFinder::new(&config).map_err(|error| TestError::Routes(error.to_string()))?;
        let upstreams = Upstreams::new(config.upstreams.values())
            .map_err(|errors| TestError::Upstreams(errors.iter().map(ToString::to_string).collect()))?;
        Ok(Setting { statics: Static::of_routes(&config), config, finder, upstreams, flows: OnceLock::new() })
    }

    /// Uses flows that are compiled already. Later calls change nothing.
    pub(crate) fn set_flows(&self, flows: Flows) {
        let _ = self.flows.set(Arc::new(flows));
    }

    /// The flows, compiled when they are first needed.
    ///
    /// # Errors
    /// Files have changed since they were checked.
    pub(crate) fn flows(&self) -> Result<&Arc<Flows>, TestError> {
        if let Some(flows) = self.flows.get() {
            return Ok(flows);
        }
        let flows = self.compile(false)?;
        // Two threads may have compiled them: one set is used.
        Ok(self.flows.get_or_init(|| Arc::new(flows)))
    }

    /// The flows, compiled anew. With `counting`, they count what of them runs.
    ///
    /// # Errors
    /// Files have changed since they were checked.
    pub(crate) fn compile(&self, counting: bool) -> Result<Flows, TestError> {
        Flows::compile(&self.config, &self.upstreams, counting).map_err(TestError::Flows)
    }
}
