//! The dashboard in a real browser, and `fanin top`: with a server that has calls to show, and one that has none.
#![cfg(unix)]

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{Serving, TIMEOUT, fanin, run};
use fanin_testbed::tab::Tab;
use serde_json::Value;

const FLOWS: &str = r#"load("@upstreams", "catalog", "prices", "broken")

def page(req):
    product = catalog.products(ids = ["1", "2"])
    prices.get("/prices", query = {"of": product["1"]["id"]}, optional = True)
    return {"product": product["1"]}

def failing(req):
    return broken.get("/nothing")
"#;

/// An upstream that answers everything with the same JSON.
fn upstream() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || answer(stream));
        }
    });
    address
}

fn answer(mut stream: TcpStream) {
    let mut lines = BufReader::new(stream.try_clone().expect("a socket")).lines().map_while(Result::ok);
    while lines.next().is_some() {
        while lines.next().is_some_and(|line| !line.is_empty()) {}
        let body = r#"{"1":{"id":"1"},"2":{"id":"2"}}"#;
        let length = body.len();
        let head = format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n");
        if stream.write_all((head + body).as_bytes()).is_err() {
            return;
        }
    }
}

fn folder(server: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a folder");
    let upstream = upstream();
    let toml = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\naccess_log = \"off\"\nqueueing = \"off\"\n{server}\n\
         [upstreams.catalog]\nurl = \"http://{upstream}\"\nlimit = 50\n\
         [upstreams.catalog.operations.products]\npath = \"/products\"\nparams = {{ ids = \"list\" }}\n\
         batch = {{ key = \"ids\" }}\ncache = {{ ttl = \"1s\" }}\n\
         [upstreams.prices]\nurl = \"http://{upstream}\"\n\
         [upstreams.broken]\nurl = \"http://127.0.0.1:9\"\nretry = \"off\"\n\
         [[routes]]\npath = \"/products/{{id}}\"\nflow = \"flows.star:page\"\n\
         [[routes]]\npath = \"/failing\"\nflow = \"flows.star:failing\"\n"
    );
    std::fs::write(dir.path().join("fanin.toml"), toml).expect("written");
    std::fs::write(dir.path().join("flows.star"), FLOWS).expect("written");
    dir
}

/// Requests until it is dropped.
struct Load(Arc<AtomicBool>);

impl Load {
    fn on(address: &str) -> Load {
        let goes_on = Arc::new(AtomicBool::new(true));
        let (still, address) = (goes_on.clone(), address.parse().expect("an address"));
        thread::spawn(move || {
            for count in 0.. {
                if !still.load(Ordering::Relaxed) {
                    return;
                }
                let path = if count % 10 == 9 { "/failing" } else { "/products/1" };
                let Ok(mut stream) = TcpStream::connect_timeout(&address, TIMEOUT) else { return };
                let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
                let mut answer = String::new();
                let _ = stream.write_all(request.as_bytes()).and_then(|()| stream.read_to_string(&mut answer));
                thread::park_timeout(Duration::from_millis(10));
            }
        });
        Load(goes_on)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

fn get(address: &str, path: &str) -> String {
    get_as("localhost", address, path)
}

/// With another `Host`.
fn get_as(host: &str, address: &str, path: &str) -> String {
    let address = address.parse().expect("an address");
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT).expect("connected");
    stream.set_read_timeout(Some(TIMEOUT)).expect("set");
    write!(stream, "GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n").expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

fn data(admin: &str) -> Value {
    let answer = get(admin, "/dashboard/data?window=60&series=1");
    serde_json::from_str(answer.split("\r\n\r\n").nth(1).expect("a body")).expect("JSON")
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < TIMEOUT, "{what}");
        thread::park_timeout(Duration::from_millis(100));
    }
}

const SERVED: &str = "document.querySelector('#route-table tbody') && \
    document.querySelector('#route-table tbody').innerText.includes('/s') && \
    document.querySelectorAll('#chart-responses path').length > 0";

