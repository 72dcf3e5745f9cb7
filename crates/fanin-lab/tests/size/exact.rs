//! The figures are those of a count by brute force.

use fanin_lab::size::{Options, Report, Resolution, Stamps, Why, size};
use proptest::prelude::*;

use crate::logs::{DAY, Form, Request, count, log, quantile, size_text, write};

const EXACT: [Form; 4] = [Form::Fanin, Form::Nginx, Form::Jetty, Form::Plain];

/// Checks everything that a brute-force count can tell.
fn check(report: &Report, requests: &[Request]) -> Result<(), TestCaseError> {
    let counts = count(requests);
    prop_assert!(report.in_progress.exact);
    for (level, truth) in [
        (report.in_progress.p50, quantile(&counts, 0.5)),
        (report.in_progress.p99, quantile(&counts, 0.99)),
        (report.in_progress.max, counts.iter().copied().max().unwrap_or(0)),
    ] {
        prop_assert_eq!((level.at_least, level.value, level.at_most), (truth, truth, truth));
    }
    let busy: i64 = requests.iter().map(|request| request.length).sum();
    prop_assert_eq!(report.wall_seconds, counts.len() as f64 / 1e3);
    if !counts.is_empty() {
        prop_assert!((report.per_second.mean - busy as f64 / counts.len() as f64).abs() < 1e-9);
    }
    let first = requests.iter().filter(|request| request.length > 0).map(|request| request.start).min().unwrap_or(0);
    let mut seconds = std::collections::HashMap::<i64, u64>::new();
    for (at, count) in counts.iter().enumerate() {
        *seconds.entry((first + at as i64) / 1000).or_default() += count;
    }
    prop_assert_eq!(report.per_second.peak, seconds.values().copied().max().unwrap_or(0) as f64 / 1e3);
    prop_assert_eq!(report.requests, requests.len() as u64);
    Ok(())
}

fn options(stamps: Stamps) -> Options {
    Options { stamps: Some(stamps), growth: 1.0, slow: 1.0, ..Options::default() }
}

fn requests() -> impl Strategy<Value = Vec<Request>> {
    let length = prop_oneof![4 => 0..500i64, 1 => 0..6_000i64];
    let request = (40_000_000..40_012_000i64, length).prop_map(|(start, length)| Request { start, length });
    prop::collection::vec(request, 1..150)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn milliseconds_are_exact_in_every_form_and_with_both_stamps(requests in requests(), form in 0..4usize, ends: bool) {
        let stamps = if ends { Stamps::End } else { Stamps::Start };
        let report = size_text(log(EXACT[form], &requests, ends), &options(stamps)).unwrap();
        check(&report, &requests)?;
        prop_assert_eq!(u64::from(report.need.peak), report.in_progress.max.value.max(1));
    }

    #[test]
    fn the_order_of_lines_does_not_matter(requests in requests()) {
        let sorted = log(Form::Fanin, &requests, false);
        let mut lines: Vec<&str> = sorted.lines().collect();
        lines.sort_by_key(|line| line.bytes().map(u64::from).sum::<u64>() % 97);
        let report = size_text(lines.join("\n"), &options(Stamps::Start)).unwrap();
        check(&report, &requests)?;
    }

    #[test]
    fn whole_seconds_bound_the_truth(requests in requests(), ends: bool) {
        let form = if ends { Form::NginxSeconds } else { Form::PlainSeconds };
        let stamps = if ends { Stamps::End } else { Stamps::Start };
        let report = size_text(log(form, &requests, ends), &options(stamps)).unwrap();
        prop_assert_eq!(report.files[0].resolution, Resolution::WholeSeconds);
        prop_assert!(!report.in_progress.exact);
        let truth = count(&requests).into_iter().max().unwrap_or(0);
        let max = report.in_progress.max;
        prop_assert!(max.at_least <= truth && truth <= max.at_most, "{} {:?}", truth, max);
        for level in [report.in_progress.p50, report.in_progress.p99, max] {
            prop_assert!(level.at_least <= level.value && level.value <= level.at_most);
        }
    }
}

#[test]
fn a_wave_of_known_height() {
    // Every 100 ms, ten requests of 350 ms: 40 at once for the second half of the last overlap, 30 between.
    let requests: Vec<Request> = (0..600)
        .flat_map(|step| (0..10).map(move |_| Request { start: 36_000_000 + step * 100, length: 350 }))
        .collect();
    for (form, ends) in [(Form::Fanin, false), (Form::Nginx, true), (Form::Jetty, false), (Form::Plain, true)] {
        // By default stamps are taken for what the form's writers stamp.
        let options = Options { growth: 1.0, slow: 1.0, ..Options::default() };
        let report = size_text(log(form, &requests, ends), &options).unwrap();
        assert_eq!(report.in_progress.max.value, 40, "{form:?}");
        assert!((report.per_second.p50 - 35.0).abs() < 0.1);
        assert_eq!(report.per_second.peak, 35.0);
        assert!((report.burst_factor - 40.0 / 35.0).abs() < 1e-9);
        assert_eq!(report.from, if form == Form::Plain { "10:00:00.000" } else { "2026-03-01T10:00:00.000Z" });
    }
}

