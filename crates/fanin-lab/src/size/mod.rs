//! Sizes a tier from its access logs: threads of a pool, or memory for coroutines.
//!
//! A blocking tier needs a thread for each request in progress. The number in progress follows from the stamp and the length of
//! each request:
//!
//! 1. `input`, `format`, `collect`, `order`: logs are read into 16 bytes per request (`record`); broken lines are counted;
//! 2. `sweep`, `occupancy`, `range`: a sweep over starts and ends gives the number in progress at every moment, and bounds of it
//!    if stamps are in whole seconds; `saturation` recognizes logs of full pools;
//! 3. `need`, `simulate`, `mgc`: the log's own requests are run through pools of different sizes, and compared with theory;
//! 4. `report`, `text`, `plot`: the result as data, text and SVG.
//!
//! Memory: 16 bytes a request, twice that while the list grows, at most [`Options::max_requests`] of them; about 34 bytes
//! for each second that has a stamp; 256 KiB of buffer; what is in progress or waiting at once. Lines are not held.

mod args;
mod collect;
mod error;
mod format;
pub(crate) mod fuzz_entry;
mod input;
mod mgc;
mod need;
mod occupancy;
mod options;
mod order;
mod plot;
mod range;
mod record;
mod report;
mod saturation;
mod simulate;
mod stamps;
mod sweep;
mod text;

use std::path::PathBuf;

pub use args::{SizeArgs, run};
pub use error::SizeError;
pub use format::{Format, Unit};
pub use occupancy::Point;
pub use options::Options;
pub use plot::svg;
pub use report::{
    BrokenLine, Coroutines, FileReport, InProgress, Length, Level, Need, PerSecond, Report, Resolution, Simulated,
    Size, Theory, Why,
};
pub use stamps::Stamps;
pub use text::text;

use collect::Collected;
use format::stamp::show;
use occupancy::{Occupancy, histogram};
use record::Record;

/// Default of [`Options::max_requests`]: 480 MB, twice that while the list grows.
pub const MAX_REQUESTS: usize = 30_000_000;

const MEDIAN: f64 = 0.5;
const HIGH: f64 = 0.99;

/// Sizes the tier whose requests are in `logs`, all of them together: logs of several servers are one tier, parts of a
/// rotated log are one log. `-` is standard input. `tell` is called now and then with the bytes read so far of all files.
///
/// # Errors
/// A file that cannot be read, is binary, or has no known form; no request at all; options that make no sense.
pub fn size(logs: &[PathBuf], options: &Options, mut tell: impl FnMut(u64)) -> Result<Report, SizeError> {
    options.check()?;
    if let Some(twice) = logs.iter().enumerate().find(|(at, log)| logs[..*at].contains(log)) {
        return Err(SizeError::Option { option: "LOG", reason: format!("{} is given twice", twice.1.display()) });
    }
    let mut collected = Collected::default();
    let mut before = 0;
    for log in logs {
        let mut of_this = 0;
        collected.add(log, options, &mut |bytes| {
            of_this = bytes;
            tell(before + bytes);
        })?;
        before += of_this;
    }
    if collected.records.is_empty() {
        return Err(SizeError::Empty { files: logs.to_vec(), why: why_empty(&collected.files) });
    }
    Ok(report(collected, options))
}

fn why_empty(files: &[FileReport]) -> String {
    let sum = |count: fn(&FileReport) -> u64| files.iter().map(count).sum::<u64>();
    match (sum(|file| file.outside), sum(|file| file.broken), sum(|file| file.upgraded)) {
        (0, 0, 0) => String::new(),
        (outside, broken, upgraded) => format!(
            " ({outside} outside of --from and --to, which need a date if and only if stamps have one; {broken} broken; \
             {upgraded} with status 101)"
        ),
    }
}

