//! `start`: from the start of the process until it says that it is ready, with each example's flows.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::load;
use crate::process::{self, OTHER_CORE, Server};
use crate::report::{Report, Table, median};
use crate::{Failure, Options, servers};

const EXAMPLES: [&str; 2] = ["vacancies", "shop"];
const MOST_MS: f64 = 150.0;

/// Runs the benchmark.
pub fn run(options: &Options) -> Result<Report, Failure> {
    process::pin(OTHER_CORE)?;
    let mut report = Report::new("start");
    let mut table =
        Table::new("From process start to ready", &["example", "median ms", "worst ms", "resident MB", "threads"]);
    let starts = if options.quick { 5 } else { 21 };
    for example in EXAMPLES {
        let copy = Copy::of(example)?;
        let mut times = Vec::new();
        let mut usage = process::Usage::default();
        for _ in 0..starts {
            let (time, used) = copy.start()?;
            times.push(time.as_secs_f64() * 1e3);
            usage = used;
        }
        let worst = times.iter().copied().fold(0.0, f64::max);
        let middle = median(times.iter().copied());
        table.rows.push(vec![
            example.into(),
            format!("{middle:.1}"),
            format!("{worst:.1}"),
            format!("{:.1}", usage.rss as f64 / 1e6),
            usage.threads.to_string(),
        ]);
        report.at_most(&format!("{example}: ready after"), middle, MOST_MS, " ms");
        report.data[example] = json!(times);
    }
    report.tables.push(table);
    Ok(report)
}

/// An example's folder with addresses of our own, which are in the file because the examples have none to set.
struct Copy {
    dir: PathBuf,
    listen: std::net::SocketAddr,
    admin: std::net::SocketAddr,
}

impl Copy {
    fn of(example: &str) -> Result<Self, Failure> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples").join(example);
        let dir = std::env::temp_dir().join(format!("fanin-bench-{}-{example}", std::process::id()));
        copy(&source, &dir)?;
        let (listen, admin) = (process::free_port()?, process::free_port()?);
        let file = dir.join("fanin.toml");
        let text = fs::read_to_string(&file)?;
        let addresses = format!("listen = \"{listen}\"\nadmin = \"{admin}\"\nlog = \"error\"\n");
        let text = match text.split_once("[server]\n") {
            Some((before, after)) => format!("{before}[server]\n{addresses}{after}"),
            None => format!("[server]\n{addresses}\n{text}"),
        };
        fs::write(file, text)?;
        Ok(Self { dir, listen, admin })
    }

    fn start(&self) -> Result<(Duration, process::Usage), Failure> {
        let command = servers::fanin_command(&self.dir)?;
        let start = Instant::now();
        let server = Server::command("fanin", self.listen, command, Duration::from_secs(10))?;
        while !load::once(self.admin, &load::get("/ready"), Duration::from_secs(1))
            .is_ok_and(|(status, _)| status == 200)
        {
            if start.elapsed() > Duration::from_secs(10) {
                return Err(Failure::Wrong("it does not become ready".into()));
            }
            process::pause(Duration::from_millis(1));
        }
        Ok((start.elapsed(), server.usage()?))
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.dir));
    }
}

fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