#[test]
fn growth_slowness_and_servers() {
    // One request of 100 ms every 100 ms: one in progress. Twice the requests of twice the length: four, two on each of
    // two servers.
    let requests: Vec<Request> =
        (0..1000).map(|step| Request { start: 36_000_000 + step * 100, length: 100 }).collect();
    let log = log(Form::Fanin, &requests, false);
    let need = |growth, slow, servers| {
        let options = Options { growth, slow, servers, size: Some(1), may_wait: 0.0, ..Options::default() };
        size_text(&log, &options).unwrap().need
    };
    assert_eq!(
        [need(1.0, 1.0, 1).peak, need(2.0, 2.0, 1).peak, need(2.0, 2.0, 2).peak, need(2.0, 2.0, 4).peak],
        [1, 4, 2, 1]
    );
    // One request-second in each second by stamp.
    let rule =
        |servers| need(1.0, 1.0, servers).sizes.iter().find(|size| size.why.contains(&Why::Rule)).unwrap().threads;
    assert_eq!([rule(1), rule(2), rule(3)], [16, 8, 6]);
    let overloaded = need(1.0, 2.0, 1);
    let chosen = overloaded.sizes.iter().find(|size| size.threads == 1).unwrap();
    // Each waits 100 ms longer than the one before: the last one 99.9 s, half of that on average.
    assert_eq!(chosen.simulated.max_ms, 99_900.0);
    assert!((chosen.simulated.mean_ms - 49_950.0).abs() < 1e-6);
    assert_eq!((chosen.theory.overloaded, chosen.theory.mean_ms), (1.0, None));
    assert_eq!(overloaded.coroutines.bytes, 2 * (16 << 10));
}

#[test]
fn several_logs_are_one_tier() {
    let dir = tempfile::tempdir().unwrap();
    let one = [Request { start: 0, length: 500 }];
    let two = [Request { start: 250, length: 500 }];
    let logs =
        [write(dir.path(), "a", log(Form::Fanin, &one, false)), write(dir.path(), "b", log(Form::Nginx, &two, true))];
    let report = size(&logs, &Options::default(), |_| ()).unwrap();
    assert_eq!((report.in_progress.max.value, report.requests, report.wall_seconds), (2, 2, 0.75));
    assert_eq!(report.points[0].at, DAY / 1000);
}

#[test]
fn midnight_is_passed_without_dates() {
    let text =
        "23:59:59.900 100 ms GET /\n00:00:00.100 300 ms GET /\n23:59:59.950 1 ms GET /\n00:00:00.200 1 ms GET /\n";
    let report = size_text(text, &Options::default()).unwrap();
    assert_eq!((report.from.as_str(), report.to.as_str()), ("23:59:59.800", "1d 00:00:00.200"));
    assert_eq!(report.in_progress.max.value, 2);
}

#[test]
fn a_time_can_be_cut_out() {
    let requests: Vec<Request> = (0..100).map(|at| Request { start: at * 1000, length: 10 }).collect();
    let base = DAY * 1000;
    let options = Options { from: Some(base + 10_000_000), to: Some(base + 20_000_000), ..Options::default() };
    let report = size_text(log(Form::Fanin, &requests, false), &options).unwrap();
    assert_eq!((report.requests, report.files[0].outside), (10, 90));
    assert_eq!(report.from, "2026-03-01T00:00:10.000Z");
}

#[test]
fn long_requests_and_large_tiers_are_not_clamped() {
    // 3,000 in progress at any time, each for 3 s.
    let requests: Vec<Request> =
        (0..20_000).map(|number| Request { start: 36_000_000 + number, length: 3000 }).collect();
    let options = Options { growth: 1.0, slow: 1.0, size: Some(1000), ..Options::default() };
    let report = size_text(log(Form::Fanin, &requests, false), &options).unwrap();
    let close = |value: f64, truth: f64| (value - truth).abs() <= truth * 0.002;
    assert!(close(report.length.p50_ms, 3000.0) && close(report.length.p99_ms, 3000.0), "{:?}", report.length);
    assert!(close(report.per_second.p50, 3000.0) && close(report.per_second.p99, 3000.0), "{:?}", report.per_second);
    // A thousand threads serve a third of the load: the last of 20,000 waits 40 s.
    let waits = report.need.sizes.iter().find(|size| size.threads == 1000).unwrap().simulated;
    assert!(close(waits.p99_ms, 38_000.0) || waits.p99_ms > 37_000.0, "{waits:?}");
}
