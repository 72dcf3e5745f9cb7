//! Compressed responses, decoded by curl.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::mpsc::channel;

use crate::common::TIMEOUT;
use crate::{curl, curl_bytes, header, service};

const FLOW: &str = r#"
load("@upstreams", "far")

def page(req):
    size = int(req.query.get("size", "5000"))
    body = "".join([chr(97 + i * i % 7) for i in range(100)]) * (size // 100)
    return response(text = body, headers = {
        "content-type": req.query.get("type", "text/plain"), "etag": '"strong"',
        "cache-control": req.query.get("cache", "max-age=5"), "accept-ranges": "bytes"})

def encoded(req):
    return response(text = "x" * 5000, headers = {"content-type": "text/plain", "content-encoding": "br"})

def passed(req):
    return stream(far.get("/" + req.params["name"]))
"#;

fn toml(compression: &str, far: &str) -> String {
    format!(
        "{compression}\n[upstreams.far]\nurl = \"http://{far}\"\ntimeout = \"50s\"\nretry = \"off\"\nhedge = \"off\"\n\
        [flow]\nmax_value = \"2MiB\"\n\
        [[routes]]\npath = \"/page\"\nflow = \"web.star:page\"\n\
        [[routes]]\npath = \"/encoded\"\nflow = \"web.star:encoded\"\n\
        [[routes]]\npath = \"/plain\"\nflow = \"web.star:page\"\ncompression = \"off\"\n\
        [[routes]]\npath = \"/passed/{{name}}\"\nflow = \"web.star:passed\"\ntimeout = \"50s\"\n"
    )
}

#[test]
fn curl_gets_the_encoding_that_it_asks_for() {
    let (_dir, serving) = service(&toml("[compression]\n", "127.0.0.1:1"), FLOW);
    let url = |path: &str| format!("http://{}{path}", serving.listen);
    for size in [2000, 300_000] {
        let path = format!("/page?size={size}");
        let plain = curl(&[&url(&path)]);
        assert_eq!(plain.len(), size);
        for coding in ["gzip", "br", "zstd"] {
            let accept = format!("Accept-Encoding: {coding}");
            let answer = curl(&["-i", "--compressed", "-H", &accept, &url(&path)]);
            let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
            assert_eq!(header(head, "content-encoding"), Some(coding), "{head}");
            assert_eq!((header(head, "vary"), header(head, "etag")), (Some("accept-encoding"), Some("W/\"strong\"")));
            assert_eq!(header(head, "accept-ranges"), None);
            assert!(body == plain, "{coding} {size}: {} bytes", body.len());
            let sent = curl_bytes(&["-H", &accept, &url(&path)]).len();
            assert!(sent * 5 < size, "{coding}: {sent} bytes of {size}");
            // A short one says how long it is.
            let length = header(head, "content-length").map(|length| length.parse::<usize>().expect("a number"));
            assert_eq!(length, (size < 32 << 10).then_some(sent), "{head}");
            let known = curl(&["-I", "-H", &accept, &url(&path)]);
            assert_eq!(header(&known, "content-encoding"), Some(coding));
            assert_eq!(header(&known, "content-length"), header(head, "content-length"));
        }
        // A browser's header, and one that prefers another encoding.
        for (accept, coding) in [("gzip, deflate, br, zstd", "zstd"), ("zstd;q=0.5, br;q=0.8, gzip;q=0.8", "br")] {
            let answer = curl(&["-I", "-H", &format!("Accept-Encoding: {accept}"), &url(&path)]);
            assert_eq!(header(&answer, "content-encoding"), Some(coding));
        }
    }
}

#[test]
fn what_must_not_be_compressed_is_sent_as_it_is() {
    let (_dir, serving) = service(&toml("[compression]\n", "127.0.0.1:1"), FLOW);
    let get = |path: &str, accept: &str| {
        let url = format!("http://{}{path}", serving.listen);
        curl(&["-i", "-H", &format!("Accept-Encoding: {accept}"), &url])
    };
    for (path, accept, vary) in [
        ("/page", "identity", true),
        ("/page", "gzip;q=0", true),
        ("/page?size=900", "gzip", true),
        ("/page?type=image/png", "gzip", false),
        ("/page?type=text/event-stream", "gzip", false),
        ("/page?cache=public,no-transform", "gzip", false),
        ("/plain", "gzip", false),
    ] {
        let answer = get(path, accept);
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert_eq!(header(&answer, "content-encoding"), None, "{path} {accept}");
        assert_eq!(header(&answer, "vary"), vary.then_some("accept-encoding"), "{path} {accept}");
        assert_eq!(header(&answer, "etag"), Some("\"strong\""), "{path} {accept}");
    }
    assert_eq!(header(&get("/encoded", "gzip"), "content-encoding"), Some("br"));
    // An error is a body, too, but a short one.
    assert!(get("/page?size=x", "gzip").contains("urn:fanin:problem:"));
}

#[test]
fn settings_choose_encodings_types_and_sizes() {
    let own = "[compression]\nzstd = \"off\"\nbrotli = \"off\"\ngzip = 9\ntypes = [\"text/css\", \"text/event-stream\"]\nmin_size = 0\n";
    let (_dir, serving) = service(&toml(own, "127.0.0.1:1"), FLOW);
    let coding = |path: &str| {
        let answer =
            curl(&["-I", "-H", "Accept-Encoding: br, zstd, gzip", &format!("http://{}{path}", serving.listen)]);
        header(&answer, "content-encoding").map(str::to_owned)
    };
    for (path, expected) in [
        ("/page?type=text/css&size=100", Some("gzip")),
        ("/page?type=text/event-stream", Some("gzip")),
        ("/page?type=text/plain", None),
    ] {
        assert_eq!(coding(path).as_deref(), expected, "{path}");
    }
}

#[test]
fn events_pass_through_at_once() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let far = listener.local_addr().expect("an address").to_string();
    let (seen, goes_on) = channel::<()>();
    // Sends an event only when the one before has arrived at the client.
    std::thread::spawn(move || {
        let (stream, _) = listener.accept().expect("a client");
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
            line.clear();
        }
        let mut send = |text: &str| reader.get_mut().write_all(text.as_bytes()).expect("sent");
        send("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n");
        for event in 0..3 {
            send(&format!("data: event {event}\n\n"));
            goes_on.recv_timeout(TIMEOUT).expect("the event arrives before the next is sent");
        }
    });
    let settings = "[compression]\ntypes = [\"text/event-stream\"]\n";
    let (_dir, serving) = service(&toml(settings, &far), FLOW);
    let url = format!("http://{}/passed/events", serving.listen);
    let mut curl = std::process::Command::new("curl")
        .args(["-sSN", "--compressed", "-H", "Accept-Encoding: gzip", "--max-time", "60", &url])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("curl runs");
    let mut output = BufReader::new(curl.stdout.take().expect("piped"));
    for event in 0..3 {
        let mut line = String::new();
        output.read_line(&mut line).expect("a line");
        assert_eq!(line, format!("data: event {event}\n"));
        output.read_line(&mut line).expect("its end");
        seen.send(()).expect("the server waits");
    }
    let mut rest = String::new();
    output.read_to_string(&mut rest).expect("the end");
    assert_eq!((rest.as_str(), curl.wait().expect("a status").success()), ("", true));
}
