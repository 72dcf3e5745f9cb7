//! Time to validate, and to validate and index, bodies as backends send them; beside `serde_json`.
//!
//! `cargo run --release -p fanin-json --example validate_speed`

use std::fmt::Write;
use std::hint::black_box;
use std::time::Instant;

use bytes::Bytes;
use fanin_json::Doc;

fn item() -> String {
    let mut body = String::from(
        r#"{"kind":"a","id":12345,"name":"item-a","price":129.95,"active":true,"tags":["red","green","blue"],"nested":{"x":1,"y":2.5,"z":null},"list":["#,
    );
    for i in 0..10 {
        let comma = if i == 0 { "" } else { "," };
        let _ = write!(body, r#"{comma}{{"n":{i},"title":"Title number {i} of list","score":{}.{i}}}"#, i * 3);
    }
    body.push_str(r#"],"text":""#);
    while body.len() < 1015 {
        body.push_str("lorem ipsum ");
    }
    body + r#""}"#
}

fn vacancies(description: &str) -> String {
    let mut body = String::from(r#"{"items":["#);
    for i in 0..20 {
        let start = body.len();
        let comma = if i == 0 { "" } else { "," };
        let _ = write!(
            body,
            r#"{comma}{{"id":{},"title":"Senior Rust Developer {i}","salary":{{"from":{},"to":{},"cur":"EUR"}},"employer":{{"id":{},"name":"Company {i}"}},"remote":true,"skills":["rust","tokio","http"],"desc":""#,
            1001 + i,
            50000 + i,
            70000 + i,
            i * 7
        );
        while body.len() - start < 495 {
            body.push_str(description);
        }
        body.push_str(r#""}"#);
    }
    body + r#"],"total":20}"#
}

fn numbers() -> String {
    let rows: Vec<String> = (0..1000).map(|i| format!(r#"{{"id":{},"v":{}.{}}}"#, i * 37, i, i * i)).collect();
    format!("[{}]", rows.join(","))
}

fn indented(body: &str) -> String {
    Doc::parse(Bytes::copy_from_slice(body.as_bytes()), 128)
        .map(|doc| String::from_utf8_lossy(&fanin_json::indent(&doc, "", "  ")).into_owned())
        .unwrap_or_default()
}

/// Best of some rounds: the machine's noise only adds.
fn time(name: &str, body: &Bytes, mut run: impl FnMut(&Bytes) -> bool) {
    let times = (20_000_000 / body.len()).max(10);
    let mut best = f64::MAX;
    for _ in 0..9 {
        let start = Instant::now();
        for _ in 0..times {
            assert!(run(black_box(body)), "the body is valid");
        }
        best = best.min(start.elapsed().as_secs_f64() * 1e9 / times as f64);
    }
    println!("  {name:24} {best:9.0} ns  {:6.2} GB/s", body.len() as f64 / best);
}

fn main() {
    let vacancy = vacancies("work description ");
    for (name, body) in [
        ("item", item()),
        ("vacancies", vacancy.clone()),
        ("vacancies, Cyrillic", vacancies("описание вакансии ")),
        ("numbers", numbers()),
        ("vacancies, indented", indented(&vacancy)),
    ] {
        let body = Bytes::from(body);
        println!("{name} ({} bytes)", body.len());
        time("validate", &body, |body| Doc::parse(body.clone(), 128).is_ok());
        time("validate and index", &body, |body| {
            Doc::parse(body.clone(), 128).is_ok_and(|doc| doc.root().len().is_some())
        });
        time("serde_json, ignored", &body, |body| serde_json::from_slice::<serde::de::IgnoredAny>(body).is_ok());
    }
}
