//! A server with channels, and a WebSocket's client that sends and reads single frames.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

use super::{Serving, TIMEOUT};

pub const FLOWS: &str = r#"
load("@push", "push")

def events(req):
    if req.query.get("token") != "sesame":
        abort(403, "not for you")
    if req.query.get("plain"):
        return {"plain": True}
    return response(
        body = push.subscribe(req.query.get("channels", "news").split(",")),
        headers = {"x-mine": "1"},
    )

def publish(req):
    return {"id": push.publish(req.params["channel"], req.body, event = req.query.get("event"))}
"#;

/// The handshake of RFC 6455, section 1.3, with the accept value that it gives there.
pub const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
pub const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

pub const TEXT: u8 = 0x81;
pub const CLOSE: u8 = 0x88;
pub const PING: u8 = 0x89;
pub const PONG: u8 = 0x8a;

pub fn serve(server: &str, push: &str) -> (TempDir, Serving) {
    serve_with(&format!("{server}\n[push]\n{push}"), |_| ())
}

/// Further keys of `[server]` and sections behind it, and what is written to the folder.
pub fn serve_with(config: &str, write: impl FnOnce(&Path)) -> (TempDir, Serving) {
    let dir = tempfile::tempdir().expect("a folder");
    let config = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\nworkers = 2\ndrain_timeout = \"50s\"\n{config}\n\
         [[routes]]\npath = \"/events\"\nflow = \"flows.star:events\"\ntimeout = \"5s\"\nlimit = 8\n\
         allowed_origins = [\"https://Shop.example:443\"]\n\
         [[routes]]\npath = \"/open\"\nflow = \"flows.star:events\"\nallowed_origins = [\"*\"]\n\
         [[routes]]\npath = \"/publish/{{channel}}\"\nmethod = \"POST\"\nflow = \"flows.star:publish\"\n"
    );
    std::fs::write(dir.path().join("fanin.toml"), config).expect("written");
    std::fs::write(dir.path().join("flows.star"), FLOWS).expect("written");
    write(dir.path());
    let serving = Serving::start(dir.path());
    (dir, serving)
}

/// Publishes an event; gives its id.
pub fn publish(serving: &Serving, path: &str, body: &str) -> String {
    let answer = serving.post(&format!("/publish/{path}"), body);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    answer.split("\"id\":\"").nth(1).and_then(|rest| rest.split('"').next()).expect("an id").to_owned()
}

pub fn member<'m>(message: &'m str, name: &str) -> &'m str {
    let rest = message.split(&format!("\"{name}\":\"")).nth(1).unwrap_or_else(|| panic!("no {name} in {message}"));
    rest.split('"').next().expect("the first part")
}

/// A WebSocket, frame by frame.
pub struct Client(pub BufReader<TcpStream>);

impl Client {
    /// Sends a handshake with further header lines, and reads the response's head.
    pub fn ask(serving: &Serving, target: &str, headers: &str) -> (Client, String) {
        let mut stream = serving.connect();
        write!(
            stream,
            "GET {target} HTTP/1.1\r\nhost: localhost:8080\r\nconnection: keep-alive, Upgrade\r\nupgrade: WebSocket\r\n\
             {headers}\r\n"
        )
        .expect("sent");
        let mut client = Client(BufReader::new(stream));
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(client.0.read_line(&mut head).expect("a line") > 0, "the connection ended: {head}");
        }
        (client, head)
    }

    pub fn valid() -> String {
        format!("sec-websocket-version: 13\r\nsec-websocket-key: {KEY}\r\n")
    }

    /// Opens one and reads its first message.
    pub fn open(serving: &Serving, query: &str) -> (Client, String) {
        let (mut client, head) = Client::ask(serving, &format!("/events?token=sesame&{query}"), &Client::valid());
        assert!(head.starts_with("HTTP/1.1 101"), "{head}");
        let first = client.text();
        assert!(first.starts_with("{\"id\":\"") && first.ends_with("\"retry\":2000}"), "{first}");
        (client, first)
    }

    pub fn frame(&mut self) -> (u8, Vec<u8>) {
        let mut head = [0; 2];
        self.0.read_exact(&mut head).expect("a frame");
        assert_eq!(head[1] & 0x80, 0, "a server masks nothing");
        let mut length = [0; 8];
        match head[1] {
            126 => self.0.read_exact(&mut length[6..]).expect("a length"),
            127 => self.0.read_exact(&mut length).expect("a length"),
            short => length[7] = short,
        }
        let mut payload = vec![0; u64::from_be_bytes(length) as usize];
        self.0.read_exact(&mut payload).expect("a payload");
        (head[0], payload)
    }

    /// The next frame, which is a text.
    pub fn text(&mut self) -> String {
        let (kind, payload) = self.frame();
        assert_eq!(kind, TEXT, "{payload:?}");
        String::from_utf8(payload).expect("UTF-8")
    }

    /// The next frame, which closes: code and reason.
    pub fn close(&mut self) -> (u16, String) {
        let (kind, payload) = self.frame();
        assert_eq!(kind, CLOSE, "{payload:?}");
        let (code, reason) = payload.split_first_chunk().expect("a code");
        (u16::from_be_bytes(*code), String::from_utf8(reason.to_vec()).expect("UTF-8"))
    }

    /// The connection ends, properly, and has sent nothing more.
    pub fn ended(&mut self) {
        assert_eq!(self.0.read(&mut [0; 10]).expect("no reset"), 0);
    }

    pub fn send_bytes(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).expect("sent");
    }

    pub fn send(&mut self, kind: u8, payload: &[u8]) {
        self.send_bytes(&frame(kind, payload));
    }
}

/// A client's frame.
pub fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![kind];
    match payload.len() {
        length @ 0..126 => bytes.push(0x80 | length as u8),
        length => {
            bytes.push(0x80 | 126);
            bytes.extend((length as u16).to_be_bytes());
        }
    }
    let mask = [7, 1, 250, 99];
    bytes.extend(mask);
    bytes.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    bytes
}

#[allow(clippy::disallowed_methods, reason = "a test has a thread of its own")]
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..6000 {
        if holds() {
            return;
        }
        thread::sleep(Duration::from_millis(5));
    }
    panic!("not within 30 seconds: {what}");
}

pub fn metric(serving: &Serving, name: &str) -> String {
    let answer = admin_page(serving, "/metrics");
    let line = answer.lines().find(|line| line.split([' ', '{']).next() == Some(name));
    line.unwrap_or_else(|| panic!("no {name}")).rsplit(' ').next().expect("a value").to_owned()
}

/// A page of the admin listener.
pub fn admin_page(serving: &Serving, path: &str) -> String {
    let address = serving.admin.parse().expect("an address");
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT).expect("connected");
    stream.set_read_timeout(Some(TIMEOUT)).expect("set");
    write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}
