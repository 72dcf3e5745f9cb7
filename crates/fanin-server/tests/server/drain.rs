//! The end of a server.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use crate::common::{TestServer, eventually};
use fanin_server::Exit;

#[test]
fn running_requests_end_and_new_connections_do_not_begin() {
    let server = TestServer::start();
    let (mut running, mut idle, mut fresh) = (server.connect(), server.connect(), server.connect());
    assert_eq!(idle.get("/hello").status, 200);
    running.send_get("/limiter");
    eventually("it runs", || server.shared.begun.load(SeqCst) == 1);
    assert_eq!(server.admin_get("/ready").status, 200);

    server.handle().drain();
    eventually("not ready", || server.admin_get("/ready").status == 503);
    assert_eq!(server.admin_get("/health").status, 200);
    assert!(idle.is_closed());
    assert!(fresh.is_closed());
    eventually("nobody listens", || crate::common::connect(server.address).is_err());
    assert!(running.is_silent());

    server.shared.limiter.add_permits(1);
    let reply = running.reply();
    assert_eq!((reply.status, reply.header("connection")), (200, Some("close")));
    assert!(running.is_closed());
    assert_eq!(server.end(), Exit::Drained);
}

#[test]
fn a_detached_flow_is_waited_for() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.send_get("/detach");
    eventually("it runs", || server.shared.begun.load(SeqCst) == 1);
    drop(client);
    server.handle().drain();
    eventually("not ready", || server.admin_get("/ready").status == 503);
    let shared = server.shared.clone();
    shared.limiter.add_permits(1);
    assert_eq!(server.end(), Exit::Drained);
    assert_eq!(shared.finished.load(SeqCst), 1);
}

#[test]
fn what_does_not_end_is_cut_off() {
    let server = TestServer::with(|setup| setup.server.drain_timeout = Duration::from_millis(100));
    let mut client = server.connect();
    client.send_get("/limiter");
    eventually("it runs", || server.shared.begun.load(SeqCst) == 1);
    let shared = server.shared.clone();
    assert_eq!(server.end(), Exit::DrainTimeout);
    assert_eq!(shared.dropped.load(SeqCst), 1);
    assert!(client.is_closed());
}

#[test]
fn no_request_is_lost_when_clients_keep_coming() {
    let server = TestServer::start();
    let address = server.address;
    std::thread::scope(|scope| {
        let clients = (0..4).map(|_| {
            scope.spawn(move || {
                let mut answered = 0;
                // Until nobody listens any more; whoever was let in is answered.
                while let Ok(stream) = crate::common::connect(address) {
                    drop(stream);
                    let Some(status) = crate::common::attempt(address) else { break };
                    assert_eq!(status, 200);
                    answered += 1;
                }
                answered
            })
        });
        let clients = clients.collect::<Vec<_>>();
        crate::common::pause(Duration::from_millis(50));
        assert_eq!(server.end(), Exit::Drained);
        let answered = clients.into_iter().map(|client| client.join().unwrap()).sum::<u32>();
        assert!(answered > 0);
    });
}
