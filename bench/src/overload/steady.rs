//! What must not add up: O11 (memory), O12 (reloads).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use fanin_load::Shape;
use serde_json::json;

use super::Stage;
use crate::pace::Pace;
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

/// O12: a reload every second at 80 % of the peak.
fn reloads(stage: &Stage, report: &mut Report, full: bool) -> Result<(), Failure> {
    let lasts = if full { 60 * SECOND } else { 20 * SECOND };
    // A load or a backend that stood still comes at once then: it is one machine.
    let paces = [Pace::start(SERVER_CORE)?, Pace::start(OTHER_CORE)?];
    stage.peak("/work", 2 * SECOND)?;
    let (peak, _) = stage.peak("/work", 2 * SECOND)?;
    let begun = Instant::now();
    let (outcome, reloads) = reloading(stage, SECOND, || stage.offer("/work", peak * 0.8, lasts))?;
    let outcome = outcome?;
    let mut table = Table::new(
        "O12: where requests failed, and what was missing of the cores in the worst 60 ms of that time",
        &["at s", "refused", "failed else", "server's core", "load's core", ""],
    );
    let (mut failed, mut disturbed) = (0, 0);
    for interval in &outcome.intervals {
        let at = begun + Duration::from_secs_f64(interval.at);
        let ended = at + Duration::from_secs_f64(interval.length);
        let missing = |from| paces.each_ref().map(|pace| pace.missing(from, ended, WINDOW));
        let is_slow = |missing: [f64; 2]| missing.iter().any(|missing| *missing >= MISSING);
        disturbed += usize::from(is_slow(missing(at)));
        // A queue comes from what was missing before.
        let missing = missing(at.checked_sub(SECOND / 4).unwrap_or(at));
        let is_disturbed = is_slow(missing);
        let wrong = interval.refused + interval.failed;
        if wrong > 0 {
            failed += if is_disturbed { 0 } else { wrong };
            table.rows.push(vec![
                format!("{:.2}", interval.at),
                interval.refused.to_string(),
                interval.failed.to_string(),
                format!("{:.0} %", missing[0] * 100.0),
                format!("{:.0} %", missing[1] * 100.0),
                if is_disturbed { "the machine" } else { "the server" }.into(),
            ]);
        }
    }
    report.tables.push(table);
    let all = outcome.intervals.len().max(1);
    let bar = format!(
        "O12: requests that fail, of {} with {reloads} reloads, while the machine gives at least {:.0} % of its speed",
        outcome.offered,
        (1.0 - MISSING) * 100.0
    );
    let figure = format!(
        "{failed}; {} in the {:.0} % of the time in which it did not",
        outcome.offered - outcome.good - failed,
        disturbed as f64 / all as f64 * 100.0
    );
    // Of a run in which some failed, and which was disturbed for most of the time, nothing is known.
    let tells = outcome.offered == outcome.good || disturbed * 2 < all;
    report.holds(&bar, figure, failed == 0 && tells && reloads as f64 >= lasts.as_secs_f64() * 0.8);
    report.data["O12"] = json!({"reloads": reloads, "disturbed": disturbed, "outcome": outcome});
    Ok(())
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
