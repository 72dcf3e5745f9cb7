//! What is wrong with a log is one clear error, or one warning and a report.

use std::error::Error;
use std::io::Write;
use std::path::PathBuf;

use fanin_lab::size::{Options, SizeError, Stamps, size, text};
use flate2::{Compression, write::GzEncoder};

use crate::logs::{Form, Request, line, log, size_text, write};

fn error(text: impl AsRef<[u8]>) -> String {
    let error = size_text(text, &Options::default()).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("access.log"), "{text}");
    text
}

fn gzip(text: &str) -> Vec<u8> {
    let mut to = GzEncoder::new(Vec::new(), Compression::fast());
    to.write_all(text.as_bytes()).unwrap();
    to.finish().unwrap()
}

fn steady(lines: i64) -> String {
    let requests: Vec<Request> = (0..lines).map(|at| Request { start: at * 10, length: 25 }).collect();
    log(Form::Fanin, &requests, false)
}

#[test]
fn empty_logs() {
    assert!(error("").ends_with("no requests to size by"));
    assert!(error("\n\r\n  \n").ends_with("no requests to size by"));
    let dir = tempfile::tempdir().unwrap();
    let logs = [write(dir.path(), "a", ""), write(dir.path(), "b", steady(3))];
    let report = size(&logs, &Options::default(), |_| ()).unwrap();
    assert_eq!(report.warnings, [format!("{}: empty", logs[0].display())]);
    assert_eq!(report.requests, 3);
}

#[test]
fn binary_and_compressed_files() {
    assert!(error(b"\x7fELF\x02\x01\x01\0\0\0\0\0").ends_with("binary, not an access log"));
    assert!(error(b"\x28\xb5\x2f\xfd\x04\x58").contains("compressed with zstd; use `zstdcat"));
    assert!(error(gzip("\0\0\0")).ends_with("binary, not an access log"));
}

#[test]
fn logs_of_another_form() {
    let text = error("2026-01-01 INFO started\n2026-01-01 WARN \x1b[31mred\n");
    assert!(text.contains("none of the first 2 lines") && text.contains("line 1: 2026-01-01 INFO started"), "{text}");
    let text = error("h - - [01/Mar/2026:10:00:00 +0000] \"GET / HTTP/1.1\" 200 17 \"-\" \"x\"\n");
    assert!(text.contains("the log must say how long each request took"), "{text}");
}

#[test]
fn files_that_cannot_be_read() {
    let gone = size(&[PathBuf::from("no/such.log")], &Options::default(), |_| ()).unwrap_err();
    assert!(
        matches!(gone, SizeError::Open { .. })
            && gone.to_string() == "no/such.log: cannot open"
            && gone.source().is_some()
    );
    let dir = tempfile::tempdir().unwrap();
    let folder = size(&[dir.path().to_owned()], &Options::default(), |_| ()).unwrap_err();
    assert!(matches!(folder, SizeError::Read { .. } | SizeError::Open { .. }), "{folder}");
}

#[test]
fn gzip_in_parts_and_cut() {
    let text = steady(5_000);
    let (head, tail) = text.split_at(text.len() / 2);
    let whole = [gzip(head), gzip(tail)].concat();
    let report = size_text(&whole, &Options::default()).unwrap();
    assert_eq!((report.requests, report.warnings.len()), (5_000, 0));
    let cut = size_text(&whole[..whole.len() - 200], &Options::default()).unwrap();
    assert!(cut.requests > 2_500 && cut.requests < 5_000);
    assert!(cut.warnings.len() == 1 && cut.warnings[0].contains("cannot be read past line"), "{:?}", cut.warnings);
    let start = size_text(&whole[..11], &Options::default()).unwrap_err();
    assert!(matches!(start, SizeError::Read { line: 0, .. }), "{start:?}");
}

