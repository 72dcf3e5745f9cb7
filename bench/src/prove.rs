//! `prove`: how long the tests of flows take, with as many as a large project has.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use serde_json::{Value, json};

use crate::report::{Report, Table, median};
use crate::{Failure, Options};

const TESTS: usize = 1_000;
const MOST_S: f64 = 1.0;

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
    Ok(report)
}

/// The shop's folder, with a test file of many cases in place of its own.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Folder, Failure> {
        let shop = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/shop");
        let dir = std::env::temp_dir().join(format!("fanin-bench-prove-{}", std::process::id()));
        fs::create_dir_all(dir.join("flows"))?;
        let folder = Folder(dir);
        // The page for browsers needs its folder, not its files.
        fs::create_dir_all(folder.0.join("web"))?;
        fs::copy(shop.join("fanin.toml"), folder.0.join("fanin.toml"))?;
        for entry in fs::read_dir(shop.join("flows"))? {
            let entry = entry?;
            if !entry.file_name().to_string_lossy().ends_with("_test.star") {
                fs::copy(entry.path(), folder.0.join("flows").join(entry.file_name()))?;
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
        fs::write(folder.0.join("flows/many_test.star"), text)?;
        Ok(folder)
    }

    fn test(&self, threads: u8) -> Result<Value, Failure> {
        let mut command = Command::new(std::env::current_exe()?.with_file_name("fanin"));
        command.arg("test").arg(&self.0).args(["--format", "json", "--threads", &threads.to_string()]);
        let output = command.output()?;
        let told = || String::from_utf8_lossy(&output.stderr).into_owned();
        let json: Value = serde_json::from_slice(&output.stdout).map_err(|_| Failure::Wrong(told()))?;
        match json["passed"].as_u64() {
            Some(passed) if passed == TESTS as u64 && output.status.success() => Ok(json),
            _ => Err(Failure::Wrong(format!("not all tests passed: {}", told()))),
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A folder that stays behind harms nobody.
        let _ = fs::remove_dir_all(&self.0);
    }
}
