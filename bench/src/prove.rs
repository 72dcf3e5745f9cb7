//! `prove`: how long the tests of flows take, with as many as a large project has; how long it takes to try all failures of a page; and how
//! many bugs that finds.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use fanin_testbed::seeded_bugs::{BUGS, seed};
use serde_json::{Value, json};

use crate::prove_replay;
use crate::report::{Report, Table, median};
use crate::{Failure, Options};

const TESTS: usize = 1_000;
const MOST_S: f64 = 1.0;
/// The most that all failures of the shop's page may take on one core.
const MOST_EXPLORED_S: f64 = 10.0;
const LEAST_FOUND: usize = 28;

/// Runs the benchmark.
pub fn run(options: &Options) -> Result<Report, Failure> {
    let mut report = Report::new("prove");
    let folder = Folder::new()?;
    let mut table = Table::new(
        &format!("{TESTS} tests of the shop's page"),
        &["threads", "median s", "worst s", "requests", "calls", "us a test"],
    );
    let runs = if options.quick { 3 } else { 11 };
    for threads in [2, 1] {
        let mut times = Vec::new();
        let mut last = Value::Null;
        for _ in 0..runs {
            let began = Instant::now();
            last = folder.test(threads)?;
            times.push(began.elapsed().as_secs_f64());
        }
        let sum = |name: &str| -> u64 {
            last["tests"].as_array().map_or(0, |all| all.iter().filter_map(|one| one[name].as_u64()).sum())
        };
        let middle = median(times.iter().copied());
        table.rows.push(vec![
            threads.to_string(),
            format!("{middle:.2}"),
            format!("{:.2}", times.iter().copied().fold(0.0, f64::max)),
            sum("requests").to_string(),
            sum("calls").to_string(),
            format!("{:.0}", middle * 1e6 / TESTS as f64 * f64::from(threads)),
        ]);
        if threads == 2 {
            report.at_most(&format!("{TESTS} tests on two cores"), middle, MOST_S, " s");
        }
        report.data[threads.to_string()] = json!(times);
    }
    report.tables.push(table);
    explored(options, &mut report)?;
    seeded(&mut report)?;
    prove_replay::run(options, &mut report)?;
    Ok(report)
}

/// All failures of the shop, on one core.
fn explored(options: &Options, report: &mut Report) -> Result<(), Failure> {
    let mut table = Table::new(
        "All failures of the shop, on one thread",
        &["exploration", "requests", "cases", "deviations at once", "complete", "median s"],
    );
    let mut runs = Vec::new();
    for _ in 0..if options.quick { 1 } else { 3 } {
        runs.push(explore(&examples().join("shop"), &["--threads", "1"])?);
    }
    let all = runs[0]["explorations"].as_array().cloned().unwrap_or_default();
    for (at, one) in all.iter().enumerate() {
        let took = median(runs.iter().filter_map(|run| run["explorations"][at]["took_ms"].as_f64())) / 1e3;
        let complete = one["complete"] == true;
        let name = one["name"].as_str().unwrap_or_default();
        let count = |key: &str| one[key].as_u64().unwrap_or_default().to_string();
        let said = if complete { "yes" } else { "no" };
        table.rows.push(vec![
            name.to_owned(),
            count("requests"),
            count("cases"),
            count("together"),
            said.to_owned(),
            format!("{took:.2}"),
        ]);
        report.holds(&format!("{name}: these are all cases"), format!("{} cases", count("cases")), complete);
        if name == "explore_page" {
            report.at_most("all failures of the page on one core", took, MOST_EXPLORED_S, " s");
        }
    }
    let found = runs[0]["findings"].as_u64();
    report.holds("nothing is found in the shop", format!("{found:?}"), found == Some(0));
    report.data["explored"] = json!(runs);
    report.tables.push(table);
    Ok(())
}

