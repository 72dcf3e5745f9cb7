//! The bounded history of readings.
//!
//! Readings of the last seconds are all kept, and of those before one in ten seconds. So a window of any length can be compared with
//! the newest reading. Points of the whole server are kept for each second: they are small.

use std::collections::VecDeque;
use std::time::Duration;

use crate::compare::Compared;
use crate::data::{Data, Point, RouteSeries, UpstreamSeries};
use crate::sample::Sample;

/// How far back it goes.
const REACH: Duration = Duration::from_secs(15 * 60);
/// Readings this young are all kept.
const RECENT: Duration = Duration::from_secs(12);
/// Between the older ones.
const STEP: Duration = Duration::from_secs(10);
/// Points of the whole server.
const MOST_POINTS: usize = 900;
/// Readings: those of [`REACH`] and those of [`RECENT`], if some come early.
const MOST_SAMPLES: usize = 90 + 20;

/// What a page wants of a history.
#[derive(Debug, Clone, Copy)]
pub struct Query {
    /// Points up to this number are known.
    pub since: u64,
    /// Over which time rates and latencies are computed.
    pub window: Duration,
    /// Whether the past of each route and upstream is wanted.
    pub series: bool,
}

impl Query {
    /// Reads `since=7&window=60&series=1`. What is missing or wrong has its default: everything, over a minute.
    pub fn parse(text: &str) -> Query {
        let value = |key: &str| text.split('&').find_map(|part| part.strip_prefix(key)?.strip_prefix('='));
        let number = |key| value(key).and_then(|text| text.parse::<u64>().ok());
        let window = number("window").unwrap_or(60).clamp(1, REACH.as_secs());
        Query {
            since: number("since").unwrap_or(0),
            window: Duration::from_secs(window),
            series: number("series") == Some(1),
        }
    }
}

/// The readings of the last quarter of an hour.
#[derive(Debug, Default)]
pub struct History {
    points: VecDeque<Point>,
    samples: VecDeque<Sample>,
    newest: u64,
    /// When the last of the readings that stay was made.
    stays: Duration,
}

impl History {
    /// Adds a reading: the text of the metrics, at a time since the start, and the same as milliseconds since the epoch.
    pub fn add(&mut self, at: Duration, unix_ms: u64, text: &str) {
        let sample = Sample::read(at, text);
        if let Some(before) = self.samples.back() {
            if sample.at <= before.at {
                return;
            }
            self.newest += 1;
            let point = Point { number: self.newest, unix_ms, ..Compared::new(&sample, before).point() };
            self.points.push_back(point);
            if self.points.len() > MOST_POINTS {
                self.points.pop_front();
            }
        }
        self.samples.push_back(sample);
        self.thin(at);
    }

    /// Drops readings that are too old, or too close to another old one.
    fn thin(&mut self, now: Duration) {
        while self.samples.len() > MOST_SAMPLES
            || self.samples.front().is_some_and(|oldest| oldest.at + REACH + STEP < now)
        {
            self.samples.pop_front();
        }
        // Only the reading that has just become old can be too close: all before it have been looked at.
        let old = |sample: &Sample| sample.at + RECENT < now;
        let Some(at) = self.samples.iter().rposition(old) else { return };
        if at > 0 && self.samples[at].at > self.stays {
            if self.samples[at].at < self.stays + STEP {
                self.samples.remove(at);
            } else {
                self.stays = self.samples[at].at;
            }
        }
    }

    /// What the dashboard shows. Version, generation, memory and the like are the caller's to fill in.
    pub fn data(&self, query: &Query) -> Data {
        let mut data = Data { window_s: query.window.as_secs(), newest: self.newest, ..Data::default() };
        let known = self.points.partition_point(|point| point.number <= query.since);
        // A page that knows more than there is has been open since before a restart.
        let known = if query.since > self.newest { 0 } else { known };
        data.points = self.points.iter().skip(known).cloned().collect();
        let Some(now) = self.samples.back() else { return data };
        let start = now.at.saturating_sub(query.window);
        // The youngest that covers the window, else the oldest.
        let from = self.samples.partition_point(|sample| sample.at <= start).saturating_sub(1);
        let compared = Compared::new(now, &self.samples[from]);
        data.covers_s = compared.seconds();
        data.uptime_s = now.at.as_secs_f64();
        data.server = compared.server();
        data.routes = compared.routes();
        data.upstreams = compared.upstreams();
        data.caches = compared.caches();
        data.models = compared.models();
        data.left_out = now.left_out;
        if query.series {
            (data.route_series, data.upstream_series) = self.series();
        }
        data
    }

