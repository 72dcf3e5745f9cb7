//! `models`: what a ModelInfer costs beside a bare tonic echo and MLServer, deadlines under load, a fleet of clients during
//! swaps, instances that vanish, and what 3 million a minute take.

mod cost;
mod deadline;
pub mod echo;
mod fleet;
pub mod load;
mod messages;
mod mlserver;
mod trees;
mod vanish;

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::cgroup::Cgroup;
use crate::process::{self, OTHER_CORE, Server};
use crate::report::Report;
use crate::{Failure, Options, servers};

/// What to measure.
#[derive(Clone, Debug)]
pub struct Plans {
    /// The fleet for its ten minutes.
    pub full: bool,
    /// Only these parts.
    pub only: Vec<String>,
}

type Part = fn(&Options, &Plans, &mut Report) -> Result<(), Failure>;

const PARTS: [(&str, Part); 5] = [
    ("cost", cost::run),
    ("mlserver", mlserver::run),
    ("deadline", deadline::run),
    ("fleet", fleet::run),
    ("vanish", vanish::run),
];

/// Runs the benchmark.
pub fn run(options: &Options, plans: &Plans) -> Result<Report, Failure> {
    if let Some(unknown) = plans.only.iter().find(|name| !PARTS.iter().any(|(part, _)| part == name)) {
        let parts: Vec<&str> = PARTS.iter().map(|(part, _)| *part).collect();
        return Err(Failure::Usage(format!("no part `{unknown}`: {}", parts.join(", "))));
    }
    process::pin(OTHER_CORE)?;
    let mut report = Report::new("models");
    report.data = serde_json::json!({});
    for (name, part) in PARTS {
        if plans.only.is_empty() || plans.only.iter().any(|only| only == name) {
            eprintln!("models: {name}");
            part(options, plans, &mut report)?;
        }
    }
    Ok(report)
}

/// A folder with a repository and a configuration; it is gone with this.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _gone_already = fs::remove_dir_all(&self.0);
    }
}

impl Folder {
    fn new(name: &str) -> Result<Folder, Failure> {
        let folder = std::env::temp_dir().join(format!("fanin-bench-models-{name}-{}", std::process::id()));
        fs::create_dir_all(folder.join("models"))?;
        Ok(Folder(folder))
    }

    /// Puts a version into the repository, all at once.
    fn put(&self, model: &str, version: u64, text: &str) -> Result<(), Failure> {
        let parent = self.0.join("models").join(model);
        let (draft, whole) = (parent.join(format!("{version}.tmp")), parent.join(version.to_string()));
        fs::create_dir_all(&draft)?;
        fs::write(draft.join("model.txt"), text)?;
        fs::rename(draft, whole)?;
        Ok(())
    }

    fn remove(&self, model: &str, version: u64) -> Result<(), Failure> {
        Ok(fs::remove_dir_all(self.0.join("models").join(model).join(version.to_string()))?)
    }

    /// Fanin on one core with this repository: one worker, one thread that computes.
    fn serve(&self, models: SocketAddr, admin: Option<SocketAddr>, more: &str) -> Result<Server, Failure> {
        self.serve_in(None, models, admin, more)
    }

    /// The same, in a cgroup.
    fn serve_in(
        &self,
        group: Option<&Cgroup>,
        models: SocketAddr,
        admin: Option<SocketAddr>,
        more: &str,
    ) -> Result<Server, Failure> {
        let listen = process::free_port()?;
        // The server opens them after the models' port.
        let others: Vec<SocketAddr> = [listen].into_iter().chain(admin).collect();
        let admin = admin.map_or("off".to_owned(), |admin| admin.to_string());
        let toml = format!(
            "[server]\nlisten = \"{listen}\"\nadmin = \"{admin}\"\nworkers = 1\nlog = \"warn\"\n[models]\nrepository = \
             \"models\"\nlisten = \"{models}\"\nthreads = 1\n{more}"
        );
        fs::write(self.0.join("fanin.toml"), toml)?;
        let mut command = servers::fanin_command(&self.0)?;
        if let Some(group) = group {
            command = group.command(&command);
        }
        Ok(Server::command_with("fanin", models, &others, command, Duration::from_secs(10))?)
    }
}
