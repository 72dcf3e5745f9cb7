//! The trace that a request takes part in.

use std::net::IpAddr;
use std::sync::Arc;

use fanin_config::{Server, TraceTrust, Tracing};
use fanin_tracecontext::{Incoming, TraceContext, TraceId};
use http::HeaderMap;

use crate::client;

/// The trace of a request from `peer`.
#[cold]
pub(super) fn begin(
    tracing: &Tracing,
    server: &Server,
    recorded: bool,
    headers: &HeaderMap,
    peer: IpAddr,
) -> Arc<TraceContext> {
    let is_trusted = match tracing.trust {
        TraceTrust::Always => true,
        TraceTrust::Never => false,
        TraceTrust::Trusted => client::is_trusted(server, peer),
    };
    let incoming = if is_trusted { Incoming::read(headers) } else { None };
    Arc::new(match incoming {
        Some(incoming) => TraceContext::of(incoming, recorded),
        None => TraceContext::begin(|id| is_sampled(id, tracing.sample), recorded),
    })
}

/// Decides by the id alone, so that whoever has the same ratio decides alike.
fn is_sampled(id: TraceId, ratio: f64) -> bool {
    const IDS: f64 = (1_u64 << 56) as f64;
    id.random_bits() as f64 >= (1.0 - ratio) * IDS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_is_kept() {
        let share = |ratio| (0..20_000).filter(|_| is_sampled(TraceId::random(), ratio)).count();
        assert_eq!((share(0.0), share(1.0)), (0, 20_000));
        // More than seven standard deviations around the mean.
        assert!((4_500..5_500).contains(&share(0.25)), "{}", share(0.25));
    }
}
