//! Processes of an experiment: this program in another role, and `fanin serve`. They end when they are dropped.

use std::fs;
use std::io::{self, BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::de::DeserializeOwned;

use super::error::LabError;

/// What a process has used.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Usage {
    /// CPU time of all threads, ended ones too.
    pub(crate) cpu: Duration,
    /// Resident bytes.
    pub(crate) resident: u64,
    pub(crate) threads: u64,
}

/// Sleeps: an experiment serves nobody, so nobody waits for its thread.
#[allow(clippy::disallowed_methods)]
pub(crate) fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// What a process has used so far.
pub(crate) fn usage(pid: u32) -> io::Result<Usage> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let field = |key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key));
        line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or_default()
    };
    // `schedstat` counts nanoseconds, of living threads; `stat` counts 10 ms, of ended threads too. Neither overstates.
    let mut nanos: u64 = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let text = fs::read_to_string(task?.path().join("schedstat")).unwrap_or_default();
        nanos += text.split_whitespace().next().and_then(|number| number.parse::<u64>().ok()).unwrap_or(0);
    }
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks: u64 = after_name.split_whitespace().skip(11).take(2).filter_map(|n| n.parse::<u64>().ok()).sum();
    let ticks = Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second().max(1));
    Ok(Usage {
        cpu: ticks.max(Duration::from_nanos(nanos)),
        resident: field("VmRSS:") * 1024,
        threads: field("Threads:"),
    })
}

/// Of this process.
pub(crate) fn own() -> Result<Usage, LabError> {
    usage(std::process::id()).map_err(LabError::io("reading /proc/self"))
}

