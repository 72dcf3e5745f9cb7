//! What a recording says about timeouts, limits and linger.

use std::collections::BTreeMap;
use std::time::Duration;

use fanin_config::{Config, format_duration};
use fanin_recording::Recording;

use super::answers::Operations;

/// With fewer requests to an upstream, nothing is said about it.
const LEAST: usize = 20;
/// A timeout that is so many times the longest answer is long.
const LONG: u32 = 4;
/// What is suggested is so many times what was seen.
const ROOM: f64 = 1.5;
/// Lingers that are tried, in microseconds.
const LINGERS: [u64; 5] = [500, 1000, 2000, 5000, 10_000];

/// A suggestion for a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advice {
    /// The key: `upstreams.catalog.timeout`.
    pub key: String,
    /// Its value, if it should be another.
    pub value: Option<String>,
    /// Why.
    pub why: String,
}

#[derive(Default)]
struct Seen {
    /// Microseconds of answers, and what waited for a permit.
    took: Vec<u64>,
    waited: Vec<u64>,
    timed_out: usize,
    /// When requests began and ended.
    edges: Vec<(u64, i64)>,
}

/// What the recording says about this configuration.
pub(crate) fn advice(recording: &Recording, config: &Config, known: &Operations) -> Vec<Advice> {
    let mut operations: BTreeMap<(String, Option<String>), Seen> = BTreeMap::new();
    let mut upstreams: BTreeMap<String, Seen> = BTreeMap::new();
    let mut calls: BTreeMap<(String, String), Vec<(u64, usize)>> = BTreeMap::new();
    for request in &recording.requests {
        for exchange in request.exchanges.iter().filter(|exchange| !exchange.shared) {
            let own = operations.entry((exchange.upstream.clone(), exchange.operation.clone())).or_default();
            let whole = upstreams.entry(exchange.upstream.clone()).or_default();
            for seen in [own, whole] {
                seen.waited.push(exchange.begun_us.saturating_sub(exchange.wanted_us));
                seen.timed_out += usize::from(exchange.failure.as_deref() == Some("timeout"));
                let Some(ended) = exchange.ended_us else { continue };
                if exchange.answer.is_some() {
                    seen.took.push(ended.saturating_sub(exchange.begun_us));
                }
                seen.edges.extend([(request.arrived_us + exchange.begun_us, 1), (request.arrived_us + ended, -1)]);
            }
        }
        for call in request.calls.iter().filter(|call| !call.keys.is_empty() && call.sharing != "cache") {
            let Some(name) = call.operation.clone() else { continue };
            calls
                .entry((call.upstream.clone(), name))
                .or_default()
                .push((request.arrived_us + call.made_us, call.keys.len()));
        }
    }
    let mut all = Vec::new();
    for ((upstream, name), seen) in &mut operations {
        all.extend(timeout(upstream, name.as_deref(), seen, config, known));
    }
    for (upstream, seen) in &mut upstreams {
        all.extend(limit(upstream, seen, recording.header.share, config));
    }
    if recording.header.share >= 1.0 {
        for ((upstream, name), calls) in &mut calls {
            all.extend(linger(upstream, name, calls, &operations, known));
        }
    }
    all
}

/// A percentile of sorted numbers.
fn at(sorted: &[u64], percent: f64) -> u64 {
    let rank = (percent / 100.0 * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.clamp(1, sorted.len().max(1)) - 1).copied().unwrap_or(0)
}

fn text(micros: u64) -> String {
    let time = Duration::from_micros(micros);
    format_duration(if micros < 1000 { time } else { Duration::from_millis(micros.div_ceil(1000)) })
}

/// Rounded up to a number that people write.
fn round_up(micros: u64) -> u64 {
    let millis = micros.div_ceil(1000).max(1);
    let step = 10_u64.pow(millis.ilog10()).max(10) / 2;
    millis.div_ceil(step.max(1)) * step.max(1) * 1000
}

