//! `[upstreams.NAME]`: what stands between a call and the network, besides limits and timeouts.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use crate::table::{Choice, Table};
use crate::{format_duration, parse_duration, schema, text};

/// `[upstreams.NAME.retry]`: second tries of calls that change nothing and failed in a way that may pass.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Retry {
    /// Tries after the first.
    #[schemars(with = "schema::Count<0, 10>")]
    pub max: u32,
    /// Second requests, retries and hedges together, for each call of the upstream. It bounds what an upstream in trouble
    /// gets on top.
    #[schemars(with = "schema::Share")]
    pub budget: f64,
    /// Second requests a second that are allowed however few calls there are.
    #[schemars(with = "schema::Number")]
    pub floor: f64,
    /// Longest pause before the second try, doubled for each further one. The pause is drawn at random below it. Another
    /// endpoint is tried without a pause.
    #[serde(serialize_with = "text::duration")]
    #[schemars(with = "schema::DurationText")]
    pub backoff: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Retry { max: 1, budget: 0.2, floor: 2.0, backoff: Duration::from_millis(20) }
    }
}

/// When a second request is sent beside a slow first one. Only calls that change nothing are hedged, within the budget of
/// `retry`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Hedge {
    /// When the first takes longer than this share of the upstream's answers, from 0.5 and below 1.
    Percentile(f64),
    /// When the first takes longer than this.
    Time(Duration),
    /// When half of the call's time is over and the upstream has another endpoint: what saves a call whose endpoint has
    /// vanished, and is next to never sent otherwise.
    Half,
}

impl Hedge {
    /// Reads `"half"`, `"p95"` or `"30ms"`; `"off"` is `None`.
    fn read(text: &str) -> Result<Option<Hedge>, String> {
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
            _ => Err(format!("`{text}` is not a percentile from p50 and below p100")),
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

/// `[upstreams.NAME.breaker]`: when an upstream counts as failing, so that calls are refused at once, and how it comes back.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Breaker {
    /// Share of failed calls in `window` that opens the breaker.
    #[schemars(with = "schema::Share")]
    pub share: f64,
    /// Calls in `window` below which it stays closed.
    #[schemars(with = "schema::Count<1, 4294967295>")]
    pub calls: u32,
    /// What is looked at.
    #[serde(serialize_with = "text::duration")]
    #[schemars(with = "schema::DurationText")]
    pub window: Duration,
    /// How long it stays open at first. Then a few calls are let through; if they fail, it stays open twice as long.
    #[serde(serialize_with = "text::duration")]
    #[schemars(with = "schema::DurationText")]
    pub pause: Duration,
    /// How long it stays open at most.
    #[serde(serialize_with = "text::duration")]
    #[schemars(with = "schema::DurationText")]
    pub longest_pause: Duration,
    /// Successes in a row that close it again.
    #[schemars(with = "schema::Count<1, 4294967295>")]
    pub probes: u32,
}

impl Default for Breaker {
    fn default() -> Self {
        Breaker {
            share: 0.5,
            calls: 20,
            window: Duration::from_secs(10),
            pause: Duration::from_secs(1),
            longest_pause: Duration::from_secs(5),
            probes: 3,
        }
    }
}

/// What a policy's key may hold.
const OFF: &str = "a table or \"off\"";

/// Reads an operation's `retry`: `None` if it has none of its own.
pub(crate) fn read_operation_retry(operation: &mut Table<'_, '_>) -> Option<Option<Retry>> {
    let own = operation.at("retry").is_some();
    let retry = read_retry(operation);
    own.then_some(retry)
}

/// Reads an operation's `hedge`: `None` if it has none of its own.
pub(crate) fn read_operation_hedge(operation: &mut Table<'_, '_>, timeout: Duration) -> Option<Option<Hedge>> {
    let own = operation.at("hedge").is_some();
    let hedge = read_hedge(operation, timeout);
    own.then_some(hedge)
}

/// Reads the key `retry`: a table, or `"off"`.
pub(crate) fn read_retry(upstream: &mut Table<'_, '_>) -> Option<Retry> {
    let default = Retry::default();
    let mut table = match upstream.table_or("retry", OFF, "off") {
        Choice::Absent => return Some(default),
        Choice::Word => return None,
        Choice::Table(table) => table,
    };
    let retry = Retry {
        max: table.number("max", 0..=10).map_or(default.max, |max| max as u32),
        budget: table.float("budget", 0.0, 1.0).unwrap_or(default.budget),
        floor: table.float("floor", 0.0, f64::MAX).unwrap_or(default.floor),
        backoff: table.duration("backoff").unwrap_or(default.backoff),
    };
    table.finish();
    Some(retry)
}

/// Reads the key `breaker`: a table, or `"off"`.
pub(crate) fn read_breaker(upstream: &mut Table<'_, '_>) -> Option<Breaker> {
    let default = Breaker::default();
    let mut table = match upstream.table_or("breaker", OFF, "off") {
        Choice::Absent => return Some(default),
        Choice::Word => return None,
        Choice::Table(table) => table,
    };
    let share = table.float("share", 0.0, 1.0);
    if share == Some(0.0) {
        table.error("share", "must be above 0");
    }
    let counted = 1..=u64::from(u32::MAX);
    let pause = table.duration("pause").unwrap_or(default.pause);
    let longest_pause = table.duration("longest_pause");
    if longest_pause.is_some_and(|longest| longest < pause) {
        table.error("longest_pause", "is shorter than pause");
    }
    let breaker = Breaker {
        share: share.unwrap_or(default.share),
        calls: table.number("calls", counted.clone()).map_or(default.calls, |calls| calls as u32),
        window: table.duration("window").unwrap_or(default.window),
        pause,
        longest_pause: longest_pause.unwrap_or(default.longest_pause).max(pause),
        probes: table.number("probes", counted).map_or(default.probes, |probes| probes as u32),
    };
    table.finish();
    Some(breaker)
}

/// Reads the key `hedge`, which must be able to act before the upstream's timeout.
pub(crate) fn read_hedge(upstream: &mut Table<'_, '_>, timeout: Duration) -> Option<Hedge> {
    let Some(read) = upstream.parsed("hedge", "\"half\", \"p95\", a duration or \"off\"", Hedge::read) else {
        return Some(Hedge::Half);
    };
    let hedge = read.value?;
    if matches!(hedge, Hedge::Time(after) if after >= timeout) {
        upstream.error("hedge", "is not shorter than the timeout, so it never acts");
    }
    Some(hedge)
}

/// Reads a key with a part of the upstream's timeout; a longer one would never act.
pub(crate) fn read_part(upstream: &mut Table<'_, '_>, key: &'static str, timeout: Duration) -> Option<Duration> {
    let part = upstream.duration(key)?;
    if part >= timeout {
        upstream.error(key, "is not shorter than the timeout, so it never acts");
    }
    Some(part)
}
