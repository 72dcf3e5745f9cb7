//! What must not add up: O11 (memory), O12 (reloads).

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use fanin_load::{Outcome, Shape};
use serde_json::json;

use super::Stage;
use crate::core_speed::CoreSpeed;
use crate::process::{OTHER_CORE, SERVER_CORE};
use crate::report::{Report, Table};
use crate::{Failure, process};

const SECOND: Duration = Duration::from_secs(1);
const RELOADS: u64 = 1000;
/// Where so much of a core is missing, 80 % of the peak is all that can be done, or more: what fails then fails for that.
const MISSING: f64 = 0.2;
/// For so long: a queue that has stood so long is an overload.
const WINDOW: Duration = Duration::from_millis(60);

/// O12, then O11 on the same server.
pub fn steady(stage: &mut Stage, report: &mut Report, full: bool) -> Result<(), Failure> {
    reloads(stage, report, full)?;
    memory(stage, report, full)
}

/// O12: a reload every second at 80 % of the peak. As much without reloads before it tells what they change.
fn reloads(stage: &Stage, report: &mut Report, full: bool) -> Result<(), Failure> {
    let lasts = if full { 60 * SECOND } else { 20 * SECOND };
    // A load or a backend that stood still comes at once then: it is one machine.
    let paces = [CoreSpeed::start(SERVER_CORE)?, CoreSpeed::start(OTHER_CORE)?];
    stage.peak("/work", 2 * SECOND)?;
    let (peak, _) = stage.peak("/work", 2 * SECOND)?;
    let offer = || {
        let begun = Instant::now();
        stage.offer("/work", peak * 0.8, lasts).map(|outcome| (begun, outcome))
    };
    let (begun, control) = offer()?;
    let control = Judged::of(&control, begun, &paces);
    let (offered, reloads) = reloading(stage, SECOND, offer)?;
    let (begun, outcome) = offered?;
    let judged = Judged::of(&outcome, begun, &paces);

    let mut table = Table::new(
        "O12: where requests failed, and what was missing of the cores in the worst 60 ms of that time",
        &["", "at s", "refused", "failed else", "server's core", "load's core", ""],
    );
    for (what, judged) in [("without reloads", &control), ("with", &judged)] {
        table.rows.extend(judged.rows.iter().map(|row| [&[what.to_owned()], row.as_slice()].concat()));
    }
    report.tables.push(table);
    let bar = format!(
        "O12: requests that fail, of {} with {reloads} reloads, while the machine gives at least {:.0} % of its speed",
        outcome.offered,
        (1.0 - MISSING) * 100.0
    );
    let figure = format!("{judged}; without reloads {control}");
    report.holds(&bar, figure, judged.holds() && reloads as f64 >= lasts.as_secs_f64() * 0.8);
    report.data["O12"] = json!({"reloads": reloads, "disturbed": judged.disturbed, "outcome": outcome});
    Ok(())
}

/// Failures of a run at 80 % of the peak, and whose they are.
struct Judged {
    /// While the machine gave its speed.
    failed: u64,
    /// All others.
    excused: u64,
    /// The part of the time in which the machine did not.
    disturbed: f64,
    /// Each interval in which requests failed: when, refused, failed else, what was missing of the cores, whose they are.
    rows: Vec<Vec<String>>,
}

