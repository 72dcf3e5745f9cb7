//! What recent requests of a route have in common: which calls are on the critical path, and what shorter ones would gain.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fanin_trace::{CallTrace, RequestTrace};
use serde::{Deserialize, Serialize};

use super::{Recorded, STEP};

/// The bands, by the percentile that they surround: from, name, to, and how many requests make sense of it.
const BANDS: [(f64, &str, f64, usize); 3] = [(0.40, "p50", 0.60, 1), (0.90, "p95", 0.99, 20), (0.985, "p99", 1.0, 100)];

/// The calls of a route's recent requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RouteExplanation {
    /// The route.
    pub route: String,
    /// Requests that were explained.
    pub requests: usize,
    /// How much shorter a call is in the gains, in microseconds.
    pub step_us: u64,
    /// The bands of requests, by how long they took.
    pub bands: Vec<Band>,
    /// Why requests are missing.
    pub note: Option<String>,
}

/// Requests about a percentile of the durations.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Band {
    /// `p50`, `p95` or `p99`.
    pub name: String,
    /// The percentile itself.
    pub duration_us: u64,
    /// Requests in the band.
    pub requests: usize,
    /// Their calls, those with the largest gain first.
    pub calls: Vec<RouteCall>,
}

/// A call of the flow, in the requests of a band.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RouteCall {
    /// Upstream and operation.
    pub name: String,
    /// File and line.
    pub line: String,
    /// Calls from this line for each request.
    pub per_request: f64,
    /// The share of requests in which one of them is on the critical path.
    pub critical: f64,
    /// How much sooner the response comes on average if one of them is shorter by the step: that with the largest gain.
    pub gain_us: f64,
    /// The least slack on average; nothing if no length would have been noticed.
    pub slack_us: Option<f64>,
    /// Mean of how long they took, the longest of each request.
    pub took_us: f64,
}

impl RouteExplanation {
    /// For a terminal.
    pub fn text(&self) -> String {
        let step = self.step_us as f64 / 1000.0;
        let mut text = format!("{}: {} recent requests, recorded in full\n", self.route, self.requests);
        for band in &self.bands {
            let _ = writeln!(
                text,
                "\n{}: {:.1} ms ({} requests about there)",
                band.name,
                band.duration_us as f64 / 1000.0,
                band.requests
            );
            for call in &band.calls {
                let slack = call.slack_us.map_or("any length".to_owned(), |slack| format!("{:.1} ms", slack / 1000.0));
                let _ = writeln!(
                    text,
                    "  {} ({}) takes {:.1} ms, on the critical path in {:.0} %; {step} ms off it gives {:.1} ms; slack {slack}",
                    call.name,
                    call.line,
                    call.took_us / 1000.0,
                    call.critical * 100.0,
                    call.gain_us / 1000.0,
                );
            }
        }
        if let Some(note) = &self.note {
            let _ = writeln!(text, "\nNot all could be explained: {note}.");
        }
        if self.requests == 0 {
            text.push_str("None yet: [recorder] full_rate says how many a second are recorded in full.\n");
        }
        text
    }
}

/// Explains the requests, the newest first, for about `budget`.
pub(super) fn explain(route: &str, requests: &[Arc<Recorded>], step: Duration, budget: Duration) -> RouteExplanation {
    let end = Instant::now() + budget;
    let mut traces: Vec<RequestTrace> = Vec::new();
    let mut note = None;
    for request in requests {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            note = Some(format!("only {} of {} requests: they have many calls", traces.len(), requests.len()));
            break;
        }
        let trace = request.trace(Some(step), left);
        match trace.unexplained {
            None => traces.push(trace),
            Some(why) => note = Some(why),
        }
    }
    explained(route, traces, step, note)
}

/// The same of requests that have been explained already.
pub fn explain_traces(route: &str, requests: &[RequestTrace]) -> RouteExplanation {
    let of_route = requests.iter().filter(|request| request.route == route && request.step.is_some());
    let (traces, unexplained): (Vec<_>, Vec<_>) = of_route.cloned().partition(|trace| trace.unexplained.is_none());
    let step = traces.first().and_then(|trace| trace.step).unwrap_or(STEP);
    explained(route, traces, step, unexplained.into_iter().find_map(|trace| trace.unexplained))
}

fn explained(route: &str, mut traces: Vec<RequestTrace>, step: Duration, note: Option<String>) -> RouteExplanation {
    traces.sort_by_key(|trace| trace.duration);
    let bands = BANDS
        .iter()
        .filter(|(.., least)| traces.len() >= *least)
        .filter_map(|(from, name, to, _)| band(&traces, *from, name, *to))
        .collect();
    RouteExplanation { route: route.to_owned(), requests: traces.len(), step_us: step.as_micros() as u64, bands, note }
}

/// `traces` are sorted by duration.
fn band(traces: &[RequestTrace], from: f64, name: &str, to: f64) -> Option<Band> {
    let at = |share: f64| ((traces.len() as f64 * share) as usize).min(traces.len().saturating_sub(1));
    let percentile = name[1..].parse::<f64>().ok()? / 100.0;
    let within = traces.get(at(from)..=at(to))?;
    let mut calls: BTreeMap<(String, String), Vec<Vec<&CallTrace>>> = BTreeMap::new();
    for trace in within {
        let mut here: BTreeMap<(String, String), Vec<&CallTrace>> = BTreeMap::new();
        for call in &trace.calls {
            here.entry((call.name(), call.line.clone())).or_default().push(call);
        }
        for (key, found) in here {
            calls.entry(key).or_default().push(found);
        }
    }
    let requests = within.len();
    let mut calls: Vec<RouteCall> =
        calls.into_iter().map(|((name, line), of)| summary(name, line, &of, requests)).collect();
    calls.sort_by(|a, b| b.gain_us.total_cmp(&a.gain_us).then(b.critical.total_cmp(&a.critical)));
    Some(Band {
        name: name.to_owned(),
        duration_us: traces[at(percentile)].duration.as_micros() as u64,
        requests,
        calls,
    })
}

/// `of`: the calls from one line, for each request that has any.
fn summary(name: String, line: String, of: &[Vec<&CallTrace>], requests: usize) -> RouteCall {
    let each = requests as f64;
    let micros = |duration: Duration| duration.as_secs_f64() * 1e6;
    let gain = |calls: &[&CallTrace]| {
        calls.iter().filter_map(|call| call.effect.as_ref()).map(|effect| micros(effect.gain)).fold(0.0, f64::max)
    };
    let slack = |calls: &[&CallTrace]| {
        calls.iter().filter_map(|call| call.effect.as_ref()?.slack).map(micros).min_by(f64::total_cmp)
    };
    let took = |calls: &[&CallTrace]| {
        let each = calls.iter().filter_map(|call| Some(micros(call.ended?.saturating_sub(call.sent?))));
        each.fold(0.0, f64::max)
    };
    let slacks: Vec<f64> = of.iter().filter_map(|calls| slack(calls)).collect();
    RouteCall {
        name,
        line,
        per_request: of.iter().map(Vec::len).sum::<usize>() as f64 / each,
        critical: of.iter().filter(|calls| calls.iter().any(|call| call.critical)).count() as f64 / each,
        gain_us: of.iter().map(|calls| gain(calls)).sum::<f64>() / each,
        slack_us: (!slacks.is_empty()).then(|| slacks.iter().sum::<f64>() / slacks.len() as f64),
        took_us: of.iter().map(|calls| took(calls)).sum::<f64>() / of.len().max(1) as f64,
    }
}
