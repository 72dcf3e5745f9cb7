//! What can stop a sizing.

use std::io;
use std::path::PathBuf;

/// Why there is no report. Lines that are merely broken never get here: they are counted and shown in the report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SizeError {
    /// A log cannot be opened.
    #[error("{}: cannot open", file.display())]
    Open {
        /// The log.
        file: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A log cannot be read.
    #[error("{}: cannot read{}", file.display(), past(*line))]
    Read {
        /// The log.
        file: PathBuf,
        /// Lines read before.
        line: u64,
        /// What the system or the decompressor said.
        source: io::Error,
    },
    /// A file is no text.
    #[error("{}: {what}", file.display())]
    Binary {
        /// The file.
        file: PathBuf,
        /// What it seems to be, and what to do.
        what: String,
    },
    /// No line at the beginning of a file has a known form.
    #[error(
        "{}: none of the first {lines} lines is of a known form ({reason}); line {number}: {shown}\n  \
         known forms: Fanin's JSON; combined with $request_time at the end; NCSA with a latency at the end; \
         `15:04:00 400 ms GET /path`", file.display()
    )]
    Format {
        /// The file.
        file: PathBuf,
        /// Lines looked at.
        lines: u64,
        /// What the nearest form missed.
        reason: &'static str,
        /// Number of the line shown.
        number: u64,
        /// The beginning of that line.
        shown: String,
    },
    /// No log has a request.
    #[error("{}: no requests to size by{why}", shown(.files))]
    Empty {
        /// The logs.
        files: Vec<PathBuf>,
        /// What was there instead; may be empty.
        why: String,
    },
    /// The logs hold more requests than memory was granted for.
    #[error(
        "{}:{line}: more than {limit} requests; cut out the busiest hours with --from and --to, or raise --max-requests \
         (16 bytes each, twice that while growing)", file.display()
    )]
    TooMany {
        /// The log that went over.
        file: PathBuf,
        /// The line that went over.
        line: u64,
        /// The bound.
        limit: usize,
    },
    /// Logs with and without dates cannot lie on one line of time.
    #[error("{}: stamps without a date, but {} has dates; size them apart", undated.display(), dated.display())]
    Dates {
        /// A log without dates.
        undated: PathBuf,
        /// A log with dates.
        dated: PathBuf,
    },
    /// An option makes no sense.
    #[error("--{option}: {reason}")]
    Option {
        /// The option's name on the command line.
        option: &'static str,
        /// Why.
        reason: String,
    },
    /// The report or the plot cannot be written.
    #[error("{}: cannot write", file.display())]
    Write {
        /// The file, or `standard output`.
        file: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

fn shown(files: &[PathBuf]) -> String {
    let shown: Vec<String> = files.iter().take(3).map(|file| file.display().to_string()).collect();
    let more = if files.len() > 3 { format!(" and {} more", files.len() - 3) } else { String::new() };
    shown.join(", ") + &more
}

fn past(line: u64) -> String {
    if line == 0 { String::new() } else { format!(" past line {line}") }
}
