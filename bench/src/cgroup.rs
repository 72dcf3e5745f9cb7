//! A memory cgroup of our own, below the one that the benchmark runs in: a limit that the kernel keeps, and how often it was met.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A cgroup; it goes when its last process has gone and this is dropped.
#[derive(Debug)]
pub struct Cgroup {
    folder: PathBuf,
    /// Version 2 of the interface.
    unified: bool,
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // The kernel refuses while a process is in it; then it stays, empty, until the machine restarts.
        let _ = fs::remove_dir(&self.folder);
    }
}

impl Cgroup {
    /// Makes one, or says why none can be had.
    pub fn new(name: &str) -> Result<Cgroup, String> {
        let own = fs::read_to_string("/proc/self/cgroup").map_err(|error| format!("/proc/self/cgroup: {error}"))?;
        let mut told = "no memory controller".to_owned();
        for (parent, unified) in parents(&own) {
            let folder = parent.join(format!("{name}-{}", std::process::id()));
            match fs::create_dir(&folder) {
                Ok(()) => {
                    let group = Cgroup { folder, unified };
                    if group.path("limit").exists() {
                        return Ok(group);
                    }
                    told = format!("{}: the memory controller is not passed on", parent.display());
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => told = format!("{}: {error}", parent.display()),
            }
        }
        Err(told)
    }

    fn path(&self, what: &str) -> PathBuf {
        self.folder.join(match (what, self.unified) {
            ("limit", true) => "memory.max",
            ("limit", false) => "memory.limit_in_bytes",
            ("peak", true) => "memory.peak",
            ("peak", false) => "memory.max_usage_in_bytes",
            ("events", true) => "memory.events",
            ("events", false) => "memory.failcnt",
            (other, _) => other,
        })
    }

    /// The same command, run in this cgroup from its first page on. Its output is dropped.
    pub fn command(&self, command: &Command) -> Command {
        // The shell puts itself in and becomes the program.
        let mut inside = Command::new("sh");
        inside.arg("-c").arg("echo $$ > \"$0\" && exec \"$@\"").arg(self.folder.join("cgroup.procs"));
        inside.arg(command.get_program()).args(command.get_args()).stdout(Stdio::null());
        inside
    }

    /// Sets the limit, bytes.
    pub fn limit(&self, bytes: u64) -> io::Result<()> {
        fs::write(self.path("limit"), bytes.to_string())
    }

    /// How often the limit was met, and the most that was used, bytes (0 where the kernel does not tell).
    pub fn met(&self) -> io::Result<(u64, u64)> {
        let events = fs::read_to_string(self.path("events"))?;
        let peak = fs::read_to_string(self.path("peak")).ok().and_then(|text| text.trim().parse().ok());
        Ok((count(&events), peak.unwrap_or_default()))
    }
}

/// Version 1 has one number; version 2 a line for each event, of which `max`, `oom` and `oom_kill` are a limit that was met.
fn count(events: &str) -> u64 {
    if let Ok(number) = events.trim().parse() {
        return number;
    }
    let of = |line: &str| {
        let (name, count) = line.split_once(' ')?;
        matches!(name, "max" | "oom" | "oom_kill").then(|| count.parse::<u64>().ok())?
    };
    events.lines().filter_map(of).sum()
}

/// Where a cgroup may be made, and whether by version 2: by version 1 below our own; by version 2, which wants no processes beside
/// groups, below our own or beside it.
fn parents(own: &str) -> Vec<(PathBuf, bool)> {
    let mut all = Vec::new();
    for line in own.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let path = Path::new(path.trim_start_matches('/'));
        if controllers.split(',').any(|controller| controller == "memory") {
            all.push((Path::new("/sys/fs/cgroup/memory").join(path), false));
        } else if controllers.is_empty() {
            let here = Path::new("/sys/fs/cgroup").join(path);
            all.extend(path.parent().map(|_| (here.parent().map_or(here.clone(), Path::to_path_buf), true)));
            all.push((here, true));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_interfaces_are_understood() {
        assert_eq!(parents("4:memory:/a/b\n3:cpu:/\n"), [(PathBuf::from("/sys/fs/cgroup/memory/a/b"), false)]);
        let beside = (PathBuf::from("/sys/fs/cgroup/a"), true);
        assert_eq!(parents("0::/a/b\n"), [beside, (PathBuf::from("/sys/fs/cgroup/a/b"), true)]);
        assert_eq!(parents("0::/\n"), [(PathBuf::from("/sys/fs/cgroup"), true)]);
        assert_eq!((count("3\n"), count("low 9\nhigh 0\nmax 2\noom 1\noom_kill 1\n")), (3, 4));
    }
}