    fn series(&self) -> (Option<Vec<RouteSeries>>, Option<Vec<UpstreamSeries>>) {
        let Some(now) = self.samples.back() else { return (None, None) };
        let mut routes: Vec<RouteSeries> = Vec::with_capacity(now.routes.len());
        let mut upstreams: Vec<UpstreamSeries> = Vec::with_capacity(now.upstreams.len());
        let mut steps: Vec<&Sample> = Vec::new();
        for sample in &self.samples {
            if steps.last().is_none_or(|last| last.at + STEP <= sample.at) {
                steps.push(sample);
            }
        }
        for pair in steps.windows(2) {
            let compared = Compared::new(pair[1], pair[0]);
            for route in compared.routes() {
                let at = routes.iter().position(|row| row.method == route.method && row.route == route.route);
                let at = at.unwrap_or_else(|| {
                    let new = RouteSeries { method: route.method, route: route.route, ..RouteSeries::default() };
                    routes.push(new);
                    routes.len() - 1
                });
                routes[at].per_s.push(route.per_s);
                routes[at].p99_ms.push(route.latency.p99_ms);
            }
            for upstream in compared.upstreams() {
                let at = upstreams.iter().position(|row| row.name == upstream.name);
                let at = at.unwrap_or_else(|| {
                    upstreams.push(UpstreamSeries { name: upstream.name, ..UpstreamSeries::default() });
                    upstreams.len() - 1
                });
                upstreams[at].in_flight.push(upstream.in_flight);
                upstreams[at].p99_ms.push(upstream.latency.p99_ms);
            }
        }
        (Some(routes), Some(upstreams))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Query = Query { since: 0, window: Duration::from_secs(60), series: true };

    fn text(requests: u64) -> String {
        let bucket = |le: &str, count| {
            format!(
                "fanin_request_duration_seconds_bucket{{le=\"{le}\",method=\"GET\",route=\"/\"}} {count}\n\
                 fanin_upstream_seconds_bucket{{le=\"{le}\",upstream=\"catalog\"}} {count}\n"
            )
        };
        format!(
            "fanin_requests_total{{method=\"GET\",route=\"/\",status=\"2xx\"}} {requests}\n\
             fanin_requests_total{{method=\"GET\",route=\"/\",status=\"5xx\"}} {requests}\n\
             fanin_requests_refused_total{{method=\"GET\",route=\"/\",reason=\"queueing\"}} {requests}\n\
             fanin_request_duration_seconds_sum{{method=\"GET\",route=\"/\"}} {}\n\
             fanin_upstream_calls_total{{upstream=\"catalog\",outcome=\"timeout\"}} {requests}\n\
             fanin_upstream_limit{{upstream=\"catalog\"}} 9223372036854775807\n\
             fanin_upstream_breaker{{upstream=\"catalog\"}} 1\n\
             fanin_cache_hits_total{{upstream=\"catalog\",operation=\"products\"}} {}\n\
             fanin_cache_misses_total{{upstream=\"catalog\",operation=\"products\"}} {requests}\n\
             {}{}",
            requests as f64 * 0.05,
            requests * 3,
            bucket("0.1", requests),
            bucket("+Inf", requests)
        )
    }

    fn history(seconds: u64) -> History {
        let mut history = History::default();
        (0..=seconds).for_each(|second| history.add(Duration::from_secs(second), second * 1000, &text(second * 10)));
        history
    }

    #[test]
    fn rates_and_latencies_are_those_of_the_window() {
        let data = history(120).data(&MINUTE);
        let route = &data.routes[0];
        assert_eq!((route.per_s, route.good_per_s, route.failed_per_s), (20.0, 10.0, 0.0));
        assert_eq!(route.refused_per_s["queueing"], 10.0);
        assert_eq!((route.latency.p50_ms, route.latency.p99_ms), (Some(50.0), Some(99.0)));
        let upstream = &data.upstreams[0];
        assert_eq!((upstream.per_s, upstream.failed_per_s, upstream.limit), (10.0, 10.0, None));
        assert_eq!(upstream.breaker, "open");
        assert_eq!(data.caches[0].hit_ratio, Some(0.75));
        assert_eq!(data.points.len(), 120);
        assert_eq!(data.points[7].request_seconds_per_s, 0.5);
        assert!(data.covers_s >= 60.0 && data.covers_s < 71.0, "{}", data.covers_s);
    }

    #[test]
    fn a_page_gets_only_the_points_that_it_lacks() {
        let history = history(30);
        let ask = |since| history.data(&Query { since, series: false, ..MINUTE });
        assert_eq!(ask(28).points.iter().map(|point| point.number).collect::<Vec<_>>(), [29, 30]);
        assert!(ask(30).points.is_empty());
        assert_eq!(ask(1000).points.len(), 30, "it was open before a restart");
        assert!(ask(0).route_series.is_none());
    }

    #[test]
    fn a_long_history_stays_bounded_and_reaches_back_a_quarter_of_an_hour() {
        let history = history(5000);
        assert_eq!(history.points.len(), MOST_POINTS);
        assert!(history.samples.len() <= MOST_SAMPLES, "{}", history.samples.len());
        let data = history.data(&Query { window: REACH, ..MINUTE });
        assert!((900.0..921.0).contains(&data.covers_s), "{}", data.covers_s);
        assert_eq!(data.routes[0].per_s, 20.0);
        let series = &data.route_series.expect("requested")[0];
        assert!(series.per_s.len() >= 80, "{}", series.per_s.len());
        assert!(series.per_s.iter().all(|rate| *rate == 20.0), "{:?}", series.per_s);
    }

    #[test]
    fn an_empty_history_has_empty_data() {
        let data = History::default().data(&MINUTE);
        assert_eq!((data.points.len(), data.routes.len(), data.newest), (0, 0, 0));
        let first = history(0).data(&MINUTE);
        assert_eq!((first.routes[0].per_s, first.covers_s), (0.0, 0.0));
    }

    #[test]
    fn rows_are_bounded() {
        let text: String = (0..1000).map(|n| format!("fanin_upstream_sent_total{{upstream=\"u{n}\"}} 1\n")).collect();
        let mut history = History::default();
        history.add(Duration::from_secs(1), 0, &text);
        let data = history.data(&MINUTE);
        assert_eq!((data.upstreams.len(), data.left_out), (250, 750));
    }

    #[test]
    fn queries_have_defaults() {
        let query = Query::parse("since=7&window=99999&series=1");
        assert_eq!((query.since, query.window, query.series), (7, REACH, true));
        let query = Query::parse("since=x&other");
        assert_eq!((query.since, query.window.as_secs(), query.series), (0, 60, false));
    }
}