#[test]
fn broken_lines_are_counted_and_shown() {
    let mut text = steady(20);
    let good = line(Form::Fanin, 1, 1);
    text.insert_str(0, "\n\x1b[2J{\n");
    text.push_str(&format!("{}\n{}\n{}\n", &good[..60], good.replace("1.000", "1e99"), "x".repeat(300_000)));
    for _ in 0..5 {
        text.push_str("rubbish\n");
    }
    text.push_str(&good);
    let report = size_text(text, &Options::default()).unwrap();
    let file = &report.files[0];
    assert_eq!((file.requests, file.broken, file.lines), (21, 9, 30));
    let shown: Vec<(u64, &str)> = file.first_broken.iter().map(|line| (line.line, line.reason)).collect();
    assert_eq!(
        shown,
        [
            (2, "not of this form"),
            (23, "not of this form"),
            (24, "a latency of over 30 days"),
            (25, "longer than 256 KiB"),
            (26, "not of this form")
        ]
    );
    assert_eq!(file.first_broken[0].text, "\u{fffd}[2J{");
    assert_eq!(file.first_broken[3].text.chars().count(), 101);
}

#[test]
fn mostly_broken_is_said() {
    let report = size_text(steady(2) + "a\nb\nc\n", &Options::default()).unwrap();
    assert!(report.warnings[0].contains("3 of 5 lines are broken"), "{:?}", report.warnings);
}

#[test]
fn lines_out_of_order() {
    let sorted = steady(100);
    let mut lines: Vec<&str> = sorted.lines().collect();
    lines.swap(10, 20);
    let report = size_text(lines.join("\n"), &Options::default()).unwrap();
    assert_eq!((report.files[0].out_of_order, report.files[0].furthest_behind), (10, 0.1));
    assert!(text(&report).to_string().contains("10 out of order by up to 0.100 s (sorted)"));
    assert_eq!(report.warnings, Vec::<String>::new());
    assert_eq!(report.in_progress, size_text(&sorted, &Options::default()).unwrap().in_progress);
    let requests: Vec<Request> = (0..100).map(|at| Request { start: at % 10 * 3_000, length: 10 }).collect();
    let shuffled: String =
        requests.iter().map(|request| line(Form::Fanin, request.start, request.length) + "\n").collect();
    let report = size_text(shuffled, &Options::default()).unwrap();
    assert!(report.warnings[0].contains("81 lines out of order, by up to 27.0 s"), "{:?}", report.warnings);
}

#[test]
fn clocks_that_jump() {
    let at = |hour: i64| (0..50).map(move |step| Request { start: hour * 3_600_000 + step * 100, length: 10 });
    let write = |hours: &[i64]| -> String {
        hours.iter().map(|hour| log(Form::Fanin, &at(*hour).collect::<Vec<_>>(), false)).collect()
    };
    let back = size_text(write(&[12, 11]), &Options::default()).unwrap();
    assert!(back.warnings[0].contains("line 51: the clock falls back by 3605 s"), "{:?}", back.warnings);
    let ahead = size_text(write(&[10, 13]), &Options::default()).unwrap();
    assert!(ahead.warnings[0].contains("line 51: nothing for 10795 s"), "{:?}", ahead.warnings);
    assert!(ahead.warnings[1].contains("quiet times"), "{:?}", ahead.warnings);
    assert!((ahead.wall_seconds - 9.82).abs() < 1e-9 && (ahead.quiet_seconds - 10_795.09).abs() < 1e-6);
    // One line of 1970 does not make a log of half a century.
    let astray = write(&[10]) + &line(Form::Fanin, 0, 1).replace("2026-03", "1970-01") + "\n" + &write(&[12]);
    let astray = size_text(astray, &Options::default()).unwrap();
    assert!(astray.wall_seconds < 20.0, "{}", astray.wall_seconds);
    let said = "1 lines with a time far from that of the lines around";
    assert!(astray.warnings.iter().any(|warning| warning.contains(said)), "{:?}", astray.warnings);
}

#[test]
fn stamps_read_the_wrong_way_are_noticed() {
    let requests: Vec<Request> =
        (0..500).map(|at| Request { start: 40_000 + at * 100, length: at % 13 * 200 }).collect();
    let report = size_text(log(Form::Fanin, &requests, true), &Options::default()).unwrap();
    assert!(report.warnings.iter().any(|warning| warning.contains("speaks for --stamps end")), "{:?}", report.warnings);
    let report = size_text(log(Form::Nginx, &requests, false), &Options::default()).unwrap();
    assert!(
        report.warnings.iter().any(|warning| warning.contains("speaks for --stamps start")),
        "{:?}",
        report.warnings
    );
    let told = Options { stamps: Some(Stamps::End), ..Options::default() };
    assert_eq!(size_text(log(Form::Fanin, &requests, true), &told).unwrap().warnings, Vec::<String>::new());
}

