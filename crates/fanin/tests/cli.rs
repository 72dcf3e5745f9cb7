//! The program as a user runs it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

/// Nothing here may take longer.
const TIMEOUT: Duration = Duration::from_secs(60);

fn fanin(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fanin"));
    command.args(arguments).env_remove("RUST_LOG").env("NO_COLOR", "1").current_dir(root());
    command
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = fanin(arguments).output().expect("the program runs");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (status.code(), text(stdout), text(stderr))
}

/// A folder with a route `/echo/{id}` that calls nothing, on free ports.
fn service() -> TempDir {
    let dir = tempfile::tempdir().expect("a folder");
    let toml = "[server]\nlisten = '127.0.0.1:0'\nadmin = '127.0.0.1:0'\nworkers = 1\n\
                [[routes]]\npath = '/echo/{id}'\nflow = 'echo.star:echo'\n";
    std::fs::write(dir.path().join("fanin.toml"), toml).expect("written");
    std::fs::write(dir.path().join("echo.star"), "def echo(req):\n    return {\"id\": req.params[\"id\"]}\n")
        .expect("written");
    dir
}

/// A server that runs, and the lines that it logs.
struct Serving {
    child: Child,
    log: Receiver<String>,
    listen: String,
}

impl Serving {
    fn start(dir: &Path) -> Serving {
        let path = dir.to_str().expect("a path of text");
        let mut child =
            fanin(&["serve", path]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program runs");
        let stderr = BufReader::new(child.stderr.take().expect("piped"));
        let (sender, log) = channel();
        thread::spawn(move || stderr.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        let mut serving = Serving { child, log, listen: String::new() };
        let line = serving.logged("serving");
        let listen = line.split("listen=\"").nth(1).and_then(|rest| rest.split('"').next());
        serving.listen = listen.unwrap_or_else(|| panic!("no address in {line}")).to_owned();
        serving
    }

    /// Waits for a line of the log that has a text in it.
    fn logged(&self, part: &str) -> String {
        loop {
            match self.log.recv_timeout(TIMEOUT) {
                Ok(line) if line.contains(part) => return line,
                Ok(_) => {}
                Err(error) => panic!("no `{part}` in the log: {error}"),
            }
        }
    }

    fn get(&self, path: &str) -> String {
        let address = self.listen.parse().expect("an address");
        let mut stream = TcpStream::connect_timeout(&address, TIMEOUT).expect("connected");
        stream.set_read_timeout(Some(TIMEOUT)).expect("set");
        write!(stream, "GET {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n").expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    }

    #[cfg(unix)]
    fn signal(&self, name: &str) {
        let status = Command::new("kill").args([name, &self.child.id().to_string()]).status().expect("kill runs");
        assert!(status.success());
    }

    /// Waits for its end: status and access log.
    fn end(mut self) -> (Option<i32>, String) {
        loop {
            match self.log.recv_timeout(TIMEOUT) {
                Ok(_) => {}
                // Standard error closes when the process ends.
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("it does not end"),
            }
        }
        let mut access = String::new();
        self.child.stdout.take().expect("piped").read_to_string(&mut access).expect("text");
        (self.child.wait().expect("a status").code(), access)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // Only a test that has failed leaves it running.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_schema_is_json() {
    let (code, out, err) = run(&["schema"]);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    let schema: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(schema["title"], "fanin.toml");
}

#[test]
fn the_version_and_help_are_told() {
    assert_eq!(run(&["--version"]).1.trim(), concat!("fanin ", env!("CARGO_PKG_VERSION")));
    let (code, out, _) = run(&["demo", "--help"]);
    assert_eq!(code, Some(0));
    assert!(out.contains("fanin demo shop"), "{out}");
    assert_eq!(run(&["serve", "--nothing"]).0, Some(2));
}

#[test]
fn the_examples_are_all_right() {
    for example in ["examples/vacancies", "examples/shop"] {
        let (code, out, err) = run(&["check", example]);
        assert_eq!((code, out.trim()), (Some(0), format!("{example} is all right").as_str()), "{err}");
    }
}

#[test]
fn check_tells_everything_with_its_place() {
    let dir = service();
    let file = dir.path().join("fanin.toml");
    std::fs::write(&file, "[server]\nlimits = 1\n[upstreams.a]\nurl = 'nonsense'\n").expect("written");
    let path = dir.path().to_str().expect("text");

    let (code, out, err) = run(&["check", path]);
    assert_eq!((code, out.as_str()), (Some(1), ""));
    assert!(err.contains("fanin.toml:2:1") && err.contains("did you mean `limit`?"), "{err}");
    assert!(err.contains("fanin.toml:4:7") && err.contains("2 errors"), "{err}");

    let (code, out, err) = run(&["check", "--json", path]);
    assert_eq!((code, err.as_str()), (Some(1), ""));
    let told: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(told["ok"], false);
    assert_eq!(told["diagnostics"][0]["line"], 2);
    assert_eq!(told["diagnostics"][1]["file"], file.to_str().expect("text"));

    let (code, _, err) = run(&["serve", path]);
    assert_eq!(code, Some(1));
    assert!(err.contains("fanin.toml:2:1"), "{err}");
    assert_eq!(run(&["check", "/nowhere"]).0, Some(1));
}

#[test]
fn check_finds_what_is_wrong_with_flows() {
    let dir = service();
    std::fs::write(dir.path().join("echo.star"), "def echo(req):\n    return req.params[\"id\" + \n").expect("written");
    let (code, _, err) = run(&["check", dir.path().to_str().expect("text")]);
    assert_eq!(code, Some(1));
    assert!(err.contains("echo.star:"), "{err}");
}

#[cfg(unix)]
#[test]
fn it_serves_until_sigterm() {
    let dir = service();
    let serving = Serving::start(dir.path());
    let answer = serving.get("/echo/seven");
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("seven"), "{answer}");
    assert!(serving.get("/nothing").starts_with("HTTP/1.1 404 "));
    serving.signal("-TERM");
    let (code, access) = serving.end();
    assert_eq!(code, Some(0));
    let lines: Vec<Value> = access.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines.len(), 2, "{access}");
    assert_eq!((&lines[0]["status"], &lines[1]["status"]), (&Value::from(200), &Value::from(404)));
}

#[cfg(unix)]
#[test]
fn sighup_loads_anew_and_refuses_what_is_wrong() {
    let dir = service();
    let file = dir.path().join("fanin.toml");
    let text = std::fs::read_to_string(&file).expect("read").replace("[server]", "[server]\nreload = false");
    std::fs::write(&file, &text).expect("written");
    let serving = Serving::start(dir.path());
    assert!(serving.get("/echo/a").starts_with("HTTP/1.1 200 "));

    let second = "[[routes]]\npath = '/second/{id}'\nflow = 'echo.star:echo'\n";
    std::fs::write(&file, format!("{text}{second}")).expect("written");
    serving.signal("-HUP");
    serving.logged("reloaded");
    assert!(serving.get("/second/b").starts_with("HTTP/1.1 200 "));
    std::fs::write(&file, format!("{text}wrong = 1\n")).expect("written");
    serving.signal("-HUP");
    serving.logged("unknown key `wrong` in routes[0]");
    assert!(serving.get("/second/b").starts_with("HTTP/1.1 200 "), "the old one keeps serving");
    serving.signal("-TERM");
    assert_eq!(serving.end().0, Some(0));
}

#[test]
fn both_demos_show_what_they_promise() {
    for (example, calls) in [("vacancies", 8), ("shop", 12)] {
        let (code, out, err) = run(&["demo", example, "--once"]);
        assert_eq!(code, Some(0), "{out}\n{err}");
        assert!(!out.contains("FAILED"), "{out}");
        let bars = out.lines().filter(|line| line.contains('█') && line.contains(".star:")).count();
        assert!(bars >= calls, "{bars} calls in\n{out}");
        assert!(out.contains("after "), "{out}");
    }
}
