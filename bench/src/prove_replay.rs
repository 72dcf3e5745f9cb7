//! Replays of recorded requests: how fast, and whether they tell the truth.
//!
//! The demo of the shop is recorded under load, and replayed with the configuration that it ran with.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::report::{Report, Table, median};
use crate::{Failure, Options};

/// Recorded requests a minute that a core replays.
const RATE: f64 = 1_000_000.0;
/// By how much p95 may differ.
const P95: f64 = 10.0;
/// Requests a second while the shop is recorded.
const LOAD: &str = "400";

/// Adds rows and bars.
pub fn run(options: &Options, report: &mut Report) -> Result<(), Failure> {
    let demo = Demo::start()?;
    let folder = std::env::temp_dir().join(format!("fanin-bench-replay-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let folder = Folder(folder);
    let file = demo.record(&folder.0, options.quick)?;
    drop(demo);
    let shop = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/shop");
    let mut table = Table::new(
        "Recorded requests of the shop's page, replayed",
        &["threads", "requests", "differ", "median s", "a minute and core", "p95 recorded, ms", "p95 replayed, ms"],
    );
    for threads in [1, 2] {
        let mut times = Vec::new();
        let mut last = Value::Null;
        for _ in 0..if options.quick { 1 } else { 5 } {
            last = replay(&file, &shop, threads)?;
            times.push(last["took_seconds"].as_f64().unwrap_or(f64::NAN));
        }
        let total = &last["total"];
        let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
        let (requests, differing) = (number(&total["requests"]), number(&total["differing"]));
        let (before, after) = (number(&total["recorded"]["p95_ms"]), number(&total["replayed"]["p95_ms"]));
        let middle = median(times.iter().copied());
        let rate = requests / middle * 60.0 / f64::from(threads);
        table.rows.push(vec![
            threads.to_string(),
            format!("{requests:.0}"),
            format!("{differing:.0}"),
            format!("{middle:.2}"),
            format!("{rate:.0}"),
            format!("{before:.1}"),
            format!("{after:.1}"),
        ]);
        if threads == 1 {
            let text = format!("recorded requests replayed a minute on a core ≥ {RATE:.0}");
            report.holds(&text, format!("{rate:.0}"), rate >= RATE);
            report.at_most("false differences", differing, 0.0, "");
            let off = ((after - before) / before * 100.0).abs();
            report.at_most("p95 of the replay off by", off, P95, " %");
        }
        report.data[format!("replay {threads}")] = json!(times);
    }
    report.tables.push(table);
    Ok(())
}

fn program() -> Result<Command, Failure> {
    Ok(Command::new(std::env::current_exe()?.with_file_name("fanin")))
}

fn replay(file: &Path, config: &Path, threads: u8) -> Result<Value, Failure> {
    let mut command = program()?;
    command.arg("replay").arg(file).arg("--config").arg(config).args(["--json", "--threads", &threads.to_string()]);
    let output = command.output()?;
    serde_json::from_slice(&output.stdout)
        .map_err(|_| Failure::Wrong(String::from_utf8_lossy(&output.stderr).into_owned()))
}

/// The demo of the shop: its backends and its server.
struct Demo {
    child: Child,
    server: String,
    admin: String,
}

impl Demo {
    fn start() -> Result<Demo, Failure> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut child =
            program()?.args(["demo", "shop"]).current_dir(root).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let out = child.stdout.take().ok_or_else(|| Failure::Wrong("the demo has no output".into()))?;
        let mut demo = Demo { child, server: String::new(), admin: String::new() };
        for line in BufReader::new(out).lines() {
            let line = line?;
            let address = || line.split("http://").nth(1).and_then(|rest| rest.split(['/', '\'']).next()).unwrap_or("");
            if line.contains("/metrics'") {
                demo.admin = address().to_owned();
            } else if line.contains("curl -s") {
                demo.server = address().to_owned();
            } else if line.contains("Serving until") {
                return Ok(demo);
            }
        }
        Err(Failure::Wrong("the demo of the shop does not serve".into()))
    }

    /// Records while there is load. Gives the file.
    fn record(&self, folder: &Path, quick: bool) -> Result<PathBuf, Failure> {
        let body = folder.join("body.json");
        let products = r#"{"products": ["p101", "p117", "p230"], "mask": "product_detail_page_attributes", "recommendation_mask": "name_and_photo_only"}"#;
        fs::write(&body, products)?;
        let time = if quick { "10s" } else { "60s" };
        let file = folder.join("shop.rec");
        let url = format!("http://{}", self.admin);
        let mut record = program()?;
        record.args(["record", "--url", &url, "--for", time, "--out"]).arg(&file);
        let record = record.stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        let target = format!("http://{}/products", self.server);
        let mut load = program()?;
        load.args(["load", &target, "--rate", LOAD, "--duration", time, "-X", "POST", "--body"]).arg(&body);
        load.args(["-H", "content-type: application/json"]).stdout(Stdio::null()).stderr(Stdio::null());
        let loaded = load.status()?;
        let output = record.wait_with_output()?;
        if !loaded.success() || !output.status.success() {
            return Err(Failure::Wrong(format!("nothing recorded: {}", String::from_utf8_lossy(&output.stderr))));
        }
        Ok(file)
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        // It ends with this process at the latest.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A folder that goes away.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        // A folder that stays behind harms nobody.
        let _ = fs::remove_dir_all(&self.0);
    }
}