impl Judged {
    fn of(outcome: &Outcome, begun: Instant, paces: &[CoreSpeed; 2]) -> Judged {
        let (mut failed, mut disturbed, mut rows) = (0, 0, Vec::new());
        for interval in &outcome.intervals {
            let at = begun + Duration::from_secs_f64(interval.at);
            let ended = at + Duration::from_secs_f64(interval.length);
            let missing = |from| paces.each_ref().map(|pace| pace.missing(from, ended, WINDOW));
            let is_slow = |missing: [f64; 2]| missing.iter().any(|missing| *missing >= MISSING);
            disturbed += usize::from(is_slow(missing(at)));
            let wrong = interval.refused + interval.failed;
            if wrong == 0 {
                continue;
            }
            // A queue comes from what was missing before.
            let missing = missing(at.checked_sub(SECOND / 4).unwrap_or(at));
            let is_disturbed = is_slow(missing);
            failed += if is_disturbed { 0 } else { wrong };
            rows.push(vec![
                format!("{:.2}", interval.at),
                interval.refused.to_string(),
                interval.failed.to_string(),
                format!("{:.0} %", missing[0] * 100.0),
                format!("{:.0} %", missing[1] * 100.0),
                if is_disturbed { "the machine" } else { "the server" }.into(),
            ]);
        }
        let disturbed = disturbed as f64 / outcome.intervals.len().max(1) as f64;
        Judged { failed, excused: outcome.offered - outcome.good - failed, disturbed, rows }
    }

    /// None failed. Of a run in which some did, and which was disturbed for most of the time, nothing is known.
    fn holds(&self) -> bool {
        self.failed == 0 && (self.excused == 0 || self.disturbed < 0.5)
    }
}

impl fmt::Display for Judged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} and {} in the {:.0} % of the time in which it did not",
            self.failed,
            self.excused,
            self.disturbed * 100.0
        )
    }
}

/// O11: overload, calls that time out, clients that leave, and a thousand reloads.
fn memory(stage: &Stage, report: &mut Report, full: bool) -> Result<(), Failure> {
    let lasts = if full { 3600 * SECOND } else { 120 * SECOND };
    let (peak, _) = stage.peak("/work", 2 * SECOND)?;
    let torture = |lasts| -> Result<(), Failure> {
        let overload = stage.plan("/work", Shape::constant(peak * 2.0, lasts))?;
        let timeouts = stage.plan("/deadline", Shape::constant(100.0, lasts))?;
        let mut leaving = stage.plan("/slow", Shape::constant(100.0, lasts))?;
        leaving.timeout = Duration::from_millis(20);
        stage.run_all([&overload, &timeouts, &leaving])?;
        Ok(())
    };
    let rest = || -> Result<u64, Failure> {
        process::pause(5 * SECOND);
        Ok(stage.fanin.usage()?.rss)
    };
    // What is kept for reuse (pools, the allocator's pages) is there once all of it has happened.
    torture(10 * SECOND)?;
    let base = rest()?;
    let pause = lasts.mul_f64(0.9 / RELOADS as f64);
    let (result, reloads) = reloading(stage, pause, || torture(lasts))?;
    result?;
    let after = rest()?;
    let growth = (after as f64 / base as f64 - 1.0) * 100.0;
    let bar = format!(
        "O11: memory after {} s of overload, timeouts, disconnects and {reloads} reloads, over its base of {:.1} MB",
        lasts.as_secs(),
        base as f64 / 1e6
    );
    report.at_most(&bar, growth, 10.0, " %");
    report.holds("O11: reloads", reloads.to_string(), reloads >= RELOADS);
    report.data["O11"] = json!({"base": base, "after": after, "reloads": reloads, "seconds": lasts.as_secs()});
    Ok(())
}

/// Does something while the server reloads again and again; also gives how often it has.
fn reloading<T>(stage: &Stage, pause: Duration, run: impl FnOnce() -> T) -> Result<(T, u64), Failure> {
    let (end, count, admin) = (AtomicBool::new(false), AtomicU64::new(0), stage.admin());
    let (done, reloaded) = std::thread::scope(|scope| {
        let reloader = scope.spawn(|| -> Result<(), Failure> {
            while !end.load(Relaxed) {
                Stage::reload(admin)?;
                count.fetch_add(1, Relaxed);
                process::pause(pause);
            }
            Ok(())
        });
        let done = run();
        end.store(true, Relaxed);
        (done, reloader.join())
    });
    reloaded.map_err(|_| Failure::Wrong("the thread that reloads has panicked".into()))??;
    Ok((done, count.load(Relaxed)))
}
