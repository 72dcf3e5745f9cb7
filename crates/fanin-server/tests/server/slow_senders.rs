//! A client that sends the bodies of its requests slowly, as the metrics show it. What else there is to it is tested in paused time
//! (`worker/bodies_in_paused_time.rs`).

use std::time::Duration;

use crate::common::{Setup, TestServer, metric, pause};

const SLOW: &str = "fanin_connection_timeouts_total{kind=\"slow-sender\"}";
const WINDOW: Duration = Duration::from_millis(500);
const LONG: Duration = Duration::from_secs(3600);

/// Nothing but the minimum rate bounds a body.
fn any_time(setup: &mut Setup) {
    setup.server.workers = 1;
    setup.server.body_timeout = LONG;
    setup.server.slow_sender_timeout = Some(WINDOW);
    for route in &mut setup.routes {
        (route.timeout, route.max_body) = (LONG, 8 << 20);
    }
}

#[test]
fn a_body_that_trickles_is_answered_with_408_and_counted() {
    let server = TestServer::with(any_time);
    server.shared.limiter.add_permits(1);
    for (slow, path) in (1..).zip(["/echo", "/upload"]) {
        let mut client = server.connect();
        client.send(format!("POST {path} HTTP/1.1\r\nhost: a\r\ncontent-length: 100000\r\n\r\n"));
        while client.is_silent() && client.try_send("a") {
            pause(Duration::from_millis(20));
        }
        let reply = client.reply();
        assert_eq!(reply.status, 408, "{path}");
        assert!(reply.text().contains("slower than the minimum rate"), "{path}: {}", reply.text());
        assert!(client.is_closed(), "{path}");
        assert_eq!(metric(&server.metrics(), SLOW), f64::from(slow), "{path}");
    }
}