#[test]
fn the_page_shows_what_the_server_does() {
    let dir = folder("");
    let serving = Serving::start(dir.path());
    let _load = Load::on(&serving.listen);
    let mut tab = Tab::open(&format!("http://{}/dashboard", serving.admin));
    tab.wait_for(SERVED);

    // Each section has its data, and the failing upstream is named as a problem.
    let text = |tab: &mut Tab, id: &str| {
        tab.evaluate(&format!("document.getElementById('{id}').innerText")).as_str().unwrap_or("").to_owned()
    };
    tab.wait_for("document.getElementById('problem-list').innerText.includes('broken')");
    let routes = text(&mut tab, "route-table");
    assert!(routes.contains("GET /products/{id}") && routes.contains("ms"), "{routes}");
    let upstreams = text(&mut tab, "upstream-table");
    assert!(
        upstreams.contains("catalog") && upstreams.contains("of 50") && upstreams.contains("closed"),
        "{upstreams}"
    );
    tab.wait_for("document.getElementById('cache-table').innerText.includes('%')");
    let models = text(&mut tab, "model-table");
    assert!(models.contains("[models]"), "an empty state says how to change it: {models}");
    tab.wait_for("document.getElementById('plan').innerText.includes('catalog.products')");
    let plan = text(&mut tab, "plan");
    assert!(plan.contains("Round 2") && plan.contains("needs catalog.products") && plan.contains("p50"), "{plan}");
    assert!(tab.evaluate("document.querySelectorAll('#plan .edges path').length").as_i64() >= Some(2));
    tab.wait_for("document.querySelectorAll('#problem-list li').length > 0 && document.title.startsWith('(')");

    // By keyboard: the window, pause, a chart's cursor, a sorted table.
    tab.press("3");
    assert_eq!(tab.evaluate("document.querySelector('input[name=window]:checked').value"), "300");
    tab.wait_for("document.querySelector('#route-table caption').innerText.includes('over the last')");
    tab.press("p");
    assert_eq!(tab.evaluate("document.getElementById('pause').getAttribute('aria-pressed')"), "true");
    tab.press("p");
    tab.press("u");
    assert_eq!(tab.evaluate("document.activeElement.id"), "upstreams");
    tab.evaluate("document.querySelector('#chart-latency svg').focus()");
    let value = "document.querySelector('#chart-latency svg').getAttribute('aria-valuetext')";
    assert!(tab.evaluate(value).as_str().is_some_and(|text| text.starts_with("Now: p50")));
    tab.wait_for("document.querySelector('#chart-latency svg').getAttribute('aria-valuemax') > 2");
    tab.press("ArrowLeft");
    let past = tab.evaluate(value).as_str().unwrap_or("").to_owned();
    assert!(past.as_bytes().get(2) == Some(&b':') && past.contains("p99"), "{past}");
    tab.press("Escape");
    tab.evaluate("document.querySelector('#route-table th:nth-child(4) button').focus()");
    tab.press("Enter");
    tab.wait_for("document.querySelector('#route-table th:nth-child(4)').getAttribute('aria-sort') === 'descending'");
    tab.wait_for("document.querySelector('#route-table tbody th').innerText.includes('/failing')");

    // By tabulator, everything that can be used is reached, and shows its focus.
    tab.evaluate("document.activeElement.blur()");
    let mut reached = Vec::new();
    for _ in 0..60 {
        tab.press("Tab");
        let name = "(() => { const e = document.activeElement; return e.id || e.name || e.innerText || e.getAttribute('aria-label'); })()";
        reached.push(tab.evaluate(name).as_str().unwrap_or("").to_owned());
    }
    for part in ["window", "pause", "GET /products/{id}", "Routes", "plan-route"] {
        assert!(reached.iter().any(|name| name.contains(part)), "{part} is not in {reached:?}");
    }

    // What a screen reader finds: everything that can be used has a name.
    let found = tab.accessible();
    for (role, name) in &found {
        let needs_name =
            matches!(role.as_str(), "button" | "link" | "slider" | "radio" | "table" | "combobox" | "region" | "image");
        assert!(!needs_name || !name.trim().is_empty(), "a {role} without a name");
    }
    for (role, name) in [
        ("slider", "Requests in progress, by time"),
        ("slider", "Time of requests, by time"),
        ("rowheader", "GET /products/{id}"),
        ("columnheader", "p99"),
        ("radio", "5 min"),
        ("heading", "Upstreams"),
        ("navigation", "Sections"),
        ("combobox", "Route"),
    ] {
        let is_there = found.iter().any(|(other, text)| other == role && text.starts_with(name));
        assert!(is_there, "no {role} {name} in {found:?}");
    }

    // On a phone nothing is wider than the screen, and tables become cards with labels.
    tab.resize(360, 740, true);
    tab.wait_for("getComputedStyle(document.querySelector('#route-table tbody tr')).display === 'grid'");
    let wide = "[...document.querySelectorAll('body *')].filter((e) => !e.closest('nav, .falls, .plan, .scroll, pre, .hidden, .skip, thead, svg') \
                && e.getBoundingClientRect().right > innerWidth + 1).map((e) => e.outerHTML.slice(0, 120))";
    tab.wait_for(&format!("{wide}.length === 0"));
    assert_eq!(tab.evaluate("document.documentElement.scrollWidth"), 360);
    let found = tab.accessible();
    for role in ["table", "rowheader", "cell"] {
        assert!(found.iter().any(|(other, _)| other == role), "no {role} on a phone");
    }

    // Dark and light differ, and text can be read in both.
    for dark in [true, false] {
        tab.prefer_dark(dark);
        let contrast = tab.evaluate(CONTRAST);
        assert!(contrast.as_f64() >= Some(4.5), "dark: {dark}, contrast {contrast}");
    }
    assert_eq!(tab.take_errors(), Vec::<String>::new());
}

