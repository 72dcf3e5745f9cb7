//! Channels over real connections: `push.subscribe` and `push.publish`.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use common::{Serving, TIMEOUT};
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tempfile::TempDir;

const FLOWS: &str = r#"
load("@push", "push")

def events(req):
    if req.query.get("token") != "sesame":
        abort(403, "not for you")
    return push.subscribe(req.query.get("channels", "news").split(","))

def publish(req):
    return {"id": push.publish(req.params["channel"], req.body, event = req.query.get("event"))}
"#;

fn write(dir: &TempDir, push: &str) {
    let config = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\nworkers = 2\ndrain_timeout = \"50s\"\n{push}\n\
         [[routes]]\npath = \"/events\"\nflow = \"flows.star:events\"\ntimeout = \"1s\"\nlimit = 8\n\
         [[routes]]\npath = \"/publish/{{channel}}\"\nmethod = \"POST\"\nflow = \"flows.star:publish\"\n"
    );
    std::fs::write(dir.path().join("fanin.toml"), config).expect("written");
}

fn serve(push: &str) -> (TempDir, Serving) {
    let dir = tempfile::tempdir().expect("a folder");
    write(&dir, push);
    std::fs::write(dir.path().join("flows.star"), FLOWS).expect("written");
    let serving = Serving::start(dir.path());
    (dir, serving)
}

/// A subscriber over HTTP/1.1.
struct Client(BufReader<TcpStream>);

impl Client {
    /// Opens the stream and reads its head; gives the first event.
    fn open(serving: &Serving, query: &str, header: &str) -> (Client, String) {
        let (mut client, head) = Client::ask(serving, query, header);
        assert!(head.starts_with("HTTP/1.1 200") && head.contains("content-type: text/event-stream"), "{head}");
        assert!(head.contains("cache-control: no-store"), "{head}");
        let first = client.event().expect("the first event");
        assert!(first.starts_with("retry: 2000\nid: "), "{first}");
        (client, first)
    }

    fn ask(serving: &Serving, query: &str, header: &str) -> (Client, String) {
        let address = serving.listen.parse().expect("an address");
        let mut stream = TcpStream::connect_timeout(&address, TIMEOUT).expect("connected");
        stream.set_read_timeout(Some(TIMEOUT)).expect("set");
        write!(stream, "GET /events?token=sesame&{query} HTTP/1.1\r\nhost: localhost\r\n{header}\r\n").expect("sent");
        let mut client = Client(BufReader::new(stream));
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(client.0.read_line(&mut head).expect("a line") > 0, "the connection ended: {head}");
        }
        (client, head)
    }

    /// The next chunk, which is one event or a comment; `None` at the stream's proper end.
    fn event(&mut self) -> Option<String> {
        let mut size = String::new();
        self.0.read_line(&mut size).expect("a chunk's size");
        let size = usize::from_str_radix(size.trim(), 16).unwrap_or_else(|_| panic!("the connection broke: {size:?}"));
        let mut chunk = vec![0; size + 2];
        self.0.read_exact(&mut chunk).expect("a chunk");
        chunk.truncate(size);
        (size > 0).then(|| String::from_utf8(chunk).expect("text"))
    }
}

fn post(serving: &Serving, path: &str, body: &str) -> String {
    let address = serving.listen.parse().expect("an address");
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT).expect("connected");
    stream.set_read_timeout(Some(TIMEOUT)).expect("set");
    let length = body.len();
    let head = "HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json";
    write!(stream, "POST {path} {head}\r\ncontent-length: {length}\r\n\r\n{body}").expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

/// Publishes an event; gives its id.
fn publish(serving: &Serving, path: &str, body: &str) -> String {
    let answer = post(serving, &format!("/publish/{path}"), body);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    answer.split("\"id\":\"").nth(1).and_then(|rest| rest.split('"').next()).expect("an id").to_owned()
}

fn id(event: &str) -> &str {
    event.lines().find_map(|line| line.strip_prefix("id: ")).unwrap_or_else(|| panic!("no id in {event}"))
}

#[allow(clippy::disallowed_methods, reason = "a test has a thread of its own")]
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..2000 {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("not within 10 seconds: {what}");
}

