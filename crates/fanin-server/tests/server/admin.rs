//! Who may use the admin pages, and that probes are answered while others hold connections.

use std::net::SocketAddr;

use crate::common::{Client, TestServer};

const SILENT: usize = 1000;

/// Connects without a word.
fn silent(to: SocketAddr) -> Vec<Client> {
    (0..SILENT).map(|_| Client::connect(to)).collect()
}

#[test]
fn probes_are_answered_beside_a_thousand_silent_connections() {
    let server = TestServer::with(|setup| setup.server.probes = Some(SocketAddr::from(([127, 0, 0, 1], 0))));
    let probes = server.handle.as_ref().unwrap().probes().unwrap();
    let mut before = Client::connect(server.admin);
    assert_eq!(before.get("/ready").status, 200);
    let _held = silent(server.admin);
    assert_eq!(Client::connect(probes).get("/ready").text(), "ready\n");
    assert_eq!(server.admin_get("/health").text(), "ok\n");
    let _held_too = silent(probes);
    assert_eq!(Client::connect(probes).get("/health").text(), "ok\n");
}

#[test]
fn the_probes_listener_serves_nothing_else() {
    let server = TestServer::with(|setup| setup.server.probes = Some(SocketAddr::from(([127, 0, 0, 1], 0))));
    let probes = server.handle.as_ref().unwrap().probes().unwrap();
    for path in ["/", "/metrics", "/config", "/debug/test"] {
        assert_eq!(Client::connect(probes).get(path).status, 404, "{path}");
    }
    let reply = Client::connect(probes).send("POST /reload HTTP/1.1\r\nhost: localhost\r\n\r\n").reply();
    assert_eq!(reply.status, 404);
    // A probe may come by any name.
    let reply = Client::connect(probes).send("GET /ready HTTP/1.1\r\nhost: fanin.example\r\n\r\n").reply();
    assert_eq!(reply.status, 200);
}

#[test]
fn foreign_pages_cannot_use_the_admin_pages() {
    let server = TestServer::start();
    let send = |head: &str| Client::connect(server.admin).send(format!("{head}\r\n\r\n")).reply().status;
    assert_eq!(send("GET /config HTTP/1.1\r\nhost: evil.example"), 403);
    assert_eq!(send("POST /reload HTTP/1.1\r\nhost: localhost\r\norigin: http://evil.example"), 403);
    assert_eq!(send("POST /reload HTTP/1.1\r\nhost: localhost:1\r\norigin: http://localhost:1"), 200);
    assert_eq!(send("POST /reload HTTP/1.1\r\nhost: localhost"), 200);
}

#[test]
fn what_changes_or_reveals_needs_the_token() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "s3cret\n").unwrap();
    let server = TestServer::with(|setup| setup.server.admin_token_file = Some(file));
    let send = |head: &str| Client::connect(server.admin).send(format!("{head}\r\nhost: localhost\r\n\r\n")).reply();
    for head in ["GET /config HTTP/1.1", "POST /reload HTTP/1.1", "GET /debug/test HTTP/1.1"] {
        let refused = send(head);
        assert_eq!((refused.status, refused.header("www-authenticate")), (401, Some("Bearer")), "{head}");
        assert_eq!(send(&format!("{head}\r\nauthorization: Bearer wrong")).status, 401, "{head}");
        assert_eq!(send(&format!("{head}\r\nauthorization: Bearer s3cret")).status, 200, "{head}");
    }
    assert_eq!(server.admin_get("/metrics").status, 200);
    assert_eq!(server.admin_get("/ready").status, 200);
}
