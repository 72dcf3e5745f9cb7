//! Answers in parts, as a client sees them: directly, through nginx and through HAProxy.

mod common;

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;

use common::websocket::eventually;
use common::{Serving, TIMEOUT};
use fanin_testbed::Server;
use serde_json::{Value, json};
use tempfile::TempDir;

const FLOW: &str = r#"load("@upstreams", "far")

def page(req):
    product = far.get("/product")
    reviews = far.get("/reviews", optional = True)
    offers = far.get("/offers", optional = True)
    return {"product": product, "reviews": reviews, "offers": offers}
"#;

/// An upstream that answers `/product` at once, and each other path when the test says so.
struct Far {
    address: SocketAddr,
    gates: Arc<Mutex<HashMap<String, Receiver<&'static str>>>>,
}

impl Far {
    fn start() -> Far {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let gates: Arc<Mutex<HashMap<String, Receiver<&'static str>>>> = Arc::default();
        let shared = gates.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let gates = shared.clone();
                thread::spawn(move || answer(stream, &gates));
            }
        });
        Far { address, gates }
    }

    /// What is sent to it is the answer to the next request for this path.
    fn gate(&self, path: &str) -> Sender<&'static str> {
        let (sender, receiver) = channel();
        self.gates.lock().expect("no panic").insert(path.to_owned(), receiver);
        sender
    }

    /// Waits until the request for this path has come.
    fn await_request(&self, path: &str) {
        eventually("a request for a gated path", || !self.gates.lock().expect("no panic").contains_key(path));
    }
}

fn answer(stream: TcpStream, gates: &Mutex<HashMap<String, Receiver<&'static str>>>) {
    let mut writer = stream.try_clone().expect("a socket");
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    while let Some(first) = lines.next() {
        let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
        while lines.next().is_some_and(|line| !line.is_empty()) {}
        let gate = gates.lock().expect("no panic").remove(&path);
        let body = match gate.map(|gate| gate.recv_timeout(TIMEOUT)) {
            None => "{\"id\":7}",
            Some(Ok(body)) => body,
            Some(Err(_)) => return,
        };
        let head =
            format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len());
        if writer.write_all((head + body).as_bytes()).is_err() {
            return;
        }
    }
}

struct Tier {
    far: Far,
    serving: Serving,
    _dir: TempDir,
}

impl Tier {
    fn start() -> Tier {
        let far = Far::start();
        let dir = tempfile::tempdir().expect("a folder");
        let toml = format!(
            "[server]\nlisten = \"127.0.0.1:0\"\nadmin = \"off\"\naccess_log = \"off\"\nqueueing = \"off\"\n\
             [upstreams.far]\nurl = \"http://{}\"\ntimeout = \"50s\"\nretry = \"off\"\nhedge = \"off\"\n\
             [[routes]]\npath = \"/page\"\nflow = \"flow.star:page\"\ntimeout = \"55s\"\nprogressive = true\n",
            far.address
        );
        std::fs::write(dir.path().join("fanin.toml"), toml).expect("written");
        std::fs::write(dir.path().join("flow.star"), FLOW).expect("written");
        Tier { far, serving: Serving::start(dir.path()), _dir: dir }
    }

    fn address(&self) -> SocketAddr {
        self.serving.listen.parse().expect("an address")
    }
}

/// The events of one answer, each read when it has come.
struct Events(Box<dyn BufRead>);

impl Events {
    /// Reads the head of the answer. With `gzip`, the body is decompressed while it comes.
    fn ask(address: SocketAddr, gzip: bool) -> Events {
        #[expect(clippy::disallowed_methods, reason = "tests have threads of their own")]
        let mut stream = TcpStream::connect(address).expect("connected");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
        let coding = if gzip { "accept-encoding: gzip\r\n" } else { "" };
        let request = format!("GET /page HTTP/1.1\r\nhost: a\r\naccept: text/event-stream\r\n{coding}\r\n");
        stream.write_all(request.as_bytes()).expect("sent");
        let mut reader = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(reader.read_line(&mut head).expect("a head") > 0, "{head}");
        }
        let head = head.to_ascii_lowercase();
        assert!(head.starts_with("http/1.1 200 ") && head.contains("content-type: text/event-stream"), "{head}");
        assert!(head.contains("transfer-encoding: chunked"), "{head}");
        assert_eq!(head.contains("content-encoding: gzip"), gzip, "{head}");
        let body = Chunks { reader, left: 0, ended: false };
        Events(match gzip {
            false => Box::new(BufReader::new(body)),
            true => Box::new(BufReader::new(flate2::read::MultiGzDecoder::new(body))),
        })
    }

    /// The next event: its name and data.
    fn next(&mut self) -> (String, Value) {
        let mut lines = [String::new(), String::new(), String::new()];
        for line in &mut lines {
            self.0.read_line(line).expect("a line");
        }
        let [name, data, end] = &lines;
        assert_eq!(end, "\n", "{lines:?}");
        let value = data.strip_prefix("data: ").unwrap_or_else(|| panic!("{lines:?}"));
        (name.trim_end().replace("event: ", ""), serde_json::from_str(value).expect("JSON"))
    }

    fn is_at_end(&mut self) -> bool {
        let mut rest = String::new();
        self.0.read_line(&mut rest).expect("the end") == 0
    }
}

