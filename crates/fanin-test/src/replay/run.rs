//! Replays a recording on all threads.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use fanin_config::{Diagnostic, Severity};
use fanin_flow::Flows;
use fanin_recording::Recording;
use fanin_upstream::Upstreams;

use super::advice::{Advice, advice};
use super::answers::Answers;
use super::compare::Difference;
use super::figures::{Figures, Tally};
use super::ignore::Ignore;
use super::overrides;
use super::world::{self, Part};
use crate::error::TestError;
use crate::setting::Setting;

/// A part of a recording that a thread replays has so many requests at least.
const LEAST: usize = 2000;
/// How long before its part a thread begins, so that caches, limits and batches are as they would be.
const WARM: Duration = Duration::from_secs(3);

/// What to replay, and how.
#[derive(Debug, Clone)]
pub struct ReplayOptions {
    /// Folder of the configuration, or its file.
    pub config: PathBuf,
    /// `KEY=VALUE`.
    pub what_if: Vec<String>,
    /// What may differ.
    pub ignore: Ignore,
    /// Threads.
    pub threads: usize,
    /// What random choices follow from.
    pub seed: u64,
}

/// A recording and the configuration that it is replayed with.
pub struct Replay {
    setting: Arc<Setting>,
    answers: Arc<Answers>,
    options: ReplayOptions,
    /// Warnings about the configuration and its flows.
    pub warnings: Vec<Diagnostic>,
}

impl std::fmt::Debug for Replay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "replay of {} requests", self.answers.recording.requests.len())
    }
}

/// What came of a replay.
#[derive(Debug)]
pub struct ReplayRun {
    /// By route.
    pub routes: Vec<(String, Figures)>,
    /// Of all routes.
    pub total: Figures,
    /// The first of the requests that differ, in their order.
    pub differences: Vec<Difference>,
    /// Calls that the recording does not have, and how often.
    pub missing: Vec<(String, u64)>,
    /// Requests that cannot be replayed, by reason.
    pub skipped: Vec<(String, u64)>,
    /// What the recording says about the configuration.
    pub advice: Vec<Advice>,
    /// The keys that were set.
    pub what_if: Vec<String>,
    /// How long the recording is.
    pub recorded: Duration,
    /// The share of requests that it has.
    pub share: f64,
    /// Requests that the recording does not have, because it was full.
    pub dropped: u64,
    /// What the recording has left out, with the reason.
    pub left_out: Vec<String>,
    /// How long the replay took.
    pub took: Duration,
    /// On so many threads.
    pub threads: usize,
}

impl Replay {
    /// Reads and checks the configuration.
    ///
    /// # Errors
    /// It cannot be used.
    pub fn prepare(recording: Recording, options: ReplayOptions) -> Result<Replay, TestError> {
        let wrong = |what: String| TestError::File { path: options.config.display().to_string(), what };
        let inspection = overrides::inspect(&options.config, &options.what_if).map_err(wrong)?;
        let has_errors = |found: &[Diagnostic]| found.iter().any(|one| one.severity == Severity::Error);
        let mut found = inspection.diagnostics;
        let (Some(config), false) = (inspection.config, has_errors(&found)) else {
            return Err(TestError::Diagnostics(found));
        };
        let setting = Setting::new(config)?;
        let upstreams = Upstreams::new(setting.config.upstreams.values())
            .map_err(|errors| TestError::Upstreams(errors.iter().map(ToString::to_string).collect()))?;
        found.extend(Flows::check(&setting.config, &upstreams, &[], false).diagnostics);
        if has_errors(&found) {
            return Err(TestError::Diagnostics(found));
        }
        let answers = Answers::new(recording, &setting.config);
        Ok(Replay { setting: Arc::new(setting), answers: Arc::new(answers), options, warnings: found })
    }

    /// Replays all requests.
    ///
    /// # Errors
    /// The configuration has changed meanwhile.
    pub fn run(&self) -> Result<ReplayRun, TestError> {
        let began = Instant::now();
        let requests = self.answers.recording.requests.len();
        let threads = self.options.threads.min(requests.div_ceil(LEAST)).max(1);
        let next = AtomicUsize::new(0);
        let work = || -> Result<Vec<(usize, Tally)>, TestError> {
            let mut done = Vec::new();
            loop {
                let at = next.fetch_add(1, Relaxed);
                if at >= threads {
                    return Ok(done);
                }
                let part = self.part(at, threads);
                let tally = world::replay(&self.setting, &self.answers, &self.options.ignore, part, self.options.seed)?;
                done.push((at, tally));
            }
        };
        let results: Vec<_> = std::thread::scope(|scope| {
            let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            let panicked = || Err(TestError::Routes("a thread of the replay has panicked".to_owned()));
            running.into_iter().map(|thread| thread.join().unwrap_or_else(|_| panicked())).collect()
        });
        let mut tallies = Vec::new();
        for result in results {
            tallies.extend(result?);
        }
        tallies.sort_by_key(|(at, _)| *at);
        let mut tally = Tally::default();
        tallies.into_iter().for_each(|(_, one)| tally.merge(one));
        Ok(self.outcome(tally, began.elapsed(), threads))
    }

    /// The part of a thread: as many requests as the others have, and those around them.
    fn part(&self, at: usize, of: usize) -> Part {
        let requests = &self.answers.recording.requests;
        let (first, last) = (requests.len() * at / of, requests.len() * (at + 1) / of);
        let time = |number: usize| requests[number].arrived_us + requests[number].queued_us;
        let warm = WARM.as_micros() as u64;
        let from = match at {
            0 => 0,
            _ => {
                requests[..first].partition_point(|request| request.arrived_us + request.queued_us + warm < time(first))
            }
        };
        // What comes after keeps the last ones company.
        Part { all: from..requests.len(), counted: first..last }
    }

    fn outcome(&self, tally: Tally, took: Duration, threads: usize) -> ReplayRun {
        let recording = &self.answers.recording;
        let mut total = Figures::default();
        let mut routes: Vec<(String, Figures)> = tally.routes.into_iter().collect();
        for (_, figures) in &mut routes {
            total.merge(figures.clone());
            figures.sort();
        }
        total.sort();
        let mut differences = tally.differences;
        differences.sort_by_key(|one| one.request);
        let mut missing: Vec<(String, u64)> = tally.missing.into_iter().collect();
        missing.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        ReplayRun {
            routes,
            total,
            differences,
            missing,
            skipped: tally.skipped.into_iter().collect(),
            advice: advice(recording, &self.setting.config, &self.answers.operations),
            what_if: self.options.what_if.clone(),
            recorded: Duration::from_micros(recording.footer.took_us),
            share: recording.header.share,
            dropped: recording.footer.dropped,
            left_out: recording.footer.left_out.clone(),
            took,
            threads,
        }
    }
}

impl ReplayRun {
    /// Whether something differs.
    #[must_use]
    pub fn differs(&self) -> bool {
        self.total.differing > 0 || self.routes.iter().any(|(_, figures)| figures.rounds_differ())
    }
}