/// Cores that this thread may use.
pub(crate) fn cores() -> Vec<usize> {
    let Ok(set) = sched_getaffinity(None) else { return vec![0] };
    (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect()
}

/// Runs `work` on these cores, with all threads and processes that it starts; afterwards this thread is where it was.
pub(crate) fn on_cores<T>(cores: &[usize], work: impl FnOnce() -> T) -> Result<T, LabError> {
    let before = sched_getaffinity(None).map_err(|error| LabError::io("asking for cores")(error.into()))?;
    let mut set = CpuSet::new();
    cores.iter().for_each(|core| set.set(*core));
    sched_setaffinity(None, &set).map_err(|error| LabError::io(format!("moving to cores {cores:?}"))(error.into()))?;
    let done = work();
    // It was there a moment ago.
    let _ = sched_setaffinity(None, &before);
    Ok(done)
}

/// Children that must not outlive this process, also when a signal ends it.
static CHILDREN: Mutex<Vec<u32>> = Mutex::new(Vec::new());
/// A signal has come.
static ENDING: AtomicBool = AtomicBool::new(false);
/// So long children have to put away what they have outside of the run's folder, such as a database its shared memory.
const TO_END: Duration = Duration::from_secs(2);

/// Ends all children, gently at first; for a signal's handling.
pub(crate) fn end_children() {
    ENDING.store(true, Relaxed);
    let children = std::mem::take(&mut *CHILDREN.lock().unwrap_or_else(PoisonError::into_inner));
    let children: Vec<Pid> =
        children.into_iter().filter_map(|pid| i32::try_from(pid).ok().and_then(Pid::from_raw)).collect();
    let all = |signal| {
        for pid in &children {
            let _ended_already = kill_process(*pid, signal);
        }
    };
    // PostgreSQL would wait for its clients at SIGTERM, and at this it does not.
    all(Signal::INT);
    let end = Instant::now() + TO_END;
    let lives = |pid: &Pid| {
        let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
        // Nobody may be there to take its status.
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
    };
    while children.iter().any(lives) && Instant::now() < end {
        pause(Duration::from_millis(10));
    }
    all(Signal::KILL);
}

/// Does not come back if a signal is ending this process: what fails then, fails for that reason.
pub(crate) fn unless_ending() {
    while ENDING.load(Relaxed) {
        pause(TO_END);
    }
}

/// A child that ends with its owner.
pub(crate) struct Owned(Child);

impl Owned {
    pub(crate) fn spawn(command: &mut Command) -> Result<Owned, LabError> {
        let program = command.get_program().to_string_lossy().into_owned();
        let mut children = CHILDREN.lock().unwrap_or_else(PoisonError::into_inner);
        if ENDING.load(Relaxed) {
            drop(children);
            unless_ending();
            return Err(LabError::wrong("this process ends"));
        }
        let child = command.spawn().map_err(LabError::io(format!("starting {program}")))?;
        children.push(child.id());
        Ok(Owned(child))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    pub(crate) fn usage(&self) -> Result<Usage, LabError> {
        usage(self.pid()).map_err(LabError::io("reading /proc of a child that has ended"))
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        let _ended_already = kill_process(Pid::from_child(&self.0), Signal::TERM);
        let end = Instant::now() + Duration::from_secs(2);
        while matches!(self.0.try_wait(), Ok(None)) {
            if Instant::now() > end {
                let _ = self.0.kill();
                let _ = self.0.wait();
                break;
            }
            pause(Duration::from_millis(5));
        }
        let pid = self.0.id();
        CHILDREN.lock().unwrap_or_else(PoisonError::into_inner).retain(|other| *other != pid);
    }
}

/// Runs this program in a role of its own, so that its memory and threads are its own, and reads the JSON that it prints.
pub(crate) fn role<T: DeserializeOwned>(program: &Path, arguments: &[&str]) -> Result<T, LabError> {
    let mut command = Command::new(program);
    command.arg("lab-role").args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    if let Some(base) = super::run_dir::get() {
        // Its temporary files go with this run's, should it be killed.
        command.env("TMPDIR", base);
    }
    let mut child = Owned::spawn(&mut command)?;
    let mut errors = child.0.stderr.take();
    let told = std::thread::spawn(move || {
        let mut text = String::new();
        let _ = errors.as_mut().map(|errors| errors.read_to_string(&mut text));
        text
    });
    let mut out = String::new();
    let read = child.0.stdout.take().map(|mut pipe| pipe.read_to_string(&mut out));
    read.transpose().map_err(LabError::io(format!("reading from {arguments:?}")))?;
    let status = child.0.wait().map_err(LabError::io("waiting for a role"))?;
    let told = told.join().unwrap_or_default();
    serde_json::from_str(&out).map_err(|_| {
        LabError::Wrong(format!(
            "`lab-role {}` ended with {status} and no result: {}",
            arguments.join(" "),
            told.trim()
        ))
    })
}

/// This program in a role that serves: its first line is its address.
pub(crate) struct Role {
    child: Owned,
    pub(crate) addr: SocketAddr,
}

impl Role {
    pub(crate) fn start(program: &Path, arguments: &[&str]) -> Result<Role, LabError> {
        let mut command = Command::new(program);
        command.arg("lab-role").args(arguments).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = Owned::spawn(&mut command)?;
        let mut line = String::new();
        let pipe = child.0.stdout.take().ok_or_else(|| LabError::wrong("no pipe"))?;
        BufReader::new(pipe).read_line(&mut line).map_err(LabError::io(format!("reading from {arguments:?}")))?;
        // What it lacks it has said on standard error.
        let addr = line.trim().parse().map_err(|_| LabError::Wrong(format!("{arguments:?} did not start")))?;
        Ok(Role { child, addr })
    }

    pub(crate) fn usage(&self) -> Result<Usage, LabError> {
        self.child.usage()
    }
}

/// `fanin serve` on a folder of its own.
pub(crate) struct Served {
    child: Owned,
    pub(crate) addr: SocketAddr,
    _dir: tempfile::TempDir,
}

impl Served {
    /// Writes `fanin.toml` (what follows its `[server]`) and `flow.star`, and serves them with so many workers.
    pub(crate) fn start(program: &Path, workers: usize, toml: &str, star: &str) -> Result<Served, LabError> {
        Self::folder(program, workers, toml, &[("flow.star", star)])
    }

    /// The same with such files.
    pub(crate) fn folder(
        program: &Path,
        workers: usize,
        toml: &str,
        files: &[(&str, &str)],
    ) -> Result<Served, LabError> {
        let dir = super::scratch()?;
        let write = |file: &str, text: &str| -> Result<PathBuf, LabError> {
            let path = dir.path().join(file);
            if let Some(folder) = path.parent() {
                fs::create_dir_all(folder).map_err(|source| LabError::Write { file: path.clone(), source })?;
            }
            fs::write(&path, text).map_err(|source| LabError::Write { file: path.clone(), source })?;
            Ok(path)
        };
        let server = format!(
            "[server]\nlisten = '127.0.0.1:0'\nadmin = '127.0.0.1:0'\nworkers = {workers}\naccess_log = 'off'\n\
             reload = false\nqueueing = 'off'\nlimit = 100000\nmax_connections = 60000\ndrain_timeout = '100ms'\n"
        );
        write("fanin.toml", &format!("{server}{toml}"))?;
        for (file, text) in files {
            write(file, text)?;
        }
        let mut command = Command::new(program);
        command.arg("serve").arg(dir.path()).env_remove("RUST_LOG").env("NO_COLOR", "1");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = Owned::spawn(&mut command)?;
        let pipe = child.0.stderr.take().ok_or_else(|| LabError::wrong("no pipe"))?;
        let mut lines = BufReader::new(pipe).lines();
        let mut seen = Vec::new();
        let addr = loop {
            let Some(Ok(line)) = lines.next() else {
                return Err(LabError::Wrong(format!("fanin serve did not start: {}", seen.join("\n"))));
            };
            let listen = line.split("listen=\"").nth(1).and_then(|rest| rest.split('"').next());
            if let Some(addr) = listen.and_then(|listen| listen.parse().ok()) {
                break addr;
            }
            seen.push(line);
        };
        // Read on, lest the pipe fill and the server wait for it.
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
        Ok(Served { child, addr, _dir: dir })
    }

    pub(crate) fn usage(&self) -> Result<Usage, LabError> {
        self.child.usage()
    }
}
