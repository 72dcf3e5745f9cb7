//! Methods, paths, statuses.

use crate::common::{Client, TestServer};
use fanin_config::RequestSlashes;

#[test]
fn routes_and_parameters() {
    let server = TestServer::with(|setup| setup.server.escaped_slashes = RequestSlashes::Keep);
    let mut client = server.connect();
    let json = client.get("/items/a%2Fb%20%C3%BC?x=1&x=%32").json();
    assert_eq!(json["params"]["id"], "a/b ü");
    assert_eq!(json["path"], "/items/a%2Fb%20%C3%BC");
    assert_eq!(json["query"], "x=1&x=%32");
    assert_eq!(json["remote"], client.local().to_string());
    assert_eq!(client.get("/files/a//b/").json()["params"]["rest"], "a//b/");
    assert_eq!(client.get("http://other/hello").text(), "hello");
}

#[test]
fn escaped_slashes_are_refused_kept_or_decoded() {
    let with = |slashes| TestServer::with(|setup| setup.server.escaped_slashes = slashes);
    let server = TestServer::start();
    let mut client = server.connect();
    for path in ["/items/a%2Fb", "/items/a%2fb", "/items/a%5Cb", "/items/a%5cb", "/items/a\\b", "/nowhere%2F"] {
        let reply = client.get(path);
        assert_eq!(reply.status, 400, "{path}: {reply:?}");
        assert!(reply.text().contains("escaped slash"), "{path}: {reply:?}");
    }
    // Neither is an escaped slash after decoding once.
    assert_eq!(client.get("/items/a%252Fb").json()["params"]["id"], "a%2Fb");
    assert_eq!(client.get("/items/1?x=%2F").json()["query"], "x=%2F");

    let server = with(RequestSlashes::Keep);
    let mut client = server.connect();
    assert_eq!(client.get("/items/a%2fb%5C").json()["params"]["id"], "a/b\\");
    assert_eq!(client.get("/items%2F1").status, 404);

    let server = with(RequestSlashes::Decode);
    let mut client = server.connect();
    let json = client.get("/items%2Fa%20b?x=%2F").json();
    assert_eq!(
        (&json["params"]["id"], &json["path"], &json["query"]),
        (&"a b".into(), &"/items/a%20b".into(), &"x=%2F".into())
    );
    assert_eq!(client.get("http://other/files%5ca%2fb").json()["params"]["rest"], "a/b");
    assert_eq!(client.get("/items/a%2Fb").status, 404);
    for path in ["/files/a%2F..%2Fb", "/files/%2e%2e%2f", "/files/..\\x"] {
        assert_eq!(client.get(path).status, 400, "{path}");
    }
}

#[test]
fn repeated_headers_all_reach_the_application() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.send("GET /items/1 HTTP/1.1\r\nhost: a\r\nx-repeated: 1\r\nX-Repeated: 2\r\n\r\n");
    assert_eq!(client.reply().json()["repeated"], serde_json::json!(["1", "2"]));
}

#[test]
fn bodies_of_every_size_come_whole() {
    let server = TestServer::start();
    let mut client = server.connect();
    // Around the size up to which head and body are joined; the head takes some of it.
    for size in (0..3).chain((3800..4200).step_by(7)).chain([20_000]) {
        let body: String = ('a'..='z').cycle().take(size).collect();
        client.send(format!("POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: {size}\r\n\r\n{body}"));
        let reply = client.reply();
        assert_eq!(reply.status, 200);
        assert!(reply.text() == body, "{size} bytes");
    }
}

#[test]
fn unknown_paths_and_methods() {
    let server = TestServer::start();
    let mut client = server.connect();
    for path in ["/nothing", "/hello/", "//hello", "/items/", "/items//", "/HELLO"] {
        let reply = client.get(path);
        assert_eq!((reply.status, reply.problem().as_str()), (404, "no-route"), "{path}");
    }
    client.send("DELETE /hello HTTP/1.1\r\nhost: a\r\n\r\n");
    let reply = client.reply();
    assert_eq!((reply.status, reply.header("allow")), (405, Some("GET, HEAD, OPTIONS, PUT")));
    assert_eq!(reply.problem(), "method-not-allowed");
    client.send("OPTIONS * HTTP/1.1\r\nhost: a\r\n\r\n");
    assert_eq!(client.reply().status, 404);
    // All of it on one connection: none of these ends it.
    assert_eq!(client.get("/hello").status, 200);
}

#[test]
fn head_is_get_without_a_body() {
    let server = TestServer::start();
    let mut client = server.connect();
    let length = client.get("/hello").text().len().to_string();
    let reply = client.send("HEAD /hello HTTP/1.1\r\nhost: a\r\n\r\n").reply_to("HEAD");
    assert_eq!((reply.status, reply.header("content-length")), (200, Some(length.as_str())));
    assert_eq!(reply.text(), "");
    assert_eq!(client.get("/hello").status, 200, "on the same connection");
}