#[test]
fn an_event_reaches_all_subscribers_on_all_workers() {
    let (_dir, serving) = serve("");
    // More than the route's limit of 8: a subscriber holds no permit. And for longer than its timeout of 1 s.
    let mut clients: Vec<Client> = (0..30).map(|_| Client::open(&serving, "channels=news", "").0).collect();
    let mut other = Client::open(&serving, "channels=other", "").0;
    let refused = serving.get("/events?token=wrong");
    assert!(refused.starts_with("HTTP/1.1 403") && refused.contains("not for you"), "{refused}");
    for round in 0..3 {
        let id = publish(&serving, "news?event=goal", &format!("{{\"round\": {round}}}"));
        for client in &mut clients {
            let event = client.event().expect("an event");
            assert_eq!(event, format!("id: {id}\nevent: goal\ndata: {{\"round\": {round}}}\n\n"));
        }
    }
    publish(&serving, "other", "1");
    assert!(other.event().expect("an event").ends_with("\ndata: 1\n\n"));
}

#[test]
fn a_client_comes_back_by_header_or_query() {
    let (_dir, serving) = serve("[push]\nlog_events = 2");
    let (client, first) = Client::open(&serving, "channels=news", "");
    drop(client);
    let one = publish(&serving, "news", "1");
    publish(&serving, "news", "2");
    let header = |id: &str| format!("last-event-id: {id}\r\n");
    let (mut by_header, _) = Client::open(&serving, "channels=news", &header(id(&first)));
    let (mut by_query, _) = Client::open(&serving, &format!("channels=news&last-event-id={}", id(&first)), "");
    for client in [&mut by_header, &mut by_query] {
        assert!(client.event().expect("an event").ends_with("\ndata: 1\n\n"));
        assert!(client.event().expect("an event").ends_with("\ndata: 2\n\n"));
    }
    let (mut later, _) = Client::open(&serving, "channels=news", &header(&one));
    assert!(later.event().expect("an event").ends_with("\ndata: 2\n\n"));
    publish(&serving, "news", "3");
    assert!(later.event().expect("an event").ends_with("\ndata: 3\n\n"));
    let (_, late) = Client::open(&serving, "channels=news", &header(id(&first)));
    assert!(late.contains("event: lost\n"), "{late}");
}

#[test]
fn a_client_that_does_not_read_is_told_or_dropped_and_slows_nobody() {
    let (_dir, serving) = serve("[push]\nlog_events = 4");
    let mut slow = Client::open(&serving, "channels=news", "").0;
    let mut quick = Client::open(&serving, "channels=news", "").0;
    // Far more than the sockets and hyper's buffers hold.
    let text = "x".repeat(60_000);
    for round in 0..400 {
        publish(&serving, "news", &format!("{{\"round\": {round}, \"text\": \"{text}\"}}"));
        let event = quick.event().expect("an event");
        assert!(event.contains(&format!("data: {{\"round\": {round}, ")), "{}", &event[..100]);
    }
    let mut events = 0;
    let told = loop {
        let event = slow.event().expect("not the end yet");
        if event.contains("event: lost\n") {
            break event;
        }
        assert!(event.contains(&format!("data: {{\"round\": {events}, ")), "{}", &event[..100]);
        events += 1;
    };
    assert!(events < 399, "{events}");
    assert_eq!(slow.event(), None);
    // It comes back where the channel is.
    let (mut again, start) = Client::open(&serving, "channels=news", &format!("last-event-id: {}\r\n", id(&told)));
    assert!(!start.contains("lost"), "{start}");
    publish(&serving, "news", "1");
    assert!(again.event().expect("an event").ends_with("\ndata: 1\n\n"));
}

#[test]
fn limits_refuse_with_a_problem() {
    let (_dir, serving) = serve("[push]\nmax_subscribers = 2\nmax_channels = 2\nmax_event = \"1KiB\"");
    let first = Client::open(&serving, "channels=a", "").0;
    let _second = Client::open(&serving, "channels=b", "").0;
    let (_, head) = Client::ask(&serving, "channels=a", "");
    assert!(head.starts_with("HTTP/1.1 503") && head.contains("retry-after: "), "{head}");
    let refused = post(&serving, "/publish/c", "1");
    assert!(refused.starts_with("HTTP/1.1 503") && refused.contains("urn:fanin:problem:push-limit"), "{refused}");
    assert!(post(&serving, "/publish/a", &format!("\"{}\"", "x".repeat(2000))).starts_with("HTTP/1.1 500"));
    serving.logged("the JSON is larger than 1024 bytes");
    // Who leaves makes room, also without any event.
    drop(first);
    eventually("there is room", || Client::ask(&serving, "channels=a", "").1.starts_with("HTTP/1.1 200"));
}

