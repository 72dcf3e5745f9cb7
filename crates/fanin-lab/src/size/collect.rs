//! From logs to requests.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustc_hash::FxHashMap;

use super::format::{Broken, Format};
use super::input::{Line, Log};
use super::options::Options;
use super::order::Order;
use super::record::{Record, SECOND};
use super::report::{BrokenLine, FileReport, Resolution};
use super::stamps::Stamps;
use super::{SizeError, format::stamp::DAY};

/// Broken lines shown of each log.
const SHOWN: usize = 5;
/// Characters shown of a broken line.
const SHOWN_TEXT: usize = 100;
/// Lines looked at to find the form.
const LOOKED_AT: usize = 200;
/// Lines between two looks at the progress bar.
const TELL: u64 = 16 * 1024;
/// A stamp without a date that falls by more has passed midnight.
const MIDNIGHT: i64 = DAY / 2;
/// Lines further out of order than writers' buffers explain, microseconds.
const DISORDER: i64 = 5 * SECOND;
/// Mean length from which a whole number is rather of microseconds than of milliseconds.
const UNLIKELY_MEAN: u64 = 30_000_000;

/// What the logs say.
#[derive(Debug, Default)]
pub(crate) struct Collected {
    pub(crate) records: Vec<Record>,
    pub(crate) files: Vec<FileReport>,
    pub(crate) warnings: Vec<String>,
    /// Request-microseconds by the second of the stamp.
    pub(crate) by_stamp: FxHashMap<i64, u64>,
    dated: Option<PathBuf>,
    undated: Option<PathBuf>,
}

impl Collected {
    /// Whether stamps have dates.
    pub(crate) fn is_dated(&self) -> bool {
        self.dated.is_some()
    }

    /// Reads one more log. `tell` is called now and then with the bytes read of the file.
    pub(crate) fn add(&mut self, path: &Path, options: &Options, tell: &mut dyn FnMut(u64)) -> Result<(), SizeError> {
        let read = Rc::new(Cell::new(0));
        let log = Log::open(path, Rc::clone(&read))?;
        self.read(log, options, &mut || tell(read.get()))
    }

    /// Reads an open log.
    pub(crate) fn read(&mut self, mut log: Log, options: &Options, tell: &mut dyn FnMut()) -> Result<(), SizeError> {
        let shown = log.path.display().to_string();
        let Some(format) = find_format(&log, options)? else {
            self.warnings.push(format!("{shown}: empty"));
            self.files.push(Reader::new(shown, None, options).file);
            return Ok(());
        };
        let mut reader = Reader::new(shown, Some(format), options);
        loop {
            match log.lines.next() {
                Ok(None) => break,
                Ok(Some(Line::TooLong(text))) => reader.broken(Broken::Line, text),
                Ok(Some(Line::Text(text))) => {
                    if let Some(request) = reader.line(text, format, options) {
                        if self.records.len() >= options.max_requests {
                            let line = log.lines.number();
                            return Err(SizeError::TooMany { file: log.path, line, limit: options.max_requests });
                        }
                        self.records.push(request.record);
                        *self.by_stamp.entry(request.stamp.div_euclid(SECOND)).or_default() += request.record.length();
                    }
                }
                Err(source) if reader.file.requests == 0 => {
                    return Err(SizeError::Read { file: log.path, line: log.lines.number(), source });
                }
                Err(error) => {
                    let (file, line) = (&reader.file.file, log.lines.number());
                    self.warnings
                        .push(format!("{file}: cannot be read past line {line} ({error}); what is before counts"));
                    break;
                }
            }
            reader.number = log.lines.number();
            if reader.number.is_multiple_of(TELL) {
                tell();
            }
        }
        tell();
        if reader.file.requests > 0 {
            let known = if reader.dated { &mut self.dated } else { &mut self.undated };
            known.get_or_insert_with(|| log.path.clone());
        }
        if let (Some(dated), Some(undated)) = (&self.dated, &self.undated) {
            return Err(SizeError::Dates { undated: undated.clone(), dated: dated.clone() });
        }
        self.files.push(reader.finish(options, &mut self.warnings));
        Ok(())
    }
}