/// The lowest contrast of text to what is behind it, of those colours that carry meaning.
const CONTRAST: &str = r#"(() => {
  const channels = (text) => text.match(/[\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((c) => { c /= 255; return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; })
    .reduce((sum, c, at) => sum + c * [0.2126, 0.7152, 0.0722][at], 0);
  const behind = (node) => {
    for (; node; node = node.parentElement) {
      const color = channels(getComputedStyle(node).backgroundColor);
      if (color.length === 3 || color[3] === 1) return color;
    }
    return [255, 255, 255];
  };
  const ratios = [...document.querySelectorAll("p, td, th, dt, dd, li, button, a, h2, .tag, .sub, .state")]
    .filter((node) => node.offsetParent && node.innerText.trim()).map((node) => {
      const [a, b] = [light(channels(getComputedStyle(node).color)), light(behind(node))].sort((x, y) => y - x);
      return (a + 0.05) / (b + 0.05);
    });
  return Math.min(...ratios);
})()"#;

#[test]
fn the_page_asks_for_the_token() {
    let dir = folder("admin_token_file = \"admin.token\"");
    std::fs::write(dir.path().join("admin.token"), "s3cret\n").expect("written");
    let serving = Serving::start(dir.path());
    assert!(get(&serving.admin, "/dashboard/data").starts_with("HTTP/1.1 401"));
    assert!(get(&serving.admin, "/dashboard/plans").starts_with("HTTP/1.1 401"));
    let mut tab = Tab::open(&format!("http://{}/dashboard", serving.admin));
    tab.wait_for("!document.getElementById('token').hidden");
    tab.wait_for("document.activeElement.id === 'token-text'");
    assert_eq!(tab.evaluate("document.getElementById('content').hidden"), true);
    tab.type_text("wrong");
    tab.press("Enter");
    tab.wait_for("!document.getElementById('token-wrong').hidden");
    tab.wait_for("document.activeElement.id === 'token-text'");
    tab.type_text("s3cret");
    tab.press("Enter");
    tab.wait_for("!document.getElementById('content').hidden && document.getElementById('token').hidden");
    // The tab keeps it, and nothing else does.
    tab.navigate(&format!("http://{}/dashboard", serving.admin));
    tab.wait_for("!document.getElementById('content').hidden");
    assert_eq!(tab.evaluate("localStorage.length + document.cookie.length"), 0);
    // Nothing but the refused requests was reported.
    let errors: Vec<String> = tab.take_errors().into_iter().filter(|error| !error.contains("401")).collect();
    assert!(errors.is_empty(), "{errors:?}");

    let url = format!("http://{}", serving.admin);
    let (code, _, error) = run(&["top", "--once", "--url", &url]);
    assert!(code == Some(1) && error.contains("token"), "{error}");
    let file = dir.path().join("admin.token");
    let (code, text, error) = run(&["top", "--once", "--url", &url, "--token-file", file.to_str().expect("text")]);
    assert!(code == Some(0) && text.contains("catalog"), "{text}{error}");
    let (code, _, _) = run(&["top", "--once", "--url", &url, "--token", "s3cret"]);
    assert_eq!(code, Some(0));
}

