//! The data as text for a terminal: `fanin top`.

use std::fmt::Write;

use crate::data::{Data, Point};
use crate::problems::name_of;

/// Heights of the bars of a small chart.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

const BOLD: &str = "\x1b[1m";
const ALARM: &str = "\x1b[1;31m";
const FAINT: &str = "\x1b[2m";
const PLAIN: &str = "\x1b[0m";

/// Draws the data in lines of at most `width` characters, with colours or without.
pub fn draw(data: &Data, width: usize, colours: bool) -> String {
    let mut screen = Screen { text: String::new(), width: width.max(40), colours };
    screen.head(data);
    screen.charts(&data.points);
    screen.routes(data);
    screen.upstreams(data);
    screen.caches(data);
    screen.models(data);
    screen.text
}

struct Screen {
    text: String,
    width: usize,
    colours: bool,
}

impl Screen {
    /// Adds a line, cut to the width. Names come from a server: control characters in them must not reach the terminal.
    fn line(&mut self, style: &str, line: &str) {
        let line = line.trim_end();
        let cut = line.chars().count() > self.width;
        let shown = line.chars().map(|char| if char.is_control() { '?' } else { char });
        let (start, end) = if self.colours && !style.is_empty() { (style, PLAIN) } else { ("", "") };
        self.text.push_str(start);
        if cut {
            self.text.extend(shown.take(self.width - 1));
            self.text.push('…');
        } else {
            self.text.extend(shown);
        }
        self.text.push_str(end);
        self.text.push('\n');
    }

    fn head(&mut self, data: &Data) {
        let draining = if data.draining { "   DRAINING" } else { "" };
        let style = if data.draining { ALARM } else { BOLD };
        self.line(
            style,
            &format!(
                "fanin {}   up {}   configuration {}   over {}{draining}",
                data.version,
                period(data.uptime_s),
                data.generation,
                period(data.covers_s.min(data.window_s as f64))
            ),
        );
        let server = &data.server;
        let memory = match server.memory_budget_bytes {
            0 => bytes(server.memory_used_bytes),
            budget => format!("{} of {}", bytes(server.memory_used_bytes), bytes(budget)),
        };
        self.line(
            "",
            &format!(
                "in flight {}   waiting {}   queued {}   connections {}   memory {memory}",
                server.in_flight, server.waiting, server.queued, server.connections
            ),
        );
        for problem in &data.problems {
            let style = if problem.severity == "alarm" { ALARM } else { BOLD };
            self.line(style, &format!("! {}: {}", problem.name, problem.text));
        }
    }

