//! A heap profile of the running program.
#![cfg(unix)]

mod common;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;

use common::{Serving, TIMEOUT};

fn serving(more: &str) -> (Serving, String, tempfile::TempDir) {
    let dir = tempfile::tempdir().expect("a folder");
    let toml = format!("[server]\nlisten = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\nworkers = 1\n{more}");
    fs::write(dir.path().join("fanin.toml"), toml).expect("written");
    let mut serving = Serving::unnamed(dir.path());
    let line = serving.logged("serving");
    let part = |name: &str| line.split(&format!("{name}=\"")).nth(1).and_then(|rest| rest.split('"').next());
    serving.listen = part("listen").expect("an address").to_owned();
    let admin = part("admin").expect("an address").to_owned();
    (serving, admin, dir)
}

fn get(address: &str, path: &str) -> (String, Vec<u8>) {
    let mut stream = TcpStream::connect_timeout(&address.parse().expect("an address"), TIMEOUT).expect("connected");
    stream.set_read_timeout(Some(TIMEOUT)).expect("set");
    write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").expect("sent");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    let end = answer.windows(4).position(|part| part == b"\r\n\r\n").expect("a head");
    (String::from_utf8_lossy(&answer[..end]).into_owned(), answer[end + 4..].to_vec())
}

#[test]
fn a_running_server_tells_where_its_memory_went() {
    let (_serving, admin, _dir) = serving("heap_profile = \"1KiB\"\n");
    let (head, body) = get(&admin, "/debug/heap?format=text");
    let text = String::from_utf8_lossy(&body);
    assert!(head.starts_with("HTTP/1.1 200") && text.contains("allocations live at"), "{head}\n{text}");
    // A worker's runtime lives, and the lines that made it are told.
    assert!(text.contains("fanin_server::worker") && text.contains(".rs:"), "{text}");
    // Nobody asks for the lines of the allocator, which would be the first of each site.
    let sites = text.split("\n\n").skip(1).filter_map(|site| site.lines().nth(1));
    let innermost: Vec<&str> = sites.collect();
    assert!(innermost.iter().all(|call| !call.contains("/fanin-heap/") && !call.contains("/alloc/src/alloc.rs")));
    let (head, named) = get(&admin, "/debug/heap");
    assert!(head.starts_with("HTTP/1.1 200") && named.starts_with(&[0x1f, 0x8b]), "{head}");
    let (head, bare) = get(&admin, "/debug/heap?names=no");
    assert!(head.starts_with("HTTP/1.1 200") && bare.starts_with(&[0x1f, 0x8b]), "{head}");
    assert!(bare.len() < named.len() / 2, "{} and {} bytes", bare.len(), named.len());
}

#[test]
fn there_is_no_profile_unless_it_is_asked_for() {
    let (_serving, admin, _dir) = serving("");
    assert!(get(&admin, "/debug/heap").0.starts_with("HTTP/1.1 404"));
}