/// The form of a log by its first lines; `None` if there are none.
fn find_format(log: &Log, options: &Options) -> Result<Option<Format>, SizeError> {
    let ahead = log.lines.ahead();
    // The last line may be cut, unless it is the log's last.
    let whole =
        if log.lines.is_all_ahead() { ahead.len() } else { memchr::memrchr(b'\n', ahead).unwrap_or(ahead.len()) };
    let lines = || {
        ahead[..whole]
            .split(|byte| *byte == b'\n')
            .map(<[u8]>::trim_ascii)
            .zip(1..)
            .filter(|(line, _)| !line.is_empty() && memchr::memchr(0, line).is_none())
    };
    let Some((first, number)) = lines().next() else {
        return Ok(None);
    };
    if let Some(format) = options.format {
        return Ok(Some(format));
    }
    let looked_at = lines().take(LOOKED_AT).count() as u64;
    match Format::detect(lines().take(LOOKED_AT).map(|(line, _)| line)) {
        Ok(format) => Ok(Some(format)),
        Err(reason) => Err(SizeError::Format {
            file: log.path.clone(),
            lines: looked_at,
            reason: reason.reason(),
            number,
            shown: printable(first),
        }),
    }
}

/// The beginning of a line, fit for a terminal.
fn printable(line: &[u8]) -> String {
    let head = &line[..line.len().min(4 * SHOWN_TEXT)];
    let text = String::from_utf8_lossy(head);
    let mut shown: String = text
        .chars()
        .take(SHOWN_TEXT)
        .map(|char| if char.is_control() { char::REPLACEMENT_CHARACTER } else { char })
        .collect();
    if text.chars().nth(SHOWN_TEXT).is_some() || head.len() < line.len() {
        shown.push('…');
    }
    shown
}

struct Request {
    record: Record,
    stamp: i64,
}

/// The state of reading one log.
struct Reader {
    file: FileReport,
    stamps: Stamps,
    order: Order,
    number: u64,
    fractions: u64,
    dated: bool,
    /// Days passed in a log without dates, in microseconds.
    days: i64,
    last_clock: i64,
    total_length: u64,
}

impl Reader {
    fn new(file: String, format: Option<Format>, options: &Options) -> Reader {
        let stamps = format.map(|format| options.stamps.unwrap_or(format.stamps()));
        Reader {
            file: FileReport {
                file,
                format,
                stamps,
                resolution: Resolution::Fraction,
                lines: 0,
                requests: 0,
                outside: 0,
                upgraded: 0,
                broken: 0,
                first_broken: Vec::new(),
                out_of_order: 0,
                furthest_behind: 0.0,
            },
            stamps: stamps.unwrap_or(Stamps::End),
            order: Order::default(),
            number: 0,
            fractions: 0,
            dated: false,
            days: 0,
            last_clock: 0,
            total_length: 0,
        }
    }

    fn broken(&mut self, why: Broken, text: &[u8]) {
        self.file.lines += 1;
        self.file.broken += 1;
        if self.file.first_broken.len() < SHOWN {
            let (line, text) = (self.number + 1, printable(text));
            self.file.first_broken.push(BrokenLine { line, reason: why.reason(), text });
        }
    }

    fn line(&mut self, text: &[u8], format: Format, options: &Options) -> Option<Request> {
        let text = text.trim_ascii();
        if text.is_empty() {
            return None;
        }
        let entry = match format.parse(text, options.unit) {
            Ok(entry) => entry,
            Err(why) => {
                let why = if memchr::memchr(0, text).is_some() { Broken::Nul } else { why };
                self.broken(why, text);
                return None;
            }
        };
        if self.file.requests + self.file.outside > 0 && entry.stamp.dated != self.dated {
            self.broken(Broken::Stamp, text);
            return None;
        }
        self.file.lines += 1;
        self.dated = entry.stamp.dated;
        let stamp = if entry.stamp.dated { entry.stamp.micros } else { self.pass_midnight(entry.stamp.micros) };
        if options.from.is_some_and(|from| stamp < from) || options.to.is_some_and(|to| stamp >= to) {
            self.file.outside += 1;
            return None;
        }
        if entry.status == Some(101) {
            self.file.upgraded += 1;
            return None;
        }
        let whole = entry.stamp.whole_seconds;
        let slack = if whole { SECOND } else { 1000 };
        self.order.next(self.number + 1, stamp, entry.length, self.stamps, slack);
        self.file.requests += 1;
        self.fractions += u64::from(!whole);
        self.total_length = self.total_length.saturating_add(entry.length);
        let start = match self.stamps {
            Stamps::Start => stamp,
            Stamps::End => stamp - entry.length as i64,
        };
        let record = if whole {
            Record::within_second(start, entry.length, self.number)
        } else {
            Record::exact(start, entry.length)
        };
        Some(Request { record, stamp })
    }

