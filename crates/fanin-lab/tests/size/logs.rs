//! Synthetic logs whose truth is known.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use fanin_lab::size::{Options, Report, SizeError, size};

/// A request by the millisecond.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    pub start: i64,
    pub length: i64,
}

impl Request {
    pub fn end(self) -> i64 {
        self.start + self.length
    }
}

/// 2026-03-01T00:00:00Z in milliseconds.
pub const DAY: i64 = 1_772_323_200_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Fanin,
    Nginx,
    NginxSeconds,
    Jetty,
    Plain,
    PlainSeconds,
}

/// One line; `stamp` and `length` in milliseconds of 2026-03-01.
pub fn line(form: Form, stamp: i64, length: i64) -> String {
    let (hour, minute, second, milli) = (stamp / 3_600_000, stamp / 60_000 % 60, stamp / 1000 % 60, stamp % 1000);
    let clock = format!("{hour:02}:{minute:02}:{second:02}");
    let head = |fraction: &str| {
        format!("10.0.0.7 - bob [01/Mar/2026:{clock}{fraction} +0000] \"GET /v?a=\\\"b HTTP/1.1\" 200 17 \"-\" \"x\"")
    };
    let (whole, part) = (length / 1000, length % 1000);
    match form {
        Form::Fanin => format!(
            r#"{{"time":"2026-03-01T{clock}.{milli:03}Z","duration_ms":{length}.000,"method":"GET","path":"/v","route":null,"status":200}}"#
        ),
        Form::Nginx => format!("{} {whole}.{part:03}", head(&format!(".{milli:03}"))),
        Form::NginxSeconds => format!("{} {whole}.{part:03}", head("")),
        Form::Jetty => format!("{} {length}", head(&format!(".{milli:03}"))),
        Form::Plain => format!("{clock}.{milli:03} {length} ms GET /vacancies"),
        Form::PlainSeconds => format!("{clock} {length} ms GET /vacancies"),
    }
}

/// All of them in order of their ends, as a server writes them.
pub fn log(form: Form, requests: &[Request], end_stamps: bool) -> String {
    let mut requests = requests.to_vec();
    requests.sort_by_key(|request| request.end());
    let mut text = String::new();
    for request in requests {
        let stamp = if end_stamps { request.end() } else { request.start };
        writeln!(text, "{}", line(form, stamp, request.length)).unwrap();
    }
    text
}

pub fn write(dir: &Path, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
    let path = dir.join(name);
    fs::write(&path, bytes).unwrap();
    path
}

/// Sizes one log.
pub fn size_text(text: impl AsRef<[u8]>, options: &Options) -> Result<Report, SizeError> {
    let dir = tempfile::tempdir().unwrap();
    size(&[write(dir.path(), "access.log", text)], options, |_| ())
}

/// Requests in progress in each millisecond from the first start to the last end, by counting.
pub fn count(requests: &[Request]) -> Vec<u64> {
    let running = requests.iter().filter(|request| request.length > 0);
    let from = running.clone().map(|request| request.start).min().unwrap_or(0);
    let to = running.clone().map(|request| request.end()).max().unwrap_or(0);
    let mut counts = vec![0; (to - from) as usize];
    for request in running {
        for at in request.start..request.end() {
            counts[(at - from) as usize] += 1;
        }
    }
    counts
}

/// The value that this share of the milliseconds does not exceed.
pub fn quantile(counts: &[u64], share: f64) -> u64 {
    let mut sorted = counts.to_vec();
    sorted.sort_unstable();
    let at = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(at.saturating_sub(1)).copied().unwrap_or(0)
}