#[test]
fn quiet_streams_get_heartbeats_and_a_reload_keeps_them() {
    let (dir, serving) = serve("[push]\nheartbeat = \"100ms\"");
    let mut client = Client::open(&serving, "channels=news", "").0;
    assert_eq!(client.event().as_deref(), Some(":\n\n"));
    write(&dir, "[push]\nheartbeat = \"60s\"\nmax_event = \"8B\"");
    serving.signal("-HUP");
    serving.logged("reloaded");
    eventually("the new bounds are in force", || {
        post(&serving, "/publish/news", "\"too large\"").starts_with("HTTP/1.1 500")
    });
    publish(&serving, "news", "1");
    let event = loop {
        match client.event().expect("an event") {
            event if event == ":\n\n" || event.contains("too large") => {}
            event => break event,
        }
    };
    assert!(event.ends_with("\ndata: 1\n\n"), "{event}");
}

#[test]
fn a_drain_tells_clients_and_ends_their_streams() {
    let (_dir, serving) = serve("");
    let mut clients: Vec<Client> = (0..10).map(|_| Client::open(&serving, "channels=news", "").0).collect();
    serving.signal("-TERM");
    for client in &mut clients {
        let last = client.event().expect("an event");
        assert!(last.starts_with("retry: ") && last.ends_with("event: drain\ndata: {}\n\n"), "{last}");
        assert_eq!(client.event(), None);
    }
    let (status, access) = serving.end();
    assert_eq!(status, Some(0));
    assert_eq!(access.matches("\"status\":200").count(), 10, "{access}");
}

#[test]
fn subscribers_over_http2_share_a_connection() {
    let (_dir, serving) = serve("");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let local = tokio::task::LocalSet::new();
    let subscribed = async {
        let stream = tokio::net::TcpStream::connect(&serving.listen).await.expect("connected");
        let http2 = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
        let (mut client, connection) = http2.expect("HTTP/2");
        tokio::spawn(connection);
        let mut bodies = Vec::new();
        for channel in ["a", "b", "a"] {
            let uri = format!("http://localhost/events?token=sesame&channels={channel}");
            let request = hyper::Request::get(uri).body(Empty::<bytes::Bytes>::new()).expect("a request");
            let response = client.send_request(request).await.expect("an answer");
            assert_eq!(response.headers()["content-type"], "text/event-stream");
            let mut body = response.into_body();
            assert!(next(&mut body).await.starts_with("retry: 2000\nid: "));
            bodies.push((channel, body));
        }
        for channel in ["a", "b"] {
            publish(&serving, channel, &format!("\"{channel}\""));
        }
        for (channel, body) in &mut bodies {
            assert!(next(body).await.ends_with(&format!("\ndata: \"{channel}\"\n\n")));
        }
    };
    runtime.block_on(local.run_until(async {
        tokio::time::timeout(TIMEOUT, subscribed).await.expect("in time");
    }));
}

#[test]
fn a_thousand_subscriptions_that_are_reset_leave_nothing_behind() {
    let (_dir, serving) = serve("[push]\nmax_subscribers = 100");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let reset = async {
        let stream = tokio::net::TcpStream::connect(&serving.listen).await.expect("connected");
        let (mut client, connection) = h2::client::handshake(stream).await.expect("HTTP/2");
        let connection = tokio::spawn(connection);
        for _ in 0..1000 {
            let uri = "http://localhost/events?token=sesame&channels=news";
            let request = hyper::Request::get(uri).body(()).expect("a request");
            // The server may have told it to calm down.
            let Ok(ready) = client.ready().await else { return };
            client = ready;
            let Ok((_response, mut stream)) = client.send_request(request, false) else { return };
            stream.send_reset(h2::Reason::CANCEL);
            tokio::task::yield_now().await;
        }
        drop(client);
        let _ended = connection.await;
    };
    runtime.block_on(async { tokio::time::timeout(TIMEOUT, reset).await.expect("in time") });
    // All places are free again.
    eventually("nobody is subscribed", || {
        let all: Vec<_> = (0..100).map(|_| Client::ask(&serving, "channels=news", "")).collect();
        all.iter().all(|(_, head)| head.starts_with("HTTP/1.1 200"))
    });
}

async fn next(body: &mut hyper::body::Incoming) -> String {
    let frame = body.frame().await.expect("not the end").expect("no error");
    String::from_utf8(frame.into_data().expect("data").to_vec()).expect("text")
}
