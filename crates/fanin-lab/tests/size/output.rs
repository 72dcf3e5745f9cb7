//! The three outputs say the same.

use std::path::PathBuf;

use fanin_lab::size::{Format, Options, SizeArgs, SizeError, run, svg, text};

use crate::logs::{Form, Request, log, size_text};

fn requests() -> Vec<Request> {
    // Bursts of five every second, and a long one.
    let bursts =
        (0..120).flat_map(|second| (0..5).map(move |_| Request { start: 50_400_000 + second * 1000, length: 400 }));
    bursts.chain([Request { start: 50_410_000, length: 30_000 }]).collect()
}

#[test]
fn text_names_all_figures() {
    let options = Options { servers: 2, size: Some(3), waiting: Some(1), ..Options::default() };
    let report = size_text(log(Form::Nginx, &requests(), true) + "rubbish\n", &options).unwrap();
    let text = text(&report).to_string();
    for part in [
        "combined, latency with decimals (nginx); stamps with fractions of a second, taken as the request's end",
        "602 lines, 601 requests, 1 broken",
        "line 602: not of this form: rubbish",
        "request-seconds per wall second",
        "burst factor 2.00: 6 in progress at once over 3.00 request-seconds in the busiest second",
        "Needed on each of 2 servers for x2 the requests, each x2 as long:",
        "at most 1 wait on a server; the next is refused",
        "chosen",
        "rule of thumb",
        "coroutines at once",
        "refused",
    ] {
        assert!(text.contains(part), "no `{part}` in:\n{text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 160 || line.contains("access.log")), "{text}");
}

#[test]
fn whole_seconds_are_said() {
    let report = size_text(log(Form::NginxSeconds, &requests(), true), &Options::default()).unwrap();
    let text = text(&report).to_string();
    assert!(text.contains("warning: stamps are in whole seconds") && text.contains("surely between"), "{text}");
}

#[test]
fn json_has_the_figures() {
    let report = size_text(log(Form::Fanin, &requests(), false), &Options::default()).unwrap();
    let json: serde_json::Value = serde_json::from_str(&serde_json::to_string(&report).unwrap()).unwrap();
    assert_eq!(json["in_progress"]["max"], serde_json::json!({"value": 6, "at_least": 6, "at_most": 6}));
    assert_eq!(json["per_second"]["peak"], 3.0);
    assert_eq!(json["files"][0]["format"], "fanin");
    assert_eq!(json["files"][0]["stamps"], "start");
    let sizes = json["need"]["sizes"].as_array().unwrap();
    assert!(sizes.iter().any(|size| size["why"].as_array().unwrap().contains(&"recommended".into())));
    assert!(sizes.windows(2).all(|pair| pair[0]["threads"].as_u64() < pair[1]["threads"].as_u64()));
}

#[test]
fn the_plot_is_an_svg_of_bounded_size() {
    let requests: Vec<Request> = (0..40_000).map(|at| Request { start: at * 1000, length: 1 + at % 3000 }).collect();
    let report = size_text(log(Form::Fanin, &requests, false), &Options::default()).unwrap();
    let svg = svg(&report);
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
    assert!(svg.contains("most in progress at once") && svg.contains("40000 requests"));
    assert!(report.points.len() <= 1200 && svg.len() < 200_000, "{} {}", report.points.len(), svg.len());
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_one_error() {
    let dir = tempfile::tempdir().unwrap();
    let log = crate::logs::write(dir.path(), "access.log", log(Form::Fanin, &requests(), false));
    let Options { growth, slow, servers, may_wait, stack, flow_memory, max_requests, .. } = Options::default();
    let args = SizeArgs {
        logs: vec![log],
        format: Some(Format::Fanin),
        stamps: None,
        unit: None,
        from: None,
        to: None,
        growth,
        slow,
        servers,
        size: None,
        waiting: None,
        may_wait,
        stack,
        flow_memory,
        max_requests,
        json: false,
        svg: Some(PathBuf::from("/dev/full")),
    };
    let error = run(args).unwrap_err();
    assert!(matches!(&error, SizeError::Write { .. }) && error.to_string() == "/dev/full: cannot write", "{error}");
}

#[test]
fn whole_seconds_put_a_range_into_the_recommendation() {
    // Bursts of 95 requests of 300 ms, each burst at one moment of a second.
    let requests: Vec<Request> = (0..60)
        .flat_map(|second| (0..95).map(move |_| Request { start: 50_400_000 + second * 1000 + 400, length: 300 }))
        .collect();
    let options = Options { growth: 1.0, slow: 1.0, ..Options::default() };
    let exact = size_text(log(Form::Nginx, &requests, true), &options).unwrap();
    assert_eq!((exact.need.threads, exact.need.threads_at_least, exact.need.threads_at_most), (95, 95, 95));
    let report = size_text(log(Form::NginxSeconds, &requests, true), &options).unwrap();
    let need = &report.need;
    assert!(need.threads < 95, "the guess is too low: {}", need.threads);
    assert!((need.threads_at_least..=need.threads_at_most).contains(&95), "{need:?}");
    let text = text(&report).to_string();
    let headline =
        format!("  {} to {} threads (best guess {})", need.threads_at_least, need.threads_at_most, need.threads);
    assert!(text.contains(&headline), "no `{headline}` in:\n{text}");
}
