//! What deserves somebody's attention now, in words.

use crate::data::{Data, Problem, Route, Upstream};

/// A part of responses or calls that fail above which it is a problem.
const FAILING: f64 = 0.01;
/// The same for upstreams, whose failures flows may tolerate.
const UPSTREAM_FAILING: f64 = 0.05;
/// A part of the memory budget. The server sheds at this one.
const MEMORY: f64 = 0.85;
/// The error budget of thirty days lasts a bit more than two days at this rate; the alert rules page at it.
const BURNS_FAST: f64 = 14.4;

impl Data {
    /// Finds what deserves attention.
    pub fn find_problems(&mut self) {
        self.problems = problems(self);
    }
}

/// The problems, the worst first.
fn problems(data: &Data) -> Vec<Problem> {
    let mut all = Vec::new();
    let mut add = |severe, kind: &str, name: &str, text: String| {
        let severity = if severe { "alarm" } else { "warning" };
        all.push(Problem { severity: severity.into(), kind: kind.into(), name: name.into(), text });
    };
    if data.server.stalls > 0 {
        let times = if data.server.stalls == 1 { "once".into() } else { format!("{} times", data.server.stalls) };
        add(false, "server", "workers", format!("one piece of work held a worker too long, {times}; the log names it"));
    }
    let (used, budget) = (data.server.memory_used_bytes as f64, data.server.memory_budget_bytes as f64);
    if budget > 0.0 && used > budget * MEMORY {
        add(true, "server", "memory", format!("{:.0} % of the memory budget is used", used / budget * 100.0));
    }
    for upstream in &data.upstreams {
        for (severe, text) in of_upstream(upstream) {
            add(severe, "upstream", &upstream.name, text);
        }
    }
    for route in &data.routes {
        let name = name_of(route);
        for (severe, text) in of_route(route) {
            add(severe, "route", &name, text);
        }
    }
    for model in &data.models {
        if model.failures_per_s > 0.0 {
            let text = format!("{} requests a second fail", short(model.failures_per_s));
            add(true, "model", &format!("{} {}", model.model, model.version), text);
        }
    }
    all.sort_by_key(|problem| problem.severity != "alarm");
    all
}

/// `GET /products`, or what requests without a route are called.
pub(crate) fn name_of(route: &Route) -> String {
    if route.route.is_empty() { "(no route)".into() } else { format!("{} {}", route.method, route.route) }
}

fn of_upstream(upstream: &Upstream) -> Vec<(bool, String)> {
    let mut all = Vec::new();
    match upstream.breaker.as_str() {
        "open" => all.push((true, "the circuit breaker is open: calls are refused at once".to_owned())),
        "half-open" => all.push((false, "the circuit breaker is half-open: one call tests the upstream".to_owned())),
        _ => {}
    }
    if upstream.ejected > 0 {
        let all_of_them = upstream.ejected == upstream.endpoints;
        all.push((all_of_them, format!("{} of {} endpoints are ejected", upstream.ejected, upstream.endpoints)));
    }
    if let Some(limit) = upstream.limit
        && upstream.waiting > 0
        && upstream.in_flight >= limit
    {
        all.push((false, format!("all {limit} permits are in use, and {} calls wait", upstream.waiting)));
    }
    if upstream.per_s > 0.0 && upstream.failed_per_s > upstream.per_s * UPSTREAM_FAILING {
        let failures = upstream.outcomes_per_s.iter().filter(|(name, _)| is_failure(name));
        let most = failures.max_by(|a, b| a.1.total_cmp(b.1)).map_or("", |(name, _)| name.as_str());
        let part = upstream.failed_per_s / upstream.per_s;
        all.push((part > 0.5, format!("{} of the calls fail, mostly with {most}", percent(part))));
    }
    if upstream.retries_denied_per_s > 0.0 {
        all.push((
            false,
            format!(
                "the retry budget is used up: {} retries a second are not sent",
                short(upstream.retries_denied_per_s)
            ),
        ));
    }
    all
}

/// Whether an outcome of a call says that something is wrong with the upstream. A call is cancelled when nobody needs its answer any more.
pub(crate) fn is_failure(outcome: &str) -> bool {
    !matches!(outcome, "2xx" | "3xx" | "4xx" | "cancelled")
}

fn of_route(route: &Route) -> Vec<(bool, String)> {
    let mut all = Vec::new();
    let refused: f64 = route.refused_per_s.values().sum();
    if refused > 0.0 {
        let reasons: Vec<&str> = route.refused_per_s.keys().map(String::as_str).collect();
        all.push((true, format!("{} requests a second are refused ({})", short(refused), reasons.join(", "))));
    }
    if route.per_s > 0.0 && route.failed_per_s > route.per_s * FAILING {
        all.push((true, format!("{} of the responses are failures (5xx)", percent(route.failed_per_s / route.per_s))));
    }
    if let Some(objective) = &route.objective
        && let Some(rate) = objective.burn_rate.filter(|rate| *rate > 1.0)
    {
        let text = format!("the error budget is used {} times as fast as the objective allows", short(rate));
        all.push((rate > BURNS_FAST, text));
    }
    all
}

fn percent(part: f64) -> String {
    if part < 0.1 { format!("{:.1} %", part * 100.0) } else { format!("{:.0} %", part * 100.0) }
}

fn short(value: f64) -> String {
    if value < 10.0 { format!("{value:.1}") } else { format!("{value:.0}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Objective;

    #[test]
    fn what_is_wrong_is_said_the_worst_first() {
        let half_open = Upstream { name: "stock".into(), breaker: "half-open".into(), ..Upstream::default() };
        let failing = Upstream {
            name: "catalog".into(),
            breaker: "open".into(),
            per_s: 10.0,
            failed_per_s: 6.0,
            outcomes_per_s: [("2xx".into(), 4.0), ("timeout".into(), 5.0), ("5xx".into(), 1.0)].into(),
            limit: Some(4),
            in_flight: 4,
            waiting: 3,
            ..Upstream::default()
        };
        let objective = Objective { burn_rate: Some(20.0), ..Objective::default() };
        let route = Route { method: "GET".into(), route: "/".into(), objective: Some(objective), ..Route::default() };
        let data = Data { upstreams: vec![half_open, failing], routes: vec![route], ..Data::default() };
        let found = problems(&data);
        let texts: Vec<String> =
            found.iter().map(|one| format!("{} {}: {}", one.severity, one.name, one.text)).collect();
        assert_eq!(
            texts,
            [
                "alarm catalog: the circuit breaker is open: calls are refused at once",
                "alarm catalog: 60 % of the calls fail, mostly with timeout",
                "alarm GET /: the error budget is used 20 times as fast as the objective allows",
                "warning stock: the circuit breaker is half-open: one call tests the upstream",
                "warning catalog: all 4 permits are in use, and 3 calls wait",
            ]
        );
    }

    #[test]
    fn nothing_is_wrong_with_a_server_at_rest() {
        let upstream = Upstream { breaker: "closed".into(), per_s: 100.0, failed_per_s: 1.0, ..Upstream::default() };
        let route = Route { per_s: 100.0, client_errors_per_s: 50.0, ..Route::default() };
        assert!(problems(&Data { upstreams: vec![upstream], routes: vec![route], ..Data::default() }).is_empty());
    }
}