/// A chunked body.
struct Chunks {
    reader: BufReader<TcpStream>,
    left: usize,
    ended: bool,
}

impl Read for Chunks {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        if self.ended {
            return Ok(0);
        }
        if self.left == 0 {
            let mut size = String::new();
            self.reader.read_line(&mut size)?;
            self.left = usize::from_str_radix(size.trim(), 16).map_err(std::io::Error::other)?;
            if self.left == 0 {
                self.ended = true;
                return Ok(0);
            }
        }
        let room = to.len().min(self.left);
        let count = self.reader.read(&mut to[..room])?;
        self.left -= count;
        if self.left == 0 {
            let mut end = String::new();
            self.reader.read_line(&mut end)?;
        }
        Ok(count)
    }
}

/// Each part is read before the upstream sends the next.
fn parts_come_one_by_one(tier: &Tier, at: SocketAddr, gzip: bool) {
    let (reviews, offers) = (tier.far.gate("/reviews"), tier.far.gate("/offers"));
    let mut events = Events::ask(at, gzip);
    let body = json!({"product": {"id": 7}, "reviews": null, "offers": null});
    assert_eq!(events.next(), ("body".into(), json!({"body": body})));
    offers.send("[\"o\"]").expect("the upstream waits");
    assert_eq!(events.next(), ("patch".into(), json!({"path": "/offers", "value": ["o"]})));
    reviews.send("{\"stars\":4}").expect("the upstream waits");
    assert_eq!(events.next(), ("patch".into(), json!({"path": "/reviews", "value": {"stars": 4}})));
    assert_eq!(events.next(), ("done".into(), json!({"done": true})));
    assert!(events.is_at_end());
}

#[test]
fn directly() {
    let tier = Tier::start();
    parts_come_one_by_one(&tier, tier.address(), false);
}

#[test]
fn through_nginx_with_and_without_gzip() {
    let tier = Tier::start();
    let nginx = Server::nginx(tier.address());
    let at = nginx.url.strip_prefix("http://").expect("a URL").parse().expect("an address");
    for gzip in [false, true] {
        parts_come_one_by_one(&tier, at, gzip);
    }
}

#[test]
fn through_haproxy() {
    let tier = Tier::start();
    let haproxy = Server::haproxy(tier.address(), "http", &[]);
    let at = haproxy.url.strip_prefix("http://").expect("a URL").parse().expect("an address");
    parts_come_one_by_one(&tier, at, false);
}

#[test]
fn a_client_that_leaves_ends_the_calls() {
    let tier = Tier::start();
    let (reviews, _offers) = (tier.far.gate("/reviews"), tier.far.gate("/offers"));
    let mut events = Events::ask(tier.address(), false);
    assert_eq!(events.next().0, "body");
    // Otherwise they could come late, and pass the gates of the next page.
    tier.far.await_request("/reviews");
    tier.far.await_request("/offers");
    drop(events);
    // The flow only reads, so it ends with its client: the answer that comes then meets a closed connection, and a new request is served.
    reviews.send("{}").expect("the upstream waits");
    parts_come_one_by_one(&tier, tier.address(), false);
}

/// The client of examples/shop, in Node: what it shows after each part.
#[test]
fn the_javascript_client_shows_each_part() {
    let tier = Tier::start();
    let (reviews, offers) = (tier.far.gate("/reviews"), tier.far.gate("/offers"));
    let script = format!(
        "import {{ parts }} from \"{}/examples/shop/web/parts.js\";\n\
         const show = (body, end) => console.log(JSON.stringify([body, end ?? null]));\n\
         await parts(\"http://{}/page\", {{}}, show);",
        common::root().canonicalize().expect("the repository").display(),
        tier.address()
    );
    let mut node = std::process::Command::new("node")
        .args(["--input-type=module", "--eval", &script])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("Node is installed: .ci/setup node");
    let mut lines = BufReader::new(node.stdout.take().expect("piped")).lines();
    let mut shown = || serde_json::from_str::<Value>(&lines.next().expect("a line").expect("text")).expect("JSON");
    assert_eq!(shown(), json!([{"product": {"id": 7}, "reviews": null, "offers": null}, null]));
    offers.send("[1]").expect("the upstream waits");
    assert_eq!(shown(), json!([{"product": {"id": 7}, "reviews": null, "offers": [1]}, null]));
    reviews.send("\"good\"").expect("the upstream waits");
    assert_eq!(shown()[0]["reviews"], "good");
    assert_eq!(shown()[1], json!({"done": true}));
    assert!(node.wait().expect("Node ends").success());
}

#[test]
fn parts_are_not_for_flows_on_threads() {
    let dir = tempfile::tempdir().expect("a folder");
    let toml = "[[routes]]\npath = \"/page\"\nflow = \"flow.star:page\"\nprogressive = true\n\
                executor = { threads = 2, waiting = 2 }\n[upstreams.far]\nurl = \"http://127.0.0.1:1\"\n";
    std::fs::write(dir.path().join("fanin.toml"), toml).expect("written");
    std::fs::write(dir.path().join("flow.star"), FLOW).expect("written");
    let (status, out, err) = common::run(&["check", dir.path().to_str().expect("text")]);
    let all = out + &err;
    assert_eq!(status, Some(1), "{all}");
    assert!(
        all.contains("an answer in parts needs `executor = \"coroutines\"`") && all.contains("fanin.toml:4"),
        "{all}"
    );
}