fn timeout(upstream: &str, name: Option<&str>, seen: &mut Seen, config: &Config, known: &Operations) -> Option<Advice> {
    if seen.took.len() + seen.timed_out < LEAST {
        return None;
    }
    seen.took.sort_unstable();
    let of = config.upstreams.get(upstream)?;
    let own = name.and_then(|name| known.get(upstream, name)).and_then(|operation| operation.timeout);
    let now = own.unwrap_or(of.timeout);
    let (p99, longest) = (at(&seen.took, 99.0), seen.took.last().copied().unwrap_or(0));
    let kind = of.kind();
    let section = match (own, name) {
        (Some(_), Some(name)) if kind == fanin_config::UpstreamKind::Http => {
            format!("upstreams.{upstream}.operations.{name}.timeout")
        }
        (Some(_), Some(name)) => format!("upstreams.{upstream}.statements.{name}.timeout"),
        _ => format!("upstreams.{upstream}.timeout"),
    };
    let calls = name.map(|name| format!(" of {name}")).unwrap_or_default();
    let (answers, timed_out) = (seen.took.len(), seen.timed_out);
    let seen_times = format!("{answers} answers{calls}: p99 {}, longest {}", text(p99), text(longest));
    let now_us = now.as_micros() as u64;
    if timed_out > 0 {
        let why = format!(
            "{timed_out} of {} requests{calls} took longer than {}; {seen_times}",
            answers + timed_out,
            format_duration(now)
        );
        return Some(Advice { key: section, value: None, why });
    }
    let suggested = round_up((longest as f64 * ROOM) as u64);
    if suggested * u64::from(LONG) <= now_us {
        let why = format!("it is {} now; {seen_times}", format_duration(now));
        return Some(Advice { key: section, value: Some(format!("\"{}\"", text(suggested))), why });
    }
    (longest * 10 > now_us * 8).then(|| {
        let why = format!("it is {} now, which is close; {seen_times}", format_duration(now));
        Advice { key: section, value: Some(format!("\"{}\"", text(suggested))), why }
    })
}

fn limit(upstream: &str, seen: &mut Seen, share: f64, config: &Config) -> Option<Advice> {
    if seen.took.len() < LEAST {
        return None;
    }
    let of = config.upstreams.get(upstream)?;
    // What ends at a moment makes room for what begins then.
    seen.edges.sort_unstable();
    let (mut in_flight, mut most) = (0_i64, 0_i64);
    for (_, change) in &seen.edges {
        in_flight += change;
        most = most.max(in_flight);
    }
    seen.waited.sort_unstable();
    let waited = at(&seen.waited, 99.0);
    let share = if share > 0.0 { share } else { 1.0 };
    let most = (most as f64 / share).ceil() as usize;
    let about = if share < 1.0 { "about " } else { "" };
    let key = format!("upstreams.{upstream}.limit");
    let fanin_config::Limit::Fixed(now) = of.limit else { return None };
    let waiting = seen.waited.iter().filter(|waited| **waited >= 1000).count();
    if waiting > 0 {
        let why = format!(
            "{waiting} of {} requests waited for a permit, at p99 {}; at most {about}{most} were in flight, the limit is {now}",
            seen.waited.len(),
            text(waited)
        );
        return Some(Advice { key, value: Some(((most as f64 * ROOM).ceil() as usize).max(now + 1).to_string()), why });
    }
    let suggested = ((most as f64 * ROOM).ceil() as usize).max(4);
    (suggested * 4 <= now).then(|| {
        let why = format!("it is {now} now; at most {about}{most} were in flight");
        Advice { key, value: Some(suggested.to_string()), why }
    })
}

fn linger(
    upstream: &str,
    name: &str,
    calls: &mut [(u64, usize)],
    operations: &BTreeMap<(String, Option<String>), Seen>,
    known: &Operations,
) -> Option<Advice> {
    let batch = known.get(upstream, name)?.batch.as_ref()?;
    let sent = operations.get(&(upstream.to_owned(), Some(name.to_owned()))).map_or(0, |seen| seen.waited.len());
    if calls.len() < LEAST || sent < LEAST {
        return None;
    }
    calls.sort_unstable();
    let requests = |linger: u64| {
        let (mut number, mut until, mut keys) = (0_usize, 0_u64, 0_usize);
        for (made, asked) in calls.iter() {
            if number == 0 || *made > until || keys + asked > batch.max_keys {
                (number, until, keys) = (number + 1, made + linger, 0);
            }
            keys += asked;
        }
        number
    };
    let best = requests(LINGERS[LINGERS.len() - 1]);
    if best * 10 > sent * 9 {
        return None;
    }
    // The shortest that gets most of what a long one would.
    let enough = |linger: &u64| sent.saturating_sub(requests(*linger)) * 10 >= sent.saturating_sub(best) * 7;
    let found = LINGERS.into_iter().find(enough)?;
    let why = format!(
        "{} calls made {sent} requests; calls that are at most {} apart would share {} requests, if they were on one worker",
        calls.len(),
        text(found),
        requests(found)
    );
    let key = format!("upstreams.{upstream}.operations.{name}.batch.linger");
    (u128::from(found) != batch.linger.as_micros()).then(|| Advice {
        key,
        value: Some(format!("\"{}\"", text(found))),
        why,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_rounded_to_what_people_write() {
        let millis = |micros| round_up(micros) / 1000;
        assert_eq!((millis(300), millis(4_200), millis(23_000), millis(123_000)), (5, 5, 25, 150));
        assert_eq!((text(500), text(25_000), text(25_001)), ("500us".to_owned(), "25ms".to_owned(), "26ms".to_owned()));
    }
}
