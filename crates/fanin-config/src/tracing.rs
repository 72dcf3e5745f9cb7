//! `[tracing]`: the trace context of requests.

use std::time::Duration;

use schemars::{JsonSchema, json_schema};
use serde::Serialize;

use crate::reader::{Table, replace};
use crate::schema::types::{self, leaf, variable};
use crate::values::serialize;

/// `[tracing]`: requests take part in traces (W3C Trace Context). Each HTTP and gRPC call that they make carries
/// `traceparent` and `tracestate`, and log lines carry the trace's id. Without this section, `forward_headers` of an upstream passes both
/// headers on as they came.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tracing {
    /// Whose `traceparent` and `tracestate` count: those of clients in `[server] trusted`, `"always"` or `"never"`. A request whose
    /// context does not count begins a trace.
    #[schemars(with = "TraceTrustText")]
    pub trust: TraceTrust,
    /// Share of the traces begun here that is recorded: `0.01` is every hundredth. For a trace that a client has begun, its flag decides.
    #[schemars(with = "types::Share")]
    pub sample: f64,
    /// Spans of a request that takes longer are sent, whether it was sampled or not. So are those of a request that fails with a 5xx. `"off"`: only
    /// those of a failed one.
    #[serde(serialize_with = "serialize::optional_duration_or_off")]
    #[schemars(with = "types::Or<types::DurationText, types::Off>")]
    pub slow: Option<Duration>,
}

impl Default for Tracing {
    fn default() -> Tracing {
        Tracing { trust: TraceTrust::default(), sample: 1.0, slow: Some(Duration::from_millis(500)) }
    }
}

/// Whose trace context counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TraceTrust {
    /// That of clients in `[server] trusted`.
    #[default]
    Trusted,
    /// Everybody's.
    Always,
    /// Nobody's.
    Never,
}

leaf!(
    /// `"trusted"`, `"always"` or `"never"`.
    TraceTrustText,
    json_schema!({ "anyOf": [{ "enum": ["trusted", "always", "never"] }, variable()] })
);

impl Tracing {
    pub(crate) fn read(mut table: Table<'_, '_>) -> Tracing {
        let words = [("trusted", TraceTrust::Trusted), ("always", TraceTrust::Always), ("never", TraceTrust::Never)];
        let mut tracing = Tracing::default();
        replace(&mut tracing.trust, table.choice("trust", &words));
        replace(&mut tracing.sample, table.float("sample", 0.0, 1.0));
        replace(&mut tracing.slow, table.duration_or_off("slow"));
        table.finish();
        tracing
    }
}
