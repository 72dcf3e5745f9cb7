//! The text of all metrics: those of the server, and those of the application.

use std::fmt;
use std::sync::Arc;

use fanin_tracecontext::Annotations;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::registry::Registry;

use super::Metrics;

/// Writes both.
pub(crate) fn write(server: &Registry, application: &Registry) -> Result<String, fmt::Error> {
    let mut page = String::with_capacity(16 << 10);
    encode_registry(&mut page, server)?;
    encode_registry(&mut page, application)?;
    encode_eof(&mut page)?;
    Ok(page)
}

/// The same with exemplars, which only readers of OpenMetrics understand.
pub(crate) fn write_with_exemplars(
    server: &Registry,
    metrics: &Metrics,
    application: &Registry,
    add: impl FnOnce(&mut Annotations),
) -> Result<String, fmt::Error> {
    let mut annotations = Annotations::default();
    metrics.exemplars(&mut annotations);
    add(&mut annotations);
    Ok(annotations.write_into(write(server, application)?))
}

/// Reads all metrics of a running server.
#[derive(Clone)]
pub struct MetricsPage(pub(crate) Arc<dyn Fn() -> Option<String> + Send + Sync>);

impl MetricsPage {
    /// As `/metrics` shows them to readers of OpenMetrics: with exemplars.
    pub fn read(&self) -> Option<String> {
        (self.0)()
    }
}

impl fmt::Debug for MetricsPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MetricsPage")
    }
}