#[test]
fn microseconds_taken_for_milliseconds_are_noticed() {
    let lines: String = (0..50).map(|at| line(Form::Jetty, 40_000_000 + at, 400_000) + "\n").collect();
    let report = size_text(lines, &Options::default()).unwrap();
    assert!(report.warnings.iter().any(|warning| warning.contains("--unit us")), "{:?}", report.warnings);
}

#[test]
fn dates_do_not_mix() {
    let dir = tempfile::tempdir().unwrap();
    let request = [Request { start: 5000, length: 5 }];
    let logs = [
        write(dir.path(), "dated", log(Form::Fanin, &request, false)),
        write(dir.path(), "undated", log(Form::Plain, &request, true)),
    ];
    let error = size(&logs, &Options::default(), |_| ()).unwrap_err().to_string();
    assert!(error.contains("undated: stamps without a date") && error.contains("dated has dates"), "{error}");
    let cut = Options { from: Some(0), to: Some(1), ..Options::default() };
    let error = size(&logs[..1], &cut, |_| ()).unwrap_err().to_string();
    assert!(error.contains("1 outside of --from and --to"), "{error}");
}

#[test]
fn memory_is_bounded() {
    let options = Options { max_requests: 99, ..Options::default() };
    let error = size_text(steady(100), &options).unwrap_err().to_string();
    assert!(error.contains("access.log:100: more than 99 requests"), "{error}");
    assert!(size_text(steady(99), &options).is_ok());
}

#[test]
fn options_that_make_no_sense() {
    let wrong = [
        ("growth", Options { growth: f64::NAN, ..Options::default() }),
        ("growth", Options { growth: 0.0, ..Options::default() }),
        ("slow", Options { slow: f64::INFINITY, ..Options::default() }),
        ("servers", Options { servers: 0, ..Options::default() }),
        ("size", Options { size: Some(0), ..Options::default() }),
        ("may-wait", Options { may_wait: 1.0, ..Options::default() }),
        ("max-requests", Options { max_requests: 0, ..Options::default() }),
        ("to", Options { from: Some(5), to: Some(5), ..Options::default() }),
    ];
    for (name, options) in wrong {
        assert!(
            matches!(size_text(steady(3), &options), Err(SizeError::Option { option, .. }) if option == name),
            "{name}"
        );
    }
    let twice = size(&["a".into(), "a".into()], &Options::default(), |_| ()).unwrap_err();
    assert_eq!(twice.to_string(), "--LOG: a is given twice");
}

#[test]
fn websockets_hold_no_thread() {
    let text = steady(10) + &line(Form::Fanin, 0, 3_600_000).replace("200", "101");
    let report = size_text(text, &Options::default()).unwrap();
    assert_eq!((report.requests, report.files[0].upgraded), (10, 1));
    assert!(report.warnings[0].contains("status 101"), "{:?}", report.warnings);
}

#[test]
fn requests_of_no_length() {
    let requests: Vec<Request> = (0..10).map(|at| Request { start: at * 100, length: 0 }).collect();
    let report = size_text(log(Form::Fanin, &requests, false), &Options::default()).unwrap();
    assert_eq!((report.in_progress.max.value, report.burst_factor, report.need.peak), (0, 0.0, 1));
    assert!(report.points.is_empty());
    assert!(fanin_lab::size::svg(&report).contains("</svg>"));
}

#[test]
fn lines_with_nuls_are_skipped_and_counted() {
    // What logrotate's copytruncate leaves behind: a hole in the file, which reads as NULs.
    for nuls in [1, 1000, 300 << 10, 900 << 10] {
        let hole = "\0".repeat(nuls);
        for text in [hole.clone() + "\n" + &steady(100), steady(50) + &hole + "\n" + &steady(50), hole + &steady(101)] {
            let report = size_text(text, &Options::default()).unwrap();
            let file = &report.files[0];
            assert_eq!((file.requests, file.broken), (100, 1), "{nuls}");
            let reason = file.first_broken[0].reason;
            assert!(reason.contains("NUL") || reason.contains("longer than 256 KiB"), "{reason}");
        }
    }
}
