//! The generated programs of `reference/` through the language server: it reports no error in a program that `fanin check` accepts.
#![cfg(all(unix, feature = "lsp"))]

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use common::{fanin, run};
use serde_json::{Value, json};

// Only the generators: what they are compared with takes minutes to compile.
#[allow(dead_code)]
#[path = "../../../reference/src/areas/mod.rs"]
mod areas;
#[allow(dead_code)]
#[path = "../../../reference/src/tape.rs"]
mod tape;

/// A generated program, as in `reference/`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// Name and text of each file.
    pub files: Vec<(String, String)>,
}

const TOML: &str = "[[routes]]\npath = \"/\"\nflow = \"main.star:route\"\n";

/// What programs use that flows do not have, and a flow that runs the program.
const BEFORE: &str = "def emit(*values):\n    return None\n\n";
const AFTER: &str = "\ndef route(req):\n    return main()\n";

/// A language server and its client.
struct Server {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    version: i32,
}

impl Server {
    fn start() -> Server {
        let mut command = fanin(&["lsp"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it runs");
        let to = child.stdin.take().expect("piped");
        let from = BufReader::new(child.stdout.take().expect("piped"));
        let mut server = Server { child, to, from, version: 0 };
        server.send(&json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"capabilities": {}}}));
        server
    }

    fn send(&mut self, message: &Value) {
        let text = message.to_string();
        write!(self.to, "Content-Length: {}\r\n\r\n{text}", text.len()).expect("sent");
        self.to.flush().expect("sent");
    }

    /// Opens a file with this text, or changes it, and gives its errors.
    fn errors(&mut self, file: &Path, text: &str) -> Vec<Value> {
        self.version += 1;
        let uri = format!("file://{}", file.display());
        let message = if self.version == 1 {
            let document = json!({"uri": uri, "languageId": "starlark", "version": 1, "text": text});
            json!({"jsonrpc": "2.0", "method": "textDocument/didOpen", "params": {"textDocument": document}})
        } else {
            let params =
                json!({"textDocument": {"uri": uri, "version": self.version}, "contentChanges": [{"text": text}]});
            json!({"jsonrpc": "2.0", "method": "textDocument/didChange", "params": params})
        };
        self.send(&message);
        loop {
            let mut length = 0;
            loop {
                let mut line = String::new();
                assert!(self.from.read_line(&mut line).expect("it can be read") > 0, "the server has ended");
                match line.trim().split_once(": ") {
                    Some((_, value)) => length = value.parse().expect("a length"),
                    None => break,
                }
            }
            let mut body = vec![0; length];
            self.from.read_exact(&mut body).expect("a message");
            let message: Value = serde_json::from_slice(&body).expect("JSON");
            let params = &message["params"];
            if params["uri"] == uri.as_str() && params["version"] == self.version {
                let all = params["diagnostics"].as_array().expect("a list").iter();
                return all.filter(|one| one["severity"] == 1).cloned().collect();
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn no_program_that_is_accepted_has_an_error() {
    let count = std::env::var("FANIN_REFERENCE_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(12);
    let dir = tempfile::tempdir().expect("a folder");
    let folder = dir.path().canonicalize().expect("a folder");
    fs::write(folder.join("fanin.toml"), TOML).expect("written");
    let mut server = Server::start();
    let (mut clean, mut refused) = (0, 0);
    for area in &areas::AREAS {
        for number in 0..count {
            let program = areas::write(area, &areas::tape(area, number, 2026));
            let (main, loaded) = program.files.split_last().expect("at least one file");
            for (name, text) in loaded {
                fs::write(folder.join(name), format!("{BEFORE}{text}")).expect("written");
            }
            // Loads come first in a file.
            let (loads, rest): (Vec<&str>, Vec<&str>) = main.1.lines().partition(|line| line.starts_with("load("));
            let text = format!("{}\n{BEFORE}{}\n{AFTER}", loads.join("\n"), rest.join("\n"));
            let file = folder.join(&main.0);
            fs::write(&file, &text).expect("written");
            let errors = server.errors(&file, &text);
            if errors.is_empty() {
                clean += 1;
                continue;
            }
            // Some programs are wrong on purpose.
            refused += 1;
            let (status, ..) = run(&["check", folder.to_str().expect("a path of text")]);
            assert_eq!(status, Some(1), "area {}, program {number}: {errors:?}\n{text}", area.name);
        }
    }
    println!("{clean} programs without an error, {refused} that `check` refuses, too");
    assert!(clean >= areas::AREAS.len() * count * 6 / 10, "only {clean}");
}
