//! A snapshot whose service says all at once that there is nothing.

mod common;

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;

use common::Serving;

/// Has a table of two rows the first time, and an empty one from then on.
fn masks() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = listener.local_addr().expect("an address").to_string();
    thread::spawn(move || {
        let mut table = r#"[{"name":"short","attributes":["x"]},{"name":"long","attributes":["x","y"]}]"#;
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|read| read == 1) {
                head.push(byte[0]);
            }
            if head.is_empty() {
                continue;
            }
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n";
            // A client that has left is told nothing.
            let _ = write!(stream, "{head}content-length: {}\r\n\r\n{table}", table.len());
            table = "[]";
        }
    });
    address
}

#[test]
fn an_empty_table_does_not_replace_one_with_rows_and_is_logged() {
    let dir = tempfile::tempdir().expect("a folder");
    let toml = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\nadmin = \"off\"\n[upstreams.masks]\nurl = \"http://{}\"\n\
         snapshot = {{ path = \"/masks\", key = \"name\", every = \"50ms\" }}\n[[routes]]\npath = \"/\"\nflow = \"flows.star:mask\"\n",
        masks()
    );
    std::fs::write(dir.path().join("fanin.toml"), toml).expect("written");
    let flow = "load(\"@upstreams\", \"masks\")\ndef mask(req):\n    return masks.lookup(\"long\")\n";
    std::fs::write(dir.path().join("flows.star"), flow).expect("written");
    let serving = Serving::start(dir.path());
    let warning = serving.logged("the snapshot stays as it is");
    assert!(warning.contains("WARN") && warning.contains("upstream=masks"), "{warning}");
    assert!(
        warning.contains("the new table is empty, the old one has 2 rows (allow_empty = true accepts it)"),
        "{warning}"
    );
    let answer = serving.get("/");
    assert!(answer.ends_with(r#"{"name":"long","attributes":["x","y"]}"#), "{answer}");
}
