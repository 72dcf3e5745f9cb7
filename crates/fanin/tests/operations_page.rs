//! `docs/operations.md` lists exactly the metrics and admin pages of a running server, and no other page names a metric that
//! does not exist.
#![cfg(unix)]

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

use common::{Serving, TIMEOUT, root};

/// Something of each kind that has metrics of its own. Nothing listens on the upstreams' port.
const TOML: &str = r#"
[server]
listen = "127.0.0.1:0"
admin = "127.0.0.1:0"
heap_profile = "1MiB"
workers = 1

[upstreams.catalog]
url = "http://127.0.0.1:9"
breaker = "off"

[upstreams.catalog.operations.products]
path = "/products"
params = { ids = "list" }
batch = { key = "ids" }
cache = { ttl = "1s" }

[upstreams.masks]
url = "http://127.0.0.1:9"
snapshot = { path = "/masks", every = "5m", key = "name" }

[models]
repository = "models"

[otlp]
endpoint = "http://127.0.0.1:9"

[auth.shop]
kind = "jwt"
issuers = []
audiences = []
upstream = "catalog"

[rate_limits.client]
requests = 1000
per = "1s"

[[routes]]
path = "/"
flow = "flow.star:page"
rate_limit = "client"
objective = "99 % < 200 ms"

[[routes]]
path = "/threads"
flow = "flow.star:page"
executor = { threads = 1 }
"#;

/// Waits at one line often enough to be counted for it.
const FLOW: &str = r#"
load("@upstreams", "catalog")

def page(req):
    for n in range(20):
        if catalog.get("/%d" % n, optional = True):
            return n
    return None
"#;

fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect_timeout(&address.parse().expect("an address"), TIMEOUT).expect("connected");
    stream.set_read_timeout(Some(TIMEOUT)).expect("set");
    write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

/// A running server with all of [`TOML`], the address of its admin pages, and its folder.
fn serving() -> (Serving, String, tempfile::TempDir) {
    let dir = tempfile::tempdir().expect("a folder");
    fs::create_dir(dir.path().join("models")).expect("created");
    fs::write(dir.path().join("fanin.toml"), TOML).expect("written");
    fs::write(dir.path().join("flow.star"), FLOW).expect("written");
    let mut serving = Serving::unnamed(dir.path());
    let line = serving.logged("serving");
    let part = |name: &str| line.split(&format!("{name}=\"")).nth(1).and_then(|rest| rest.split('"').next());
    serving.listen = part("listen").expect("an address").to_owned();
    let admin = part("admin").expect("an address").to_owned();
    (serving, admin, dir)
}

/// Names as queries use them: counters end in `_total`, information in `_info`.
fn names_of_the_server() -> BTreeSet<String> {
    let (serving, admin, _dir) = serving();
    let response = serving.get("/");
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    let page = get(&admin, "/metrics");
    let types = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    types
        .map(|(name, kind)| match kind {
            "counter" => format!("{name}_total"),
            "info" => format!("{name}_info"),
            _ => name.to_owned(),
        })
        .collect()
}

/// Every `fanin_...` between backquotes; labels in braces do not belong to the name.
fn names_of_a_page(text: &str) -> BTreeSet<String> {
    let code = text.split('`').filter(|code| code.starts_with("fanin_") && !code.contains(['.', '\n']));
    code.map(|code| code.split('{').next().unwrap_or_default().to_owned()).collect()
}

fn pages(folder: &Path, found: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            pages(&path, found);
        } else if path.extension().is_some_and(|end| end == "md") {
            found.push((path.display().to_string(), fs::read_to_string(&path).expect("a page")));
        }
    }
}

#[test]
fn the_page_lists_the_metrics_of_the_server() {
    let served = names_of_the_server();
    let mut found = Vec::new();
    pages(&root().join("docs"), &mut found);
    let mut listed = BTreeSet::new();
    for (path, text) in &found {
        let names = names_of_a_page(text);
        let unknown: Vec<_> = names.difference(&served).collect();
        assert!(unknown.is_empty(), "{path} names metrics that do not exist: {unknown:?}");
        if path.ends_with("docs/operations.md") {
            listed = names;
        }
    }
    let missing: Vec<_> = served.difference(&listed).collect();
    assert!(missing.is_empty(), "docs/operations.md does not list {missing:?}");
}

#[test]
fn the_page_lists_the_admin_pages() {
    let (_serving, admin, _dir) = serving();
    let text = fs::read_to_string(root().join("docs/operations.md")).expect("the page");
    let rows = |method: &str| -> Vec<String> {
        let start = format!("| `{method} /");
        text.lines().filter_map(|line| Some(format!("/{}", line.strip_prefix(&start)?.split('`').next()?))).collect()
    };
    let (pages, posts) = (rows("GET"), rows("POST"));
    assert!(pages.len() >= 5, "{pages:?}");
    for page in &pages {
        // The profile itself is binary.
        let query = if page == "/debug/heap" { "?format=text" } else { "" };
        let answer = get(&admin, &format!("{page}{query}"));
        assert!(answer.starts_with("HTTP/1.1 200"), "{page}: {answer}");
    }
    for page in &posts {
        let answer = get(&admin, page);
        assert!(answer.starts_with("HTTP/1.1 405"), "{page}: {answer}");
    }
    // The error for an unknown page lists those that exist.
    let answer = get(&admin, "/no-such-page");
    let body = answer.split("\r\n\r\n").nth(1).expect("a body");
    let problem: serde_json::Value = serde_json::from_str(body).expect("JSON");
    for page in problem["pages"].as_array().expect("a list") {
        let page = page.as_str().expect("a path").to_owned();
        assert!(pages.contains(&page) || posts.contains(&page), "docs/operations.md does not list {page}");
    }
}
