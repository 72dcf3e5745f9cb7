//! `hedge` of an upstream or operation: request hedging.

use std::time::Duration;

use serde::{Serialize, Serializer};

use crate::reader::Table;
use crate::values::duration::{format_duration, parse_duration};

/// When a second attempt is sent beside a slow first one. Only calls that change nothing are hedged. The retry budget applies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Hedge {
    /// When the first attempt takes longer than this share of the upstream's answers: at least 0.5, below 1.
    Percentile(f64),
    /// When the first attempt takes longer than this.
    Time(Duration),
    /// When half of the call's timeout has passed, to another endpoint. It saves a call whose endpoint has vanished, and costs
    /// nothing otherwise.
    Half,
}

impl Hedge {
    /// Reads `hedge`. A fixed time must be shorter than the timeout of the call.
    pub(super) fn read(table: &mut Table<'_, '_>, timeout: Duration) -> Option<Hedge> {
        let Some(parsed) = table.parsed("hedge", "\"half\", \"p95\", a duration or \"off\"", Hedge::parse) else {
            return Some(Hedge::Half);
        };
        let hedge = parsed.value?;
        if matches!(hedge, Hedge::Time(after) if after >= timeout) {
            table.error("hedge", "must be shorter than `timeout`; otherwise it has no effect");
        }
        Some(hedge)
    }

    /// Reads `hedge` of an operation; `None` if the upstream's applies.
    pub(super) fn read_override(operation: &mut Table<'_, '_>, timeout: Duration) -> Option<Option<Hedge>> {
        let present = operation.has("hedge");
        let hedge = Hedge::read(operation, timeout);
        present.then_some(hedge)
    }

    /// Parses `"half"`, `"p95"` or `"30ms"`; `"off"` is `None`.
    fn parse(text: &str) -> Result<Option<Hedge>, String> {
        match text {
            "off" => return Ok(None),
            "half" => return Ok(Some(Hedge::Half)),
            _ => {}
        }
        let Some(percent) = text.strip_prefix('p') else {
            let after = parse_duration(text)?;
            return if after.is_zero() { Err("must be longer than zero".into()) } else { Ok(Some(Hedge::Time(after))) };
        };
        match percent.parse::<f64>() {
            Ok(percent) if (50.0..100.0).contains(&percent) => Ok(Some(Hedge::Percentile(percent / 100.0))),
            _ => Err(format!("`{text}` is not a valid percentile; write p50 to p99.9")),
        }
    }
}

impl Serialize for Hedge {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            // Rounded, because 0.999 * 100 is not quite 99.9.
            Hedge::Percentile(share) => to.collect_str(&format_args!("p{}", (share * 1e8).round() / 1e6)),
            Hedge::Time(after) => to.serialize_str(&format_duration(*after)),
            Hedge::Half => to.serialize_str("half"),
        }
    }
}