#[test]
fn a_page_that_is_opened_late_shows_the_past() {
    let dir = folder("");
    let serving = Serving::start(dir.path());
    let load = Load::on(&serving.listen);
    wait_until("points of the load", || {
        let data = data(&serving.admin);
        let points = data["points"].as_array().expect("a list").clone();
        points.iter().filter(|point| point["good_per_s"].as_f64() > Some(0.0)).count() >= 3
    });
    drop(load);
    let data = data(&serving.admin);
    assert!(data["routes"].as_array().is_some_and(|routes| routes.len() == 2), "{data}");
    assert_eq!(data["caches"][0]["operation"], "products");
    assert!(data["problems"].to_string().contains("broken"), "{data}");
    // What is known is not sent again.
    let newest = data["newest"].as_u64().expect("a number");
    let later = get(&serving.admin, &format!("/dashboard/data?since={newest}"));
    let later: Value = serde_json::from_str(later.split("\r\n\r\n").nth(1).expect("a body")).expect("JSON");
    assert!(later["points"].as_array().is_some_and(|points| points.len() < 60), "{later}");
    assert!(later.get("route_series").is_none());
}

#[test]
fn the_page_and_its_policy() {
    let dir = folder("");
    let serving = Serving::start(dir.path());
    let answer = get(&serving.admin, "/dashboard");
    let (head, page) = answer.split_once("\r\n\r\n").expect("a body");
    assert!(page.len() < 200 << 10, "{} bytes", page.len());
    let policy = head.lines().find_map(|line| line.strip_prefix("content-security-policy: ")).expect("a policy");
    assert!(policy.starts_with("default-src 'none'; script-src 'sha256-") && !policy.contains("unsafe"), "{policy}");
    assert!(policy.contains("frame-ancestors 'none'"));
    assert!(get(&serving.admin, "/").contains("href=\"/dashboard\""));
    let answer = get_as("evil.example", &serving.admin, "/dashboard/data");
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
}

#[test]
fn top_shows_the_same_in_a_terminal() {
    let dir = folder("");
    let serving = Serving::start(dir.path());
    let _load = Load::on(&serving.listen);
    let url = format!("http://{}", serving.admin);
    let mut shown = String::new();
    wait_until("routes with rates", || {
        let (code, text, error) = run(&["top", "--once", "--url", &url]);
        assert_eq!(code, Some(0), "{error}");
        shown = text;
        shown.lines().any(|line| line.starts_with("GET /products/{id}") && line.contains(" ms"))
            && shown.contains("! broken")
    });
    assert!(shown.contains("UPSTREAM") && shown.contains("catalog.products") && !shown.contains('\x1b'), "{shown}");
    let (code, text, _) = run(&["top", "--json", "--url", &url]);
    let data: Value = serde_json::from_str(&text).expect("JSON");
    assert!(code == Some(0) && data["upstreams"].as_array().is_some_and(|all| all.len() == 3), "{text}");
    // A mistake has one clear error.
    for (address, part) in [("http://127.0.0.1:9", "cannot connect to 127.0.0.1:9"), ("https://localhost:1", "no TLS")]
    {
        let (code, _, error) = run(&["top", "--once", "--url", address]);
        assert!(code == Some(1) && error.contains(part), "{error}");
    }
    let (_, _, error) = run(&["top", "--once", "--url", &format!("http://{}", serving.listen)]);
    assert!(error.contains("admin address"), "{error}");
}

/// Without `--once` it draws again and again, and leaves the terminal as it was.
#[test]
fn top_follows_until_it_is_interrupted() {
    let dir = folder("");
    let serving = Serving::start(dir.path());
    let url = format!("http://{}", serving.admin);
    let mut child = fanin(&["top", "--url", &url]).stdout(std::process::Stdio::piped()).spawn().expect("it runs");
    let mut output = child.stdout.take().expect("piped");
    let mut text = Vec::new();
    let mut buffer = [0; 4096];
    while text.windows(3).filter(|bytes| *bytes == b"\x1b[H").count() < 2 {
        let read = output.read(&mut buffer).expect("output");
        assert!(read > 0, "it ended: {}", String::from_utf8_lossy(&text));
        text.extend_from_slice(&buffer[..read]);
    }
    let status =
        std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill runs");
    assert!(status.success());
    output.read_to_end(&mut text).expect("output");
    assert!(child.wait().expect("a status").success());
    assert!(text.starts_with(b"\x1b[?1049h") && text.ends_with(b"\x1b[?1049l"));
}