/// Bugs seeded into copies of the examples, one at a time.
fn seeded(report: &mut Report) -> Result<(), Failure> {
    let mut table = Table::new("Seeded bugs", &["file", "bug", "found by"]);
    let mut found = 0;
    for bug in &BUGS {
        let folder = Temporary::new("bug")?;
        seed(bug, &examples(), &folder.0)?;
        let run = explore(&folder.0, &[])?;
        let findings = run["explorations"].as_array().into_iter().flatten();
        let findings = findings.flat_map(|one| one["findings"].as_array().into_iter().flatten());
        let mut by: Vec<&str> = findings.filter_map(|one| one["invariant"].as_str()).collect();
        by.sort_unstable();
        by.dedup();
        found += usize::from(!by.is_empty());
        let by = if by.is_empty() { "not found".to_owned() } else { by.join(", ") };
        table.rows.push(vec![bug.0.to_owned(), bug.3.to_owned(), by]);
    }
    report.holds(&format!("bugs found ≥ {LEAST_FOUND} of {}", BUGS.len()), found.to_string(), found >= LEAST_FOUND);
    report.tables.push(table);
    Ok(())
}

/// What `fanin explore` reports of a folder.
fn explore(dir: &Path, options: &[&str]) -> Result<Value, Failure> {
    let mut command = Command::new(fanin()?);
    let output = command.arg("explore").args(["--format", "json", "--config"]).arg(dir).args(options).output()?;
    serde_json::from_slice(&output.stdout)
        .map_err(|_| Failure::Wrong(String::from_utf8_lossy(&output.stderr).into_owned()))
}

fn fanin() -> Result<PathBuf, Failure> {
    Ok(std::env::current_exe()?.with_file_name("fanin"))
}

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples")
}

/// A folder that is deleted when it is dropped.
struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str) -> Result<Temporary, Failure> {
        let dir = std::env::temp_dir().join(format!("fanin-bench-{name}-{}", std::process::id()));
        fs::create_dir_all(&dir)?;
        Ok(Temporary(dir))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // A folder that stays behind harms nobody.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The shop's folder, with a test file of many cases in place of its own.
struct Folder(Temporary);

impl Folder {
    fn new() -> Result<Folder, Failure> {
        let shop = examples().join("shop");
        let folder = Folder(Temporary::new("prove")?);
        let dir = &folder.0.0;
        fs::create_dir_all(dir.join("flows"))?;
        // The page for browsers needs its folder, not its files.
        fs::create_dir_all(dir.join("web"))?;
        fs::copy(shop.join("fanin.toml"), dir.join("fanin.toml"))?;
        for entry in fs::read_dir(shop.join("flows"))? {
            let entry = entry?;
            if !entry.file_name().to_string_lossy().ends_with("_test.star") {
                fs::copy(entry.path(), dir.join("flows").join(entry.file_name()))?;
            }
        }
        let tests = fs::read_to_string(shop.join("flows/products_test.star"))?;
        let Some((before, _)) = tests.split_once("def test_") else {
            return Err(Failure::Wrong("the shop's tests begin with no set-up".into()));
        };
        let cases: Vec<String> = (0..TESTS).map(|number| number.to_string()).collect();
        let mut text = before.to_owned();
        let _ = write!(
            text,
            "def test_page(number = each({})):\n    found = page([\"1\", \"2\"])\n    assert_equal(found.status, 200)\n    \
             assert_equal(found.rounds, 2)\n    assert_equal([one[\"id\"] for one in found.json[\"products\"]], [\"1\", \"2\"])\n",
            cases.join(", ")
        );
        fs::write(dir.join("flows/many_test.star"), text)?;
        Ok(folder)
    }

    fn test(&self, threads: u8) -> Result<Value, Failure> {
        let mut command = Command::new(fanin()?);
        command.arg("test").arg(&self.0.0).args(["--format", "json", "--threads", &threads.to_string()]);
        let output = command.output()?;
        let told = || String::from_utf8_lossy(&output.stderr).into_owned();
        let json: Value = serde_json::from_slice(&output.stdout).map_err(|_| Failure::Wrong(told()))?;
        match json["passed"].as_u64() {
            Some(passed) if passed == TESTS as u64 && output.status.success() => Ok(json),
            _ => Err(Failure::Wrong(format!("not all tests passed: {}", told()))),
        }
    }
}
