//! Channels over WebSocket with programs that people use: a Python client, directly, over TLS, through nginx and HAProxy; and a browser.
#![cfg(unix)]

mod common;

use std::io::{BufRead, BufReader, Lines, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use common::websocket::{member, serve, serve_with};
use common::{Serving, TIMEOUT, root};
use fanin_testbed::Server;
use fanin_testbed::browser::Browser;

/// The Python client. It ends when the server closes.
struct Python {
    child: Child,
    publisher: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Python {
    /// `ca` is the certificate to trust, with TLS.
    fn start(server: &str, ca: &str) -> Python {
        let mut child = Command::new(root().join(".venv/websockets/bin/python"))
            .arg(root().join("crates/fanin/tests/websocket_client.py"))
            .args([server, ca, "fanin.events.v1"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("Python: {error}; run .ci/setup websockets"));
        let publisher = child.stdin.take().expect("piped");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        Python { child, publisher, lines }
    }

    fn line(&mut self) -> String {
        self.lines.next().expect("a line").expect("text")
    }
}

impl Drop for Python {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Opens, publishes by the same way, receives, and is told when the server drains.
fn talk(serving: Serving, server: &str, ca: &str) {
    let mut python = Python::start(server, ca);
    assert_eq!(python.line(), "fanin.events.v1");
    let first = python.line();
    assert!(first.starts_with("{\"id\":\"") && first.ends_with("\"retry\":2000}"), "{first}");
    for data in ["{\"score\": [2, 1]}", &format!("\"{}\"", "ü".repeat(20_000)), "null"] {
        writeln!(python.publisher, "{data}").expect("Python reads");
        let message = python.line();
        assert!(message.ends_with(&format!("\"event\":\"goal\",\"data\":{data}}}")), "{message}");
        assert!(!member(&message, "id").is_empty());
    }
    serving.signal("-TERM");
    let drain = python.line();
    assert!(drain.starts_with("{\"event\":\"drain\",\"data\":{},\"retry\":"), "{drain}");
    assert_eq!(python.line(), "[1001, \"the server ends\"]");
    let (status, access) = serving.end();
    assert_eq!(status, Some(0));
    assert_eq!(access.matches("\"status\":101").count(), 1, "{access}");
}

#[test]
fn a_python_client() {
    let (_dir, serving) = serve("", "");
    let server = serving.listen.clone();
    talk(serving, &server, "");
}

#[test]
fn a_python_client_over_tls() {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
    let (dir, serving) = serve_with("[server.tls]\ncert = \"cert.pem\"\nkey = \"key.pem\"\n", |dir| {
        std::fs::write(dir.join("cert.pem"), made.cert.pem()).expect("written");
        std::fs::write(dir.join("key.pem"), made.signing_key.serialize_pem()).expect("written");
    });
    let server = serving.listen.clone();
    talk(serving, &server, dir.path().join("cert.pem").to_str().expect("a path of text"));
}

fn address(serving: &Serving) -> SocketAddr {
    serving.listen.parse().expect("an address")
}

#[test]
fn through_nginx() {
    let (_dir, serving) = serve("", "");
    let nginx = Server::nginx(address(&serving));
    talk(serving, nginx.url.strip_prefix("http://").expect("a URL"), "");
}

#[test]
fn through_haproxy() {
    let (_dir, serving) = serve("", "");
    let haproxy = Server::haproxy(address(&serving), "http", &[]);
    talk(serving, haproxy.url.strip_prefix("http://").expect("a URL"), "");
}

/// Opens an `EventSource` and three WebSockets, two of them at a name that is another origin than the page's.
const PAGE: &str = r#"
def page(req):
    return response(text = PAGE, headers = {"content-type": "text/html; charset=utf-8"})

PAGE = r"""<!doctype html><title>waits</title><img src="http://TEST/hold"><pre></pre>
<script type="module">
const note = (line) => { document.querySelector("pre").textContent += line + "\n"; };
const tell = (path) => fetch("http://TEST" + path, { mode: "no-cors" });
const next = (target, event) => new Promise((done) => target.addEventListener(event, done, { once: true }));
const socket = (host, path) => new WebSocket(`ws://${host}:${location.port}${path}?token=sesame`, "fanin.events.v1");

const stream = new EventSource("/events?token=sesame");
const own = socket(location.hostname, "/events");
const refused = socket("localhost", "/events");
const allowed = socket("localhost", "/open");
refused.onopen = () => note("refused opened");
const [, first] = await Promise.all([next(stream, "open"), next(own, "message"), next(allowed, "message"), next(refused, "close")]);
note("own starts with " + Object.keys(JSON.parse(first.data)) + " " + own.protocol);

let events = Promise.all([next(stream, "goal"), next(own, "message"), next(allowed, "message")]);
await fetch("/publish/news?event=goal", { method: "POST", body: '{"score": [2, 1]}' });
const [event, ...messages] = await events;
note("stream " + JSON.stringify(JSON.parse(event.data)));
for (const message of messages) {
  const { id, event: name, data } = JSON.parse(message.data);
  note(`message ${name} ${JSON.stringify(data)} ${id === event.lastEventId}`);
}

events = Promise.all([next(stream, "drain"), next(own, "close"), next(allowed, "close")]);
tell("/drain");
const [, ...closes] = await events;
stream.close();
for (const close of closes) note(`close ${close.code} ${close.reason} ${close.wasClean}`);
document.title = "complete";
tell("/done");
</script>
"""
"#;

/// A server of this test, which the page tells what it has done: the paths of its requests. That of `/hold` is answered after `/done`.
fn listener() -> (SocketAddr, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    let (sender, paths) = channel();
    thread::spawn(move || {
        let (asks, asked) = channel();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let asks = asks.clone();
                thread::spawn(move || {
                    let mut head = String::new();
                    let mut reader = BufReader::new(stream);
                    // Browsers also open connections that they may not need.
                    while !head.ends_with("\r\n\r\n") {
                        if reader.read_line(&mut head).is_ok_and(|count| count == 0) {
                            return;
                        }
                    }
                    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
                    let _ = asks.send((path, reader.into_inner()));
                });
            }
        });
        let mut held = Vec::new();
        for (path, stream) in asked {
            match path.as_str() {
                "/hold" => held.push(stream),
                _ => respond(stream),
            }
            if path == "/done" {
                held.drain(..).for_each(respond);
            }
            let _ = sender.send(path);
        }
    });
    (address, paths)
}

fn respond(mut stream: TcpStream) {
    let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n");
}

#[test]
fn a_browser_with_event_source_and_websockets() {
    let (test, paths) = listener();
    let page = PAGE.replace("TEST", &test.to_string());
    let route = "[[routes]]\npath = \"/page\"\nflow = \"page.star:page\"";
    let (_dir, serving) = serve_with(route, |dir| std::fs::write(dir.join("page.star"), page).expect("written"));
    let browser = Browser::open(&format!("http://{}/page", serving.listen));
    while paths.recv_timeout(TIMEOUT).expect("the page has got its events") != "/drain" {}
    serving.signal("-TERM");
    let document = browser.document();
    assert!(document.contains("<title>complete</title>"), "{document}");
    let noted = document.split("<pre>").nth(1).and_then(|rest| rest.split("</pre>").next()).unwrap_or_default();
    let expected = [
        "own starts with id,retry fanin.events.v1",
        "stream {\"score\":[2,1]}",
        "message goal {\"score\":[2,1]} true",
        "message goal {\"score\":[2,1]} true",
        "close 1001 the server ends true",
        "close 1001 the server ends true",
    ];
    assert_eq!(noted.lines().collect::<Vec<_>>(), expected);
    let (status, access) = serving.end();
    assert_eq!(status, Some(0));
    assert_eq!(access.matches("\"status\":101").count(), 2, "{access}");
    assert_eq!(access.matches("\"status\":403").count(), 1, "{access}");
}