    /// A clock without a date goes on past midnight. It may also fall back a little over it, as lines out of order do.
    fn pass_midnight(&mut self, clock: i64) -> i64 {
        let step = clock - self.last_clock;
        if self.file.requests + self.file.outside > 0 {
            if step < -MIDNIGHT {
                self.days += DAY;
            } else if step > MIDNIGHT && self.days > 0 {
                self.days -= DAY;
            }
        }
        self.last_clock = clock;
        self.days + clock
    }

    fn finish(mut self, options: &Options, warnings: &mut Vec<String>) -> FileReport {
        self.order.finish();
        let file = &mut self.file;
        file.resolution = match self.fractions {
            0 if file.requests > 0 => Resolution::WholeSeconds,
            fractions if fractions == file.requests => Resolution::Fraction,
            _ => Resolution::Mixed,
        };
        file.out_of_order = self.order.behind + self.order.astray;
        file.furthest_behind = self.order.furthest_behind as f64 / 1e6;
        let mut warn = |text: String| warnings.push(format!("{}: {text}", file.file));
        if file.broken * 2 > file.lines {
            warn(format!("{} of {} lines are broken; is this the right log, of one form?", file.broken, file.lines));
        }
        if self.order.furthest_behind > DISORDER {
            let (lines, by) = (self.order.behind, file.furthest_behind);
            warn(format!("{lines} lines out of order, by up to {by:.1} s; they are sorted, but is this one log?"));
        }
        if self.order.astray > 0 {
            warn(format!("{} lines with a time far from that of the lines around them", self.order.astray));
        }
        for jump in &self.order.jumps {
            let (line, by) = (jump.line, jump.by.unsigned_abs() as f64 / 1e6);
            if jump.by < 0 {
                warn(format!(
                    "line {line}: the clock falls back by {by:.0} s; the times before and after lie over each other and \
                     may count too many in progress (size one side with --from and --to)"
                ));
            } else {
                warn(format!("line {line}: nothing for {by:.0} s, or the clock was set ahead"));
            }
        }
        if self.order.more_jumps > 0 {
            warn(format!("{} more leaps of the clock", self.order.more_jumps));
        }
        if options.stamps.is_none()
            && let Some(better) = self.order.suggests()
            && better != self.stamps
        {
            let (taken, better) = match better {
                Stamps::End => ("starts", "end"),
                Stamps::Start => ("ends", "start"),
            };
            warn(format!("stamps are taken as requests' {taken}, but the lines' order speaks for --stamps {better}"));
        }
        if file.format == Some(Format::Ncsa)
            && options.unit.is_none()
            && self.total_length > UNLIKELY_MEAN.saturating_mul(file.requests)
        {
            warn(
                "requests of over 30 s on average: if latencies are microseconds (Apache's %D), say --unit us"
                    .to_owned(),
            );
        }
        if file.format == Some(Format::Ncsa) && options.unit == Some(super::format::Unit::S) {
            warn("latencies in whole seconds: what is shorter counts as nothing (log %D or %{ms}T)".to_owned());
        }
        if file.upgraded > 0 {
            warn(format!("{} lines with status 101 (WebSockets) left out: they hold no thread", file.upgraded));
        }
        if file.requests == 0 && file.outside > 0 {
            warn("no request within --from and --to".to_owned());
        }
        self.file
    }
}
