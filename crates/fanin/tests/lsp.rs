//! The language server, as editors drive it.
#![cfg(feature = "lsp")]

mod common;

use std::io::{Read, Write};
use std::process::{Command, Stdio};

use common::{fanin, root};

#[test]
fn a_client_gets_diagnostics_hover_completion_definitions_renaming_and_formatting() {
    let folder = tempfile::tempdir().expect("a folder");
    let python = root().join(".venv/lsp/bin/python");
    assert!(python.exists(), "run .ci/setup lsp");
    let output = Command::new(python)
        .arg(root().join("crates/fanin/tests/lsp/client.py"))
        .args([env!("CARGO_BIN_EXE_fanin").as_ref(), root().as_os_str(), folder.path().as_os_str()])
        .output()
        .expect("Python runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(text(&output.stdout).contains("all is right"), "{}\n{}", text(&output.stdout), text(&output.stderr));
}

/// Sends bytes, then closes the input. Gives what the server wrote.
fn exchange(input: &[u8]) -> String {
    let mut child = fanin(&["lsp"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program runs");
    let mut stdin = child.stdin.take().expect("piped");
    let input = input.to_vec();
    let writer = std::thread::spawn(move || stdin.write_all(&input).is_ok());
    let mut out = String::new();
    child.stdout.take().expect("piped").read_to_string(&mut out).expect("text");
    child.wait().expect("it ends");
    assert!(writer.join().expect("it ends"), "all was read");
    out
}

fn message(body: &str) -> String {
    format!("Content-Length: {}\r\n\r\n{body}", body.len())
}

#[test]
fn malformed_and_huge_input_does_not_end_the_server() {
    let begin = message(r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"capabilities":{}}}"#);
    let end = message(r#"{"jsonrpc":"2.0","id":2,"method":"shutdown"}"#);
    let open = |text: &str| {
        let text = serde_json::Value::from(text);
        message(&format!(
            r#"{{"jsonrpc":"2.0","method":"textDocument/didOpen","params":{{"textDocument":{{"uri":"file:///nowhere/a.star","languageId":"starlark","version":1,"text":{text}}}}}}}"#
        ))
    };
    let bad = [
        message("{{{"),
        message(r#"{"jsonrpc":"2.0","id":7,"method":"textDocument/hover","params":7}"#),
        message(r#"{"jsonrpc":"2.0","method":"textDocument/didOpen","params":{}}"#),
        "nonsense\r\n\r\n".to_owned(),
        message(&" ".repeat(17 << 20)),
        open(&"(".repeat(100_000)),
        open(&"x = 1\n".repeat(900_000)),
        open("\"\u{0}\\"),
    ];
    for bad in bad {
        let out = exchange(format!("{begin}{bad}{end}").as_bytes());
        assert!(out.contains(r#""id":2,"result":null"#), "{}: {out}", &bad[..bad.len().min(60)]);
    }
    assert!(!exchange(end.as_bytes()).contains("result"), "nothing is answered before it is initialized");
}