#[test]
fn options_lists_the_methods_of_a_path() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.send("OPTIONS /hello HTTP/1.1\r\nhost: a\r\n\r\n");
    let reply = client.reply();
    assert_eq!((reply.status, reply.header("allow")), (204, Some("GET, HEAD, OPTIONS, PUT")));
    assert_eq!((reply.header("content-length"), reply.text()), (None, String::new()));
    client.send("OPTIONS /nothing HTTP/1.1\r\nhost: a\r\n\r\n");
    assert_eq!(client.reply().status, 404);
    assert_eq!(client.get("/hello").status, 200, "on the same connection");
}

#[test]
fn dangerous_paths_are_refused() {
    let server = TestServer::start();
    let mut client = server.connect();
    for path in
        ["/items/..", "/items/%2e%2e", "/../etc/passwd", "/files/a/../../b", "/files/%2E/x", "/items/%", "/items/%zz"]
    {
        let reply = client.get(path);
        assert_eq!((reply.status, reply.problem().as_str()), (400, "bad-request"), "{path}");
    }
    let reply = client.get("/items/%ff");
    assert_eq!(reply.status, 400);
    assert!(reply.json()["detail"].as_str().unwrap().contains("UTF-8"));
}

#[test]
fn head_has_the_length_and_no_body() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.send("HEAD /hello HTTP/1.1\r\nhost: a\r\n\r\n");
    let reply = client.reply_to("HEAD");
    assert_eq!((reply.status, reply.header("content-length")), (200, Some("5")));
    client.send("HEAD /items/1 HTTP/1.1\r\nhost: a\r\n\r\n");
    let length = client.reply_to("HEAD").header("content-length").unwrap().parse::<usize>().unwrap();
    assert!(length > 50);
    client.send("HEAD /nothing HTTP/1.1\r\nhost: a\r\n\r\n");
    assert_eq!(client.reply_to("HEAD").status, 404);
    // Had a body been sent, it would be taken for this response.
    assert_eq!(client.get("/hello").text(), "hello");
}

#[test]
fn headers_of_the_connection_are_the_servers() {
    let server = TestServer::start();
    let reply = server.get("/headers");
    assert_eq!(reply.header("content-length"), Some("2"));
    assert_eq!((reply.header("transfer-encoding"), reply.header("connection")), (None, None));
    assert!(reply.header("date").is_some());
    assert_eq!(reply.head.matches("set-cookie").count(), 2);
}

#[test]
fn statuses_without_a_body_have_none() {
    let server = TestServer::start();
    let mut client = server.connect();
    for code in [204, 304] {
        assert_eq!(client.get(&format!("/status/{code}")).status, code);
    }
    assert_eq!(client.get("/status/101").problem(), "internal");
    assert_eq!(client.get("/status/599").text(), "body");
}

#[test]
fn large_responses_arrive_whole() {
    let server = TestServer::start();
    let reply = server.get("/big");
    assert_eq!(reply.body.len(), 1_000_000);
    for (at, letter) in (b'a'..=b'j').enumerate() {
        assert!(reply.body[at * 100_000..(at + 1) * 100_000].iter().all(|byte| *byte == letter));
    }
}

#[test]
fn problems_name_the_request() {
    let server = TestServer::start();
    let reply = server.get("/nothing");
    let instance = reply.json()["instance"].as_str().unwrap().to_owned();
    assert_eq!(instance.strip_prefix("urn:fanin:request:").unwrap().len(), 16);
    assert_eq!(reply.header("cache-control"), Some("no-store"));
}

#[test]
fn a_panic_ends_its_request_only() {
    let server = TestServer::start();
    let mut client = server.connect();
    for path in ["/panic", "/panic-later"] {
        let reply = client.get(path);
        assert_eq!((reply.status, reply.problem().as_str()), (500, "internal"));
        assert!(!reply.text().contains("expected by a test"), "the client learns nothing of the fault");
    }
    assert_eq!(client.get("/hello").text(), "hello");
    let page = server.metrics();
    assert_eq!(crate::common::metric(&page, "fanin_request_panics_total{method=\"GET\",route=\"/panic\"}"), 1.0);
    assert_eq!(crate::common::metric(&page, "fanin_server_in_flight"), 0.0);
}

#[test]
fn two_addresses() {
    let server = TestServer::with(|setup| {
        let any = setup.server.listen[0];
        setup.server.listen.push(any);
    });
    let addresses = server.handle().addresses();
    assert_eq!(addresses.len(), 2);
    assert_ne!(addresses[0], addresses[1]);
    for address in addresses {
        assert_eq!(Client::connect(*address).get("/hello").text(), "hello");
    }
}
