//! Clients that let the server wait: with a request that does not end, with an answer that they do not take. Time is paused.

mod common;

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use common::Repository;
use fanin_model::Models;
use fanin_model::protocol::{Service, Serving, bind, serve};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, LocalOptions};

/// Longer than any wait here; in paused time it is over at once.
const LONG: Duration = Duration::from_secs(3600);

fn served<F: Future<Output = ()>>(run: impl FnOnce(SocketAddr, Arc<Service>, Rc<Serving>) -> F) {
    let repository = Repository::with_spam();
    // Pings would be waited for in vain: time passes whenever nothing else does.
    let config = fanin_config::Models { timeout: LONG, keepalive: LONG * 10, ..repository.config() };
    let models = Models::start(&config).expect("it starts");
    let runtime = Builder::new_current_thread().enable_all().start_paused(true).build_local(LocalOptions::default());
    runtime.expect("a runtime").block_on(async move {
        let listeners = bind(&["127.0.0.1:0".parse().expect("an address")]).expect("a listener");
        let address = listeners[0].local_addr().expect("an address");
        let service = Service::new(models);
        let serving = serve(&service, listeners).expect("it serves");
        run(address, service, serving).await;
    });
}

/// Frames of HTTP/2 (RFC 9113, 4.1).
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// A client that asks, and has this much room for the answer (RFC 9113, 6.5.2).
async fn asks_with_window(address: SocketAddr, window: u8) -> TcpStream {
    let mut client = TcpStream::connect(address).await.expect("connected");
    let mut all = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    all.extend(frame(4, 0, 0, &[0, 4, 0, 0, 0, window]));
    // GET, http, and a path as it stands (RFC 7541, 6.1 and 6.2.2).
    let path = b"/v2/health/live";
    let mut head = vec![0x82, 0x86, 0x04, path.len() as u8];
    head.extend(path);
    all.extend(frame(1, 5, 1, &head));
    client.write_all(&all).await.expect("sent");
    client
}

#[test]
fn a_client_that_takes_nothing_is_closed() {
    served(|address, service, serving| async move {
        // With room for one byte, the answer has been handed to HTTP/2, which keeps the rest.
        for (window, closed) in [(0, 1), (1, 2)] {
            let mut client = asks_with_window(address, window).await;
            let started = tokio::time::Instant::now();
            while service.slow_readers() < closed && started.elapsed() < LONG {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            assert_eq!(service.slow_readers(), closed);
            let mut all = Vec::new();
            // Reset or closed: both are the end.
            let _ = client.read_to_end(&mut all).await;
            assert!(!all.is_empty(), "it was greeted");
            while serving.open() > 0 {
                tokio::task::yield_now().await;
            }
            assert_eq!(service.connections(), 0);
        }
    });
}

#[test]
fn a_request_that_does_not_end_is_given_up_whatever_its_deadline() {
    served(|address, service, _serving| async move {
        let mut client = TcpStream::connect(address).await.expect("connected");
        let started = tokio::time::Instant::now();
        let head = b"POST /v2/models/spam/infer HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{\"inputs\":";
        client.write_all(head).await.expect("sent");
        let mut answer = vec![0; 4096];
        let length = client.read(&mut answer).await.expect("an answer");
        let answer = String::from_utf8_lossy(&answer[..length]).into_owned();
        assert!(answer.starts_with("HTTP/1.1 504 "), "{answer}");
        assert!(answer.ends_with("{\"error\":\"the request did not arrive in full within 30 s\"}"), "{answer}");
        assert!(started.elapsed() < Duration::from_secs(32), "{:?}", started.elapsed());
        assert_eq!(service.bytes(), 0);
    });
}

/// Waits until no connection is open; for no longer than `LONG`.
async fn all_closed(serving: &Serving) -> bool {
    let started = tokio::time::Instant::now();
    while serving.open() > 0 && started.elapsed() < LONG {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    serving.open() == 0
}

#[test]
fn silent_connections_are_closed() {
    served(|address, service, serving| async move {
        // Nothing; a part of the preface of HTTP/2; all of it, and an answer to each ping would follow.
        let preface: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
        let settings = [preface, &frame(4, 0, 0, &[])].concat();
        let mut clients = Vec::new();
        for sent in [&b""[..], &preface[..10], &settings] {
            let mut client = TcpStream::connect(address).await.expect("connected");
            client.write_all(sent).await.expect("sent");
            clients.push(client);
        }
        while serving.open() < clients.len() {
            tokio::task::yield_now().await;
        }
        assert!(all_closed(&serving).await, "{} are open", serving.open());
        assert_eq!(service.connections(), 0);
    });
}

#[test]
fn loading_a_model_takes_a_place_among_the_requests_in_progress() {
    served(|address, service, _serving| async move {
        let mut config = (*service.models().config()).clone();
        config.limit = 1;
        service.models().configure(&config);
        let mut first = TcpStream::connect(address).await.expect("connected");
        let head = b"POST /v2/models/spam/infer HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{\"inputs\":";
        first.write_all(head).await.expect("sent");
        while service.in_flight() == 0 {
            tokio::task::yield_now().await;
        }
        for action in ["load", "unload"] {
            let mut second = TcpStream::connect(address).await.expect("connected");
            let head = format!(
                "POST /v2/repository/models/spam/{action} HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            );
            second.write_all(head.as_bytes()).await.expect("sent");
            let mut answer = String::new();
            second.read_to_string(&mut answer).await.expect("an answer");
            assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
            assert!(answer.contains("models.limit"), "{answer}");
        }
        drop(first);
    });
}

#[test]
fn a_web_page_cannot_load_a_model() {
    served(|address, _service, _serving| async move {
        let mut client = TcpStream::connect(address).await.expect("connected");
        let head = "POST /v2/repository/models/spam/load HTTP/1.1\r\nhost: x\r\norigin: http://evil.example\r\nconnection: close\r\n\r\n";
        client.write_all(head.as_bytes()).await.expect("sent");
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    });
}