    fn charts(&mut self, points: &[Point]) {
        type Chart = (&'static str, fn(&Point) -> f64, fn(f64) -> String);
        let charts: [Chart; 4] = [
            ("in progress", |point| point.request_seconds_per_s, number),
            ("goodput", |point| point.good_per_s, |value| format!("{}/s", number(value))),
            (
                "refused, failed",
                |point| point.refused_per_s.values().sum::<f64>() + point.failed_per_s,
                |value| format!("{}/s", number(value)),
            ),
            ("p99", |point| point.latency.p99_ms.unwrap_or(0.0), |value| ms(Some(value))),
        ];
        self.line("", "");
        let length = (self.width - 32).min(120);
        let shown = &points[points.len().saturating_sub(length)..];
        for (name, of, unit) in charts {
            let most = shown.iter().map(of).fold(0.0, f64::max);
            let bar = |value: f64| {
                if most <= 0.0 { BARS[0] } else { BARS[((value / most * 7.0).round() as usize).min(7)] }
            };
            let bars: String = shown.iter().map(|point| bar(of(point))).collect();
            let now = shown.last().map_or(0.0, of);
            self.line("", &format!("{name:<15} {:>10}  {bars}", unit(now)));
        }
    }

    fn table(&mut self, title: &str, columns: &[&str], rows: &[Vec<String>], alarmed: &[bool]) {
        if rows.is_empty() {
            return;
        }
        let wide = |at: usize| {
            let cells = rows.iter().map(|row| row[at].chars().count());
            cells.chain([columns[at].chars().count()]).max().unwrap_or(0)
        };
        let numbers: usize = (1..columns.len()).map(|at| wide(at) + 2).sum();
        let names = rows.iter().map(|row| row[0].chars().count()).chain([title.chars().count()]).max().unwrap_or(0);
        let first = names.min(self.width.saturating_sub(numbers).max(12));
        let text = |name: &str, cells: &mut dyn Iterator<Item = String>| {
            let mut line: String = name.chars().take(first).collect();
            let _ = write!(line, "{:pad$}", "", pad = first - line.chars().count());
            for (at, cell) in cells.enumerate() {
                let _ = write!(line, "  {cell:>width$}", width = wide(at + 1));
            }
            line
        };
        self.line("", "");
        let head = text(title, &mut columns.iter().skip(1).map(|column| (*column).to_owned()));
        self.line(FAINT, &head);
        for (row, alarmed) in rows.iter().zip(alarmed) {
            let line = text(&row[0], &mut row.iter().skip(1).cloned());
            self.line(if *alarmed { ALARM } else { "" }, &line);
        }
    }

    fn routes(&mut self, data: &Data) {
        let columns = ["", "good/s", "4xx/s", "failed/s", "refused/s", "in flight", "p50", "p95", "p99", "objective"];
        let rows = data.routes.iter().map(|route| {
            let refused: f64 = route.refused_per_s.values().sum();
            let objective = route.objective.as_ref().map_or(String::new(), |objective| {
                let good = objective.good_ratio.map_or("–".to_owned(), |ratio| format!("{:.2} %", ratio * 100.0));
                format!("{good} of {}", percent(objective.ratio))
            });
            vec![
                name_of(route),
                number(route.good_per_s),
                number(route.client_errors_per_s),
                number(route.failed_per_s),
                number(refused),
                route.in_flight.to_string(),
                ms(route.latency.p50_ms),
                ms(route.latency.p95_ms),
                ms(route.latency.p99_ms),
                objective,
            ]
        });
        let rows: Vec<_> = rows.collect();
        let alarmed: Vec<bool> = data
            .routes
            .iter()
            .map(|route| {
                let burning = route.objective.as_ref().and_then(|objective| objective.burn_rate);
                route.failed_per_s > 0.0 || !route.refused_per_s.is_empty() || burning.is_some_and(|rate| rate > 1.0)
            })
            .collect();
        if rows.is_empty() {
            self.line("", "");
            self.line(FAINT, "No routes yet: add [[routes]] to fanin.toml.");
        }
        self.table("ROUTE", &columns, &rows, &alarmed);
    }

    fn upstreams(&mut self, data: &Data) {
        let columns = [
            "",
            "calls/s",
            "failed/s",
            "in flight",
            "waiting",
            "breaker",
            "endpoints",
            "p50",
            "p95",
            "p99",
            "retries/s",
        ];
        let rows = data.upstreams.iter().map(|upstream| {
            let limit = upstream.limit.map_or("∞".to_owned(), |limit| limit.to_string());
            let usable = upstream.endpoints.saturating_sub(upstream.ejected);
            let endpoints =
                if upstream.endpoints == 0 { "–".into() } else { format!("{usable}/{}", upstream.endpoints) };
            vec![
                upstream.name.clone(),
                number(upstream.per_s),
                number(upstream.failed_per_s),
                format!("{}/{limit}", upstream.in_flight),
                upstream.waiting.to_string(),
                upstream.breaker.clone(),
                endpoints,
                ms(upstream.latency.p50_ms),
                ms(upstream.latency.p95_ms),
                ms(upstream.latency.p99_ms),
                number(upstream.retries_per_s),
            ]
        });
        let rows: Vec<_> = rows.collect();
        let alarmed: Vec<bool> = data
            .upstreams
            .iter()
            .map(|upstream| upstream.breaker != "closed" || upstream.ejected > 0 || upstream.failed_per_s > 0.0)
            .collect();
        self.table("UPSTREAM", &columns, &rows, &alarmed);
    }

    fn caches(&mut self, data: &Data) {
        let columns = ["", "calls/s", "joined/s", "hits", "size", "entries", "keys a batch"];
        let rows = data.caches.iter().map(|cache| {
            vec![
                format!("{}.{}", cache.upstream, cache.operation),
                number(cache.calls_per_s),
                number(cache.joined_per_s),
                cache.hit_ratio.map_or("–".to_owned(), percent),
                cache.bytes.map_or("–".to_owned(), bytes),
                cache.entries.map_or("–".to_owned(), |entries| entries.to_string()),
                cache.keys_per_batch.map_or("–".to_owned(), number),
            ]
        });
        let rows: Vec<_> = rows.collect();
        self.table("OPERATION", &columns, &rows, &vec![false; rows.len()]);
    }

    fn models(&mut self, data: &Data) {
        let columns = ["", "answers/s", "failed/s", "rows/s", "threads", "queue", "compute", "memory"];
        let rows = data.models.iter().map(|model| {
            vec![
                format!("{} {}", model.model, model.version),
                number(model.answers_per_s),
                number(model.failures_per_s),
                number(model.rows_per_s),
                number(model.busy_threads),
                ms(model.queue_ms),
                ms(model.compute_ms),
                bytes(model.memory_bytes),
            ]
        });
        let rows: Vec<_> = rows.collect();
        let alarmed: Vec<bool> = data.models.iter().map(|model| model.failures_per_s > 0.0).collect();
        self.table("MODEL", &columns, &rows, &alarmed);
    }
}

fn number(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        _ if value >= 1e6 => format!("{:.1}M", value / 1e6),
        _ if value >= 1e4 => format!("{:.1}k", value / 1e3),
        _ if value >= 100.0 => format!("{value:.0}"),
        _ if value >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

fn percent(ratio: f64) -> String {
    let text = format!("{:.2}", ratio * 100.0);
    format!("{} %", text.trim_end_matches('0').trim_end_matches('.'))
}

fn ms(value: Option<f64>) -> String {
    match value {
        None => "–".to_owned(),
        Some(value) if value >= 10_000.0 => format!("{:.1} s", value / 1e3),
        Some(value) if value >= 100.0 => format!("{value:.0} ms"),
        Some(value) if value >= 10.0 => format!("{value:.1} ms"),
        Some(value) => format!("{value:.2} ms"),
    }
}

fn bytes(value: u64) -> String {
    let mut value = value as f64;
    for unit in ["B", "KiB", "MiB"] {
        if value < 1024.0 {
            return if unit == "B" { format!("{value:.0} B") } else { format!("{value:.1} {unit}") };
        }
        value /= 1024.0;
    }
    format!("{value:.1} GiB")
}

fn period(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    match whole {
        0..120 => format!("{whole} s"),
        120..7200 => format!("{} min", whole / 60),
        7200..172_800 => format!("{} h {} min", whole / 3600, whole / 60 % 60),
        _ => format!("{} d {} h", whole / 86_400, whole / 3600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Latency, Route, Upstream};

    fn data() -> Data {
        let latency = Latency { p50_ms: Some(12.34), p95_ms: Some(123.4), p99_ms: None };
        Data {
            version: "1".into(),
            points: (0..200).map(|n| Point { good_per_s: f64::from(n), ..Point::default() }).collect(),
            routes: vec![Route { method: "GET".into(), route: "/a\x1b[2J".into(), latency, ..Route::default() }],
            upstreams: vec![Upstream {
                name: "catalog".into(),
                breaker: "open".into(),
                limit: Some(64),
                in_flight: 3,
                ..Upstream::default()
            }],
            ..Data::default()
        }
    }

    #[test]
    fn shows_numbers_with_units_and_what_is_wrong() {
        let mut data = data();
        data.find_problems();
        let text = draw(&data, 160, false);
        for part in ["12.3 ms", "123 ms", "3/64", "! catalog: the circuit breaker is open", "199/s", "█", "GET /a?[2J"]
        {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        assert!(!text.contains('\x1b'), "no colours, and no control characters of names");
        assert!(draw(&data, 160, true).contains("\x1b[1;31m"));
    }

    #[test]
    fn lines_fit_the_terminal() {
        for width in [40, 80, 120] {
            let text = draw(&data(), width, false);
            assert!(text.lines().all(|line| line.chars().count() <= width), "{width}:\n{text}");
        }
    }

    #[test]
    fn an_empty_server_says_what_to_do() {
        assert!(draw(&Data::default(), 80, false).contains("add [[routes]]"));
    }
}
