//! Passwords, URLs, TLS, and reloads.

use fanin_testbed::Server;

use crate::common::run;
use crate::{Client, PASSWORD, WHOLE, admin, eventually, keys, metric, publish, serve, write};

/// A wrong password, and reloads: to the right one, and without a change.
fn a_password_is_wrong(kind: &str) {
    let broker = Server::broker(kind, &[]);
    let wrong = keys(&broker).replace(PASSWORD, "wrong-and-hidden");
    let (dir, serving) = serve(&wrong);
    let line = serving.logged("no events from and to other instances");
    assert!(line.contains("[push] in fanin.toml") && line.contains("it refuses the user or the password"), "{line}");
    assert!(line.contains("(`broker`, `broker_password`)"), "{line}");
    let mut client = Client::open(&serving, "news");
    write(&dir, &keys(&broker));
    serving.signal("-HUP");
    let lines = serving.lines_until(WHOLE);
    assert_eq!(lines.iter().filter(|line| line.contains("is retried")).count(), 0, "{lines:?}");
    client.lost();
    let pages = [lines.join("\n"), line, admin(&serving, "/config"), admin(&serving, "/metrics")].concat();
    assert!(pages.contains("\"broker\":"), "{pages}");
    for secret in [PASSWORD, "wrong-and-hidden"] {
        assert!(!pages.contains(secret), "{pages}");
    }
    // The same broker: the link stays, and nobody loses anything.
    write(&dir, &format!("{}heartbeat = \"7s\"", keys(&broker)));
    serving.signal("-HUP");
    let lines = serving.lines_until("reloaded");
    assert!(!lines.iter().any(|line| line.contains(WHOLE)), "{lines:?}");
    publish(&serving, "news", "1");
    assert_eq!(client.data(), "1");
    // No broker.
    write(&dir, "");
    serving.signal("-HUP");
    eventually("the link is gone", || metric(&serving, "connected") == 0);
    publish(&serving, "news", "2");
    assert_eq!(client.data(), "2");
    // Back at the same broker: what this instance published before must not come back.
    write(&dir, &keys(&broker));
    serving.signal("-HUP");
    serving.logged(WHOLE);
    client.lost();
    publish(&serving, "news", "3");
    assert_eq!(client.data(), "3");
    assert_eq!(metric(&serving, "received_total"), 0);
}

#[test]
fn the_password_of_redis_is_wrong() {
    a_password_is_wrong("redis");
}

#[test]
fn the_password_of_nats_is_wrong() {
    a_password_is_wrong("nats");
}

#[test]
fn a_wrong_url_is_an_error_of_the_file() {
    let dir = tempfile::tempdir().expect("a folder");
    for (keys, part) in [
        ("broker = \"kafka://u:hidden@h\"", "push.broker: has not the scheme of a broker"),
        ("broker = \"redis://u:hidden@h/1\"", "push.broker: has a path"),
        (
            "broker = \"redis://u:hidden@h\"\nbroker_password = \"hidden\"",
            "push.broker_password: the URL has a password",
        ),
        ("broker = \"redis://h\"\nbroker_prefix = \"a b\"", "push.broker_prefix: must have 1 to 64 letters"),
        ("broker = \"redis://h\"\nbroker_tls = {}", "push.broker_tls: needs a URL with rediss:// or tls://"),
        ("broker = \"rediss://h\"\nbroker_tls = { ca = \"flows.star\" }", "push.broker_tls.ca: "),
    ] {
        write(&dir, keys);
        let (status, out, error) = run(&["check", dir.path().to_str().expect("a path of text")]);
        assert_eq!(status, Some(1), "{keys}");
        assert!(error.contains(part) && error.contains("fanin.toml"), "{keys}: {error}");
        assert!(!error.contains("hidden") && !out.contains("hidden"), "{out} {error}");
    }
}

/// TLS that cannot be: a certificate that nobody trusts, and a server without TLS.
fn tls_is_wrong(kind: &str) {
    let [broker, other] = [Server::broker(kind, &["tls"]), Server::broker(kind, &["tls"])];
    let plain = Server::broker(kind, &[]);
    let encrypted = plain.url.replace("redis://", "rediss://").replace("nats://", "tls://");
    for url in [&broker.url, &encrypted] {
        let ca = other.ca.to_str().expect("a path of text");
        let (dir, serving) = serve(&format!("broker = {url:?}\nbroker_tls = {{ ca = {ca:?} }}"));
        let line = serving.logged("no events from and to other instances");
        assert!(line.contains("TLS (`broker_tls`)") && !line.contains(PASSWORD), "{line}");
        if url == &broker.url {
            write(&dir, &keys(&broker));
            serving.signal("-HUP");
            serving.logged(WHOLE);
            // From one broker to another: only the new link counts.
            write(&dir, &keys(&plain));
            serving.signal("-HUP");
            serving.logged(WHOLE);
            eventually("one link", || metric(&serving, "connected") == 1);
        }
    }
}

#[test]
fn the_tls_of_redis_is_wrong() {
    tls_is_wrong("redis");
}

#[test]
fn the_tls_of_nats_is_wrong() {
    tls_is_wrong("nats");
}
