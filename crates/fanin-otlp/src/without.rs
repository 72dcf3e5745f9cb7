//! In place of `export` where this program is built without it.

use std::time::Duration;

use fanin_config::{Otlp, Tracing};
use fanin_tracecontext::TraceContext;
use prometheus_client::registry::Registry;

use crate::metrics::Counters;
use crate::record::RequestRecord;

/// Nothing is sent.
#[derive(Debug, Default)]
pub struct Export(Counters);

/// There is none.
#[derive(Clone, Debug)]
pub enum Target {}

/// What is wrong with a configuration.
///
/// # Errors
/// It wants an export.
pub fn check(otlp: Option<&Otlp>, _: Option<&Tracing>) -> Result<Option<Target>, String> {
    match otlp {
        Some(_) => Err("otlp: this program is built without OTLP (the feature `otlp`)".to_owned()),
        None => Ok(None),
    }
}

impl Target {
    /// There is no target.
    pub fn wants(&self, _: &TraceContext, _: u16, _: Duration) -> bool {
        match *self {}
    }
}

impl Export {
    /// Does nothing.
    pub fn configure(&self, _: Option<&Target>) {}

    /// Does nothing.
    pub fn measure(&self, _: impl Fn() -> String + Send + Sync + 'static) {}

    /// Takes nothing.
    pub fn send(&self, _: RequestRecord) -> bool {
        false
    }

    /// Does nothing.
    pub fn end(&self, _: Duration) {}

    /// Registers the counts, which stay zero.
    pub fn register(&self, registry: &mut Registry) {
        self.0.register(registry);
    }
}
