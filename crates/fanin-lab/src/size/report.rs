//! What a sizing found. Serializes to the JSON of `fanin size --json`.

use serde::Serialize;

use super::format::Format;
use super::occupancy::Point;
use super::stamps::Stamps;

/// All that was found. Times of day are RFC 3339 in UTC, or a clock alone for logs without dates.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// The logs.
    pub files: Vec<FileReport>,
    /// What a reader should know before believing the figures; one sentence each.
    pub warnings: Vec<String>,
    /// Requests counted.
    pub requests: u64,
    /// First start.
    pub from: String,
    /// Last end.
    pub to: String,
    /// From first start to last end, less quiet times of over an hour.
    pub wall_seconds: f64,
    /// Quiet times left out.
    pub quiet_seconds: f64,
    /// Lengths of requests.
    pub length: Length,
    /// Request-seconds in each wall second.
    pub per_second: PerSecond,
    /// Requests in progress at once, by time.
    pub in_progress: InProgress,
    /// `in_progress.max` over `per_second.peak`: how many times the least number of threads were busy at once.
    pub burst_factor: f64,
    /// What is needed.
    pub need: Need,
    /// The number in progress over time, for the plot.
    pub points: Vec<Point>,
}

/// How one log was read.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FileReport {
    /// Path as given.
    pub file: String,
    /// Its form; `None` if it is empty.
    pub format: Option<Format>,
    /// What stamps were taken for.
    pub stamps: Option<Stamps>,
    /// How fine stamps are.
    pub resolution: Resolution,
    /// Lines that are not blank.
    pub lines: u64,
    /// Requests counted.
    pub requests: u64,
    /// Lines outside of `from` and `to`.
    pub outside: u64,
    /// Lines with status 101: a connection that became a WebSocket holds no thread.
    pub upgraded: u64,
    /// Lines that cannot be read.
    pub broken: u64,
    /// The first of them.
    pub first_broken: Vec<BrokenLine>,
    /// Lines that stand behind one that was written later.
    pub out_of_order: u64,
    /// The furthest of them, seconds.
    pub furthest_behind: f64,
}

/// How fine the stamps of a log are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Resolution {
    /// With a fraction: taken as exact.
    Fraction,
    /// Whole seconds: figures are a guess within bounds.
    WholeSeconds,
    /// Some with a fraction, some without.
    Mixed,
}

/// A line that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BrokenLine {
    /// Its number, from 1.
    pub line: u64,
    /// What it lacks.
    pub reason: &'static str,
    /// Its beginning, control characters replaced.
    pub text: String,
}

/// Lengths of requests, milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Length {
    /// Mean.
    pub mean_ms: f64,
    /// Median, to three digits.
    pub p50_ms: f64,
    /// 99th percentile, to three digits.
    pub p99_ms: f64,
    /// Longest.
    pub max_ms: f64,
    /// Variance over the mean's square: 0 if all are alike, 1 for exponential lengths.
    pub cv2: f64,
}

/// Request-seconds in each wall second: the time that requests spent within that second. No pool can do with fewer
/// threads than its peak.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PerSecond {
    /// Over the whole time.
    pub mean: f64,
    /// Median second, to three digits.
    pub p50: f64,
    /// To three digits.
    pub p99: f64,
    /// The busiest second.
    pub peak: f64,
    /// When that was.
    pub peak_at: String,
    /// The busiest second if a request's whole length is counted in the second of its stamp, as is done by hand.
    pub peak_by_stamp: f64,
}

/// A number in progress. All three are equal if stamps are exact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Level {
    /// The number, or for stamps in whole seconds the one with starts spread evenly over their seconds.
    pub value: u64,
    /// It cannot be less.
    pub at_least: u64,
    /// It cannot be more.
    pub at_most: u64,
}

/// Requests in progress at once.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct InProgress {
    /// All stamps have fractions: the figures are exact.
    pub exact: bool,
    /// Half of the time no more.
    pub p50: Level,
    /// 99 % of the time no more.
    pub p99: Level,
    /// Never more.
    pub max: Level,
    /// When the most were first in progress.
    pub max_at: String,
}

/// What the tier needs when it has grown and its backends are slow.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Need {
    /// So many times the requests.
    pub growth: f64,
    /// So many times the length.
    pub slow: f64,
    /// Servers that share them.
    pub servers: u32,
    /// The share of requests that may wait in the size recommended.
    pub may_wait: f64,
    /// The least threads a server with which no more than that wait. With stamps in whole seconds the best guess.
    pub threads: u32,
    /// Lower bound of `threads`; equal to it unless stamps are in whole seconds.
    pub threads_at_least: u32,
    /// Upper bound of `threads`; equal to it unless stamps are in whole seconds.
    pub threads_at_most: u32,
    /// Places to wait on each server, if bounded.
    pub waiting: Option<u32>,
    /// The most in progress at once on the busiest server: with so many threads nobody waits.
    pub peak: u32,
    /// Sizes and what they are like, ascending.
    pub sizes: Vec<Size>,
    /// The other way: no threads.
    pub coroutines: Coroutines,
}

/// A pool of so many threads on each server.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Size {
    /// Threads on each server.
    pub threads: u32,
    /// Why this size is looked at.
    pub why: Vec<Why>,
    /// Virtual memory of the stacks, bytes.
    pub stack_bytes: u64,
    /// What the log's own requests met.
    pub simulated: Simulated,
    /// What theory says.
    pub theory: Theory,
}

/// Why a size is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// The request-seconds of the busiest second: fewer fall behind during it.
    Least,
    /// Few enough wait.
    Recommended,
    /// Nobody waits.
    Peak,
    /// The rule of thumb: request-seconds of the busiest second by stamp, x4 for bursts, x2 for growth, x2 for slow
    /// backends, over the servers.
    Rule,
    /// Given by `--size`.
    Chosen,
}

/// Waits of the log's own requests through a pool.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Simulated {
    /// Share of requests that waited.
    pub waited: f64,
    /// Share of requests refused, with a bounded queue.
    pub refused: f64,
    /// Mean wait of all that were served.
    pub mean_ms: f64,
    /// 99 % waited no longer; to three digits.
    pub p99_ms: f64,
    /// Longest wait.
    pub max_ms: f64,
    /// The most that waited at once on a server.
    pub queue: u64,
}

/// Waits by M/G/c, minute by minute.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Theory {
    /// Chance of waiting.
    pub waited: f64,
    /// Share of requests in minutes with more load than the pool can do.
    pub overloaded: f64,
    /// Mean wait; `None` if it is unbounded.
    pub mean_ms: Option<f64>,
    /// 99 % wait no longer; `None` if it is unbounded.
    pub p99_ms: Option<f64>,
}

/// What the same needs without threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Coroutines {
    /// Suspended at once on a server, at most.
    pub at_once: u64,
    /// Memory of one, bytes (`--flow-memory`).
    pub bytes_each: u64,
    /// Memory of all on a server, bytes.
    pub bytes: u64,
}