fn report(collected: Collected, options: &Options) -> Report {
    let dated = collected.is_dated();
    let Collected { mut records, files, mut warnings, by_stamp, .. } = collected;
    let exact = !records.iter().any(|record| record.is_whole_seconds());
    let bounds = (!exact).then(|| range::bounds(&mut records, MEDIAN, HIGH, options));
    records.sort_unstable_by_key(|record| record.start());

    let occupancy = Occupancy::new(records.iter().map(|record| (record.start(), record.end())));
    let from = records.first().map_or(0, |record| record.start());
    let to = records.iter().map(|record| record.end()).max().unwrap_or(0);
    let wall_seconds = occupancy.wall() as f64 / 1e6;
    let peak = occupancy.busiest.0 as f64 / 1e6;
    let peak_by_stamp = by_stamp.values().copied().max().unwrap_or(0) as f64 / 1e6;
    if occupancy.quiets > 0 {
        let (times, hours) = (occupancy.quiets, occupancy.quiet as f64 / 3.6e9);
        warnings
            .push(format!("{times} quiet times of over an hour, {hours:.1} h together, are left out of all averages"));
    }
    if !exact {
        warnings.push(
            "stamps are in whole seconds: requests could have started anywhere within their second, so a range is shown. The best \
             guess spreads them evenly; milliseconds in the log make all figures exact"
                .to_owned(),
        );
    }
    if let Some(warning) = saturation::warning(&records, &occupancy) {
        warnings.push(warning);
    }
    let level = |share: Option<f64>, bounds: Option<(u64, u64)>| {
        let value = share.map_or(occupancy.max(), |share| occupancy.quantile(share));
        // The guess has a first and a last moment of its own, so its quantiles may lie a little outside.
        let (at_least, at_most) = bounds.unwrap_or((value, value));
        Level { value: value.clamp(at_least, at_most), at_least, at_most }
    };
    let per_second = |share: f64| occupancy.seconds.value_at_quantile(share) as f64 / 1e3;
    let max = level(None, bounds.map(|bounds| bounds.max));
    Report {
        files,
        warnings,
        requests: records.len() as u64,
        from: show(from, dated),
        to: show(to, dated),
        wall_seconds,
        quiet_seconds: occupancy.quiet as f64 / 1e6,
        length: length(&records),
        per_second: PerSecond {
            mean: if wall_seconds > 0.0 { occupancy.busy() as f64 / 1e6 / wall_seconds } else { 0.0 },
            p50: per_second(MEDIAN),
            p99: per_second(HIGH),
            peak,
            peak_at: show(occupancy.busiest.1, dated),
            peak_by_stamp,
        },
        in_progress: InProgress {
            exact,
            p50: level(Some(MEDIAN), bounds.map(|bounds| bounds.p50)),
            p99: level(Some(HIGH), bounds.map(|bounds| bounds.p99)),
            max,
            max_at: show(occupancy.max_at, dated),
        },
        burst_factor: if peak > 0.0 { max.value as f64 / peak } else { 0.0 },
        need: need::need(&records, options, peak, peak_by_stamp, bounds.map(|bounds| bounds.peak)),
        points: occupancy.points(),
    }
}

fn length(records: &[Record]) -> Length {
    let (mut sum, mut squares, mut max) = (0.0, 0.0, 0);
    let mut lengths = histogram();
    for record in records {
        let length = record.length();
        sum += length as f64;
        squares += (length as f64).powi(2);
        max = max.max(length);
        occupancy::record(&mut lengths, length);
    }
    let (count, millis) = (records.len() as f64, |micros: f64| micros / 1e3);
    let mean = sum / count;
    let quantile = |share| millis(lengths.value_at_quantile(share).min(max) as f64);
    Length {
        mean_ms: millis(mean),
        p50_ms: quantile(MEDIAN),
        p99_ms: quantile(HIGH),
        max_ms: millis(max as f64),
        cv2: if mean > 0.0 { (squares / count / (mean * mean) - 1.0).max(0.0) } else { 0.0 },
    }
}
