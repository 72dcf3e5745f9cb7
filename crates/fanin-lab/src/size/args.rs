//! The command line of `fanin size`.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::format::stamp;
use super::{Format, MAX_REQUESTS, Options, SizeError, Stamps, Unit, size, svg, text};

/// Compute from access logs how many threads, or how much memory, a tier needs
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Examples:\n  \
    fanin size access.log                            for twice the load with slow backends\n  \
    fanin size --servers 4 --svg load.svg *.log.gz   shared by four servers; with a plot\n  \
    fanin size --size 600 --waiting 200 access.log   try 600 threads and a queue of 200\n  \
    zstdcat access.log.zst | fanin size --json -     from standard input, for programs\n\n\
    Fanin detects the format of each log, also with gzip: Fanin's JSON; nginx combined with\n\
    $request_time; Jetty, Apache and NCSA with a latency; `15:04:00 400 ms GET /path`.\n\
    All logs of a command are one tier.\n\
    Exit status: 0 with a report (warnings and broken lines are allowed), 1 without, 2 for a wrong\n\
    command line.")]
pub struct SizeArgs {
    /// Access logs; `-` is standard input
    #[arg(required = true, value_name = "LOG")]
    pub logs: Vec<PathBuf>,
    /// Format of all logs [default: detected]
    #[arg(long, value_enum)]
    pub format: Option<Format>,
    /// What a timestamp marks [default: start for fanin and ncsa, end for nginx and plain]
    #[arg(long, value_enum)]
    pub stamps: Option<Stamps>,
    /// Unit of nginx and ncsa latencies [default: s for nginx, ms for ncsa; Apache's %D is us]
    #[arg(long, value_enum)]
    pub unit: Option<Unit>,
    /// Only requests with a timestamp at or after this: 2026-01-31T15:04:05Z, or 15:04:05 for logs without dates
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub from: Option<i64>,
    /// Only requests with a timestamp before this
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub to: Option<i64>,
    /// Size for this many times the requests
    #[arg(long, value_name = "FACTOR", default_value_t = 2.0)]
    pub growth: f64,
    /// Size for requests that take this many times as long, because backends are slow
    #[arg(long, value_name = "FACTOR", default_value_t = 2.0)]
    pub slow: f64,
    /// Servers that share the load evenly
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub servers: u32,
    /// Try this many threads on each server
    #[arg(long, value_name = "N")]
    pub size: Option<u32>,
    /// Let at most this many requests wait on each server, refuse the rest [default: all wait]
    #[arg(long, value_name = "N")]
    pub waiting: Option<u32>,
    /// Share of requests that may wait in the recommended size
    #[arg(long, value_name = "SHARE", default_value_t = 0.001)]
    pub may_wait: f64,
    /// Stack of a thread (virtual memory)
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = fanin_config::parse_size)]
    pub stack: u64,
    /// Memory of one coroutine in progress, with its request and answers
    #[arg(long, value_name = "SIZE", default_value = "16KiB", value_parser = fanin_config::parse_size)]
    pub flow_memory: u64,
    /// Most requests to hold in memory, 16 bytes each
    #[arg(long, value_name = "N", default_value_t = MAX_REQUESTS)]
    pub max_requests: usize,
    /// Print one JSON object to standard output
    #[arg(long)]
    pub json: bool,
    /// Plot the requests in progress over time to this file
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

impl SizeArgs {
    /// The options of the library's function.
    pub fn options(&self) -> Options {
        Options {
            format: self.format,
            stamps: self.stamps,
            unit: self.unit,
            from: self.from,
            to: self.to,
            growth: self.growth,
            slow: self.slow,
            servers: self.servers,
            size: self.size,
            waiting: self.waiting,
            may_wait: self.may_wait,
            stack: self.stack,
            flow_memory: self.flow_memory,
            max_requests: self.max_requests,
        }
    }
}

/// Runs `fanin size`: the report goes to standard output, a progress bar to standard error if that is a terminal.
///
/// # Errors
/// Those of [`size`], and a report or plot that cannot be written. A reader of standard output that goes away is no error.
pub fn run(args: SizeArgs) -> Result<ExitCode, SizeError> {
    let bar = progress(&args.logs);
    let result = size(&args.logs, &args.options(), |bytes| bar.set_position(bytes));
    bar.finish_and_clear();
    let report = result?;
    if let Some(path) = &args.svg {
        std::fs::write(path, svg(&report)).map_err(|source| SizeError::Write { file: path.clone(), source })?;
    }
    let shown = if args.json {
        // Only maps with keys that are no strings fail, and the report has no maps.
        serde_json::to_string_pretty(&report).map_err(io::Error::from).map(|json| json + "\n")
    } else {
        Ok(text(&report).to_string())
    };
    let mut to = io::stdout().lock();
    match shown.and_then(|shown| to.write_all(shown.as_bytes()).and_then(|()| to.flush())) {
        Err(source) if source.kind() != io::ErrorKind::BrokenPipe => {
            Err(SizeError::Write { file: PathBuf::from("standard output"), source })
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// A bar if all sizes are known, else a count of bytes. Draws nothing where standard error is no terminal.
fn progress(logs: &[PathBuf]) -> ProgressBar {
    let length = |log: &PathBuf| {
        let about = (log != Path::new("-")).then(|| std::fs::metadata(log).ok()).flatten()?;
        about.is_file().then_some(about.len())
    };
    let total: Option<u64> = logs.iter().map(length).sum();
    let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr());
    let template = if total.is_some() { "{bar:40} {bytes}/{total_bytes} {eta}" } else { "{spinner} {bytes} {elapsed}" };
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// A time as `--from` takes it, in microseconds.
fn time(text: &str) -> Result<i64, String> {
    let read = stamp::iso(text.as_bytes()).or_else(|| stamp::clock(text.as_bytes()));
    match read {
        Some((stamp, [])) => Ok(stamp.micros),
        _ => Err("not a time; write 2026-01-31T15:04:05Z, or 15:04:05 for logs without dates".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::{Args, Command, FromArgMatches};

    use super::*;

    fn parse(args: &[&str]) -> Result<SizeArgs, clap::Error> {
        let command = SizeArgs::augment_args(Command::new("size"));
        command.try_get_matches_from(args).and_then(|matches| SizeArgs::from_arg_matches(&matches))
    }

    #[test]
    fn no_options_are_the_default() {
        SizeArgs::augment_args(Command::new("size")).debug_assert();
        assert_eq!(parse(&["size", "a.log"]).unwrap().options(), Options::default());
    }

    #[test]
    fn times_and_sizes_are_read() {
        let args =
            parse(&["size", "-", "--from", "15:04:05", "--to", "1970-01-02T00:00:00Z", "--stack", "512KiB"]).unwrap();
        assert_eq!((args.from, args.to, args.stack), (Some(54_245_000_000), Some(86_400_000_000), 512 << 10));
        for wrong in [
            &["size"][..],
            &["size", "a", "--from", "noon"],
            &["size", "a", "--from", "15:04:05 "],
            &["size", "a", "--stack", "x"],
        ] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
