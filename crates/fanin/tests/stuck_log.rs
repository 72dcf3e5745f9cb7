//! A server whose standard output and standard error are pipes that nobody reads goes on serving.
#![cfg(unix)]

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};

use common::{TIMEOUT, fanin};
use tempfile::TempDir;

const FLOW: &str = r#"
def page(req):
    log("a line of the flow", text = "x" * 60000)
    return {"answered": True}
"#;

const CONFIG: &str = r#"[server]
listen = "127.0.0.1:0"
admin = "127.0.0.1:0"
workers = 2

[flow]
max_log_rate = 1000000

[[routes]]
path = "/{*rest}"
flow = "flow.star:page"
"#;

/// Killed when dropped: at its end it would wait for its readers for a moment.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn ask(address: &str, method: &str, path: &str) -> String {
    let mut stream = TcpStream::connect_timeout(&address.parse().expect("an address"), TIMEOUT).expect("connected");
    stream.set_read_timeout(Some(TIMEOUT)).expect("set");
    write!(stream, "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
        .expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

fn count(metrics: &str, name: &str) -> u64 {
    let values = metrics.lines().filter(|line| line.starts_with(name)).filter_map(|line| line.rsplit(' ').next());
    values.map(|value| value.parse::<u64>().expect("a number")).sum()
}

#[test]
fn requests_and_reloads_go_on_while_nobody_reads_the_logs() {
    let dir = TempDir::new().expect("a folder");
    std::fs::write(dir.path().join("flow.star"), FLOW).expect("written");
    std::fs::write(dir.path().join("fanin.toml"), CONFIG).expect("written");
    let mut command = fanin(&["serve", dir.path().to_str().expect("a path of text")]);
    let mut server = Killed(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program runs"));
    // Nothing is read of standard output, and nothing of standard error from this line on.
    let mut stderr = BufReader::new(server.0.stderr.take().expect("piped"));
    let mut line = String::new();
    while !line.contains("serving") {
        line.clear();
        assert_ne!(stderr.read_line(&mut line).expect("text"), 0, "it has ended");
    }
    let part = |key: &str| {
        let rest = line.split(&format!("{key}=\"")).nth(1).unwrap_or_else(|| panic!("no {key} in {line}"));
        rest.split('"').next().expect("a first part").to_owned()
    };
    let (listen, admin) = (part("listen"), part("admin"));

    let long = format!("/{}", "p".repeat(6000));
    let mut metrics = String::new();
    // Each request is 60 kB for the program log and 6 kB for the access log; the queues hold 4 MB each.
    for round in 0..100 {
        for _ in 0..20 {
            let answer = ask(&listen, "GET", &long);
            assert!(answer.starts_with("HTTP/1.1 200"), "round {round}: {answer}");
        }
        metrics = ask(&admin, "GET", "/metrics");
        let dropped = |name| count(&metrics, name) > 0;
        if dropped("fanin_log_lines_dropped_total ") && dropped("fanin_access_log_dropped_total") {
            break;
        }
    }
    assert!(count(&metrics, "fanin_log_lines_dropped_total ") > 0, "{metrics}");
    assert!(count(&metrics, "fanin_access_log_dropped_total") > 0, "{metrics}");

    // A reload that also changes where the access log goes, and a broken one, which logs its error.
    let file = dir.path().join("access.log");
    let moved = CONFIG.replace("workers = 2", &format!("workers = 2\naccess_log = \"{}\"", file.display()));
    std::fs::write(dir.path().join("fanin.toml"), moved).expect("written");
    assert!(ask(&admin, "POST", "/reload").starts_with("HTTP/1.1 200"));
    std::fs::write(dir.path().join("fanin.toml"), "[[routes]]\n").expect("written");
    assert!(ask(&admin, "POST", "/reload").starts_with("HTTP/1.1 422"));
    assert!(ask(&listen, "GET", "/a").starts_with("HTTP/1.1 200"));

    // The pipe is read again: the log says how many lines it lacks.
    line.clear();
    while !line.contains("lines of the log were dropped") {
        line.clear();
        assert_ne!(stderr.read_line(&mut line).expect("text"), 0, "it has ended");
    }
}
