//! `fanin lab` as a user runs it.

mod common;

use std::path::Path;
use std::process::Output;

use common::fanin;
use serde_json::Value;

/// Runs `fanin lab` with its temporary files in `dir/tmp` and the report in `dir/report`.
fn lab(dir: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> (Option<i32>, String, String) {
    let temporary = dir.join("tmp");
    std::fs::create_dir_all(&temporary).expect("made");
    let mut command = fanin(&["lab"]);
    command.args(arguments).arg("--out").arg(dir.join("report")).env("TMPDIR", &temporary);
    let Output { status, stdout, stderr } = command.envs(variables.iter().copied()).output().expect("the program runs");
    let left: Vec<_> = std::fs::read_dir(&temporary).expect("there").collect();
    assert!(left.is_empty(), "it leaves {left:?}");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (status.code(), text(stdout), text(stderr))
}

#[test]
fn an_unknown_experiment_is_one_error_with_those_there_are() {
    let dir = tempfile::tempdir().expect("a folder");
    let (code, out, err) = lab(dir.path(), &["keepalife"], &[]);
    assert_eq!((code, out.as_str()), (Some(1), ""));
    assert!(
        err.contains("no experiment \"keepalife\" (did you mean `keepalive`?)") && err.contains("slow-backend"),
        "{err}"
    );
    assert_eq!(err.lines().count(), 1, "{err}");
    assert!(!dir.path().join("report").exists(), "nothing is made for nothing");
    assert_eq!(fanin(&["lab"]).output().expect("it runs").status.code(), Some(2));
}

#[test]
fn one_that_lacks_its_server_says_how_to_get_it_and_the_rest_goes_on() {
    let dir = tempfile::tempdir().expect("a folder");
    // Nothing listens on port 1.
    let server = [("FANIN_LAB_POSTGRES", "postgres://lab@127.0.0.1:1/lab?connect_timeout=1")];
    let (code, out, err) = lab(dir.path(), &["sql", "keepalive", "--quick"], &server);
    assert_eq!(code, Some(0), "{err}");
    assert!(out.contains("not run: the server of FANIN_LAB_POSTGRES does not answer"), "{out}");
    assert!(out.contains("well again"), "{out}");
    let report = |file: &str| std::fs::read_to_string(dir.path().join("report").join(file)).expect(file);
    let sql: Value = serde_json::from_str(&report("sql.json")).expect("JSON");
    assert!(sql["lacks"].as_str().is_some_and(|lacks| lacks.contains("does not answer")), "{sql}");
    let keepalive: Value = serde_json::from_str(&report("keepalive.json")).expect("JSON");
    let rows = keepalive["tables"][0]["rows"].as_array().expect("rows");
    assert_eq!(rows[0][4], "no", "without pings it never notices: {keepalive}");
    assert_eq!((rows[1][4].as_str(), rows[2][4].as_str()), (Some("yes"), Some("yes")), "{keepalive}");
    let page = report("index.html");
    assert!(page.contains("Not run: ") && page.contains("<svg"), "{page}");
}

#[cfg(target_os = "linux")]
#[test]
fn clients_that_wait_hold_threads_or_none() {
    let dir = tempfile::tempdir().expect("a folder");
    let (code, out, err) = lab(dir.path(), &["push", "--quick"], &[]);
    assert_eq!(code, Some(0), "{err}");
    assert!(out.contains("1000 clients on threads take"), "{out}");
    let text = std::fs::read_to_string(dir.path().join("report/push.json")).expect("written");
    let report: Value = serde_json::from_str(&text).expect("JSON");
    let rows = report["tables"][0]["rows"].as_array().expect("rows");
    let cells: Vec<[&str; 3]> = rows.iter().map(|row| [0, 1, 2].map(|at| row[at].as_str().expect("text"))).collect();
    assert_eq!(cells.len(), 4, "{report}");
    // One thread for each client, and the one that accepts.
    let threads = |at: usize| cells[at][2].parse::<u64>().expect("a number");
    assert!(threads(0) > 100 && threads(2) > 1000, "{report}");
    assert_eq!((threads(1), cells[1][1]), (threads(3), "Fanin's channels"), "{report}");
    assert_eq!(report["bars"][0]["holds"], true, "{report}");
    assert!(dir.path().join("report/push.svg").exists() && dir.path().join("report/push-2.svg").exists());
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_told_before_anything_is_measured() {
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(dir.path().join("report")).expect("made");
    std::os::unix::fs::symlink("/dev/full", dir.path().join("report/index.html")).expect("made");
    let (code, out, err) = lab(dir.path(), &["all"], &[]);
    assert_eq!((code, out.as_str()), (Some(1), ""));
    assert!(err.contains("index.html: cannot write") && err.contains("No space left on device"), "{err}");
}

#[test]
fn coroutines_are_made_in_processes_of_their_own() {
    let output = fanin(&["lab-role", "coroutines", "flows", "300"]).output().expect("the program runs");
    let taken: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(taken["count"], 300);
    let output = fanin(&["lab-role", "coroutines", "cats", "300"]).output().expect("the program runs");
    assert_eq!(output.status.code(), Some(1));
}

/// Processes whose temporary files are below `dir`: those that a run has started.
#[cfg(target_os = "linux")]
fn children(dir: &Path) -> usize {
    let wanted = dir.to_str().expect("a path");
    let processes = std::fs::read_dir("/proc").expect("there").flatten();
    let ours = processes.filter(|entry| {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(wanted)
    });
    ours.count()
}

#[cfg(target_os = "linux")]
#[test]
fn a_signal_ends_it_and_nothing_is_left() {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};
    let dir = tempfile::tempdir().expect("a folder");
    let temporary = dir.path().join("tmp");
    std::fs::create_dir_all(&temporary).expect("made");
    let mut command = fanin(&["lab", "slow-backend", "sql", "--out"]);
    command.arg(dir.path().join("report")).env("TMPDIR", &temporary).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program runs");
    let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
    assert!(lines.next().expect("a line").expect("text").starts_with("[1/2] slow-backend"));
    // Until its first server runs, whose folder stands on its command line; the run itself names the report's.
    while children(&temporary) == 0 {
        std::thread::yield_now();
        assert!(child.try_wait().expect("asked").is_none(), "it ended by itself");
    }
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().expect("kill runs").success());
    assert_eq!(child.wait().expect("it ends").code(), Some(130));
    assert_eq!(children(&temporary), 0);
    assert_eq!(std::fs::read_dir(&temporary).expect("there").count(), 0);
    assert_eq!(lines.count(), 0, "it says nothing of what the signal ended");
}
