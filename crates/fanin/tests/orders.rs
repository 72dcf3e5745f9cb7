//! `examples/orders`, over a real PostgreSQL.

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

use common::{Serving, TIMEOUT, root};
use fanin_testbed::Server;

fn post(serving: &Serving, path: &str, body: &str) -> String {
    let mut stream =
        TcpStream::connect_timeout(&serving.listen.parse().expect("an address"), TIMEOUT).expect("connected");
    stream.set_read_timeout(Some(TIMEOUT)).expect("set");
    let length = body.len();
    write!(
        stream,
        "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

#[test]
fn three_queries_and_a_write() {
    let database = Server::postgres();
    let example = root().join("examples/orders");
    let filled = Command::new("psql")
        .args([&database.url, "-qX", "-v", "ON_ERROR_STOP=1", "-v", "rows=300", "-f"])
        .arg(example.join("data.sql"))
        .status();
    assert!(filled.expect("psql is installed with PostgreSQL: .ci/setup postgres").success());

    let dir = tempfile::tempdir().expect("a folder");
    let toml = std::fs::read_to_string(example.join("fanin.toml")).expect("the example");
    let at = "${DATABASE_URL:-postgres://fanin:secret@127.0.0.1:5432/postgres}";
    assert!(toml.contains(at));
    let toml = toml.replace(at, &database.url);
    let server = "[server]\nlisten = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\nworkers = 2\n";
    std::fs::write(dir.path().join("fanin.toml"), format!("{server}{toml}")).expect("written");
    std::fs::create_dir(dir.path().join("flows")).expect("a folder");
    std::fs::copy(example.join("flows/orders.star"), dir.path().join("flows/orders.star")).expect("copied");

    let serving = Serving::start(dir.path());
    for _ in 0..5 {
        let answer = serving.get("/orders?email=customer7@example.com");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert!(answer.contains(r#""customer":{"id":7,"name":"Customer 7","city":"Pune"}"#), "{answer}");
        assert!(answer.contains(r#""quantity":"#) && answer.contains(r#""placed":"2024-01-01T"#), "{answer}");
    }
    assert!(serving.get("/orders?email=nobody").starts_with("HTTP/1.1 404"));
    // Never spliced: a text that would end a literal is a text like any other.
    assert!(serving.get("/orders?email='%20or%20true--").starts_with("HTTP/1.1 404"));
    let answer = post(&serving, "/orders", r#"{"email": "customer7@example.com", "total": "19.90"}"#);
    assert!(answer.starts_with("HTTP/1.1 201") && answer.contains("\"total\":19.90"), "{answer}");
    assert!(serving.get("/orders?email=customer7@example.com").contains("\"total\":19.90"));
    // A value of the wrong kind is the caller's or the flow's mistake, and the database stays well.
    let answer = post(&serving, "/orders", r#"{"email": "customer7@example.com", "total": {}}"#);
    assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
    serving.logged("parameter 2 (total) of place is a dict; numeric needs a number");
    assert!(serving.get("/orders?email=customer7@example.com").starts_with("HTTP/1.1 200"));
}
