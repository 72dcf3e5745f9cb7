//! Connections are bounded, shared and never lost.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use crate::common::{Version, client, in_time, raw, run, serve, text, until};
use fanin_upstream::{CallContext, ErrorKind, Request, WorkerClient};
use futures_util::future::join_all;
use tokio::time::{Instant, sleep};

#[test]
fn a_cold_worker_opens_few_connections_at_once_and_serves_all() {
    run(async {
        let (now, most) = (Rc::new(Cell::new(0usize)), Rc::new(Cell::new(0usize)));
        let server = serve(Version::One, |_| async {
            sleep(Duration::from_millis(1)).await;
            text("hello")
        })
        .await;
        let client = client(&server.url(), |config| config.max_connecting = 4);
        let watch = async {
            loop {
                now.set(client.gauge("connecting") as usize);
                most.set(most.get().max(now.get()));
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            () = watch => {}
            results = join_all((0..256).map(|_| client.get("/"))) => {
                assert!(results.into_iter().all(|result| result.is_ok()));
            }
        }
        assert!((1..=4).contains(&most.get()), "{} being opened at once", most.get());
        assert_eq!(server.requests(), 256);
        assert!(server.connections() <= 256);
        assert_eq!(client.gauge("in_flight"), 0.0);
    });
}

#[test]
fn a_returned_connection_serves_before_a_new_one_could() {
    run(async {
        // The listener's backlog accepts connections, but only the first is ever served.
        let served = Rc::new(Cell::new(false));
        let server = raw(move |mut stream| {
            let first = !served.replace(true);
            async move {
                use tokio::io::AsyncWriteExt;
                while first && crate::common::read_head(&mut stream).await.is_some() {
                    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
                }
                std::future::pending().await
            }
        })
        .await;
        let client = client(&server.url(), |config| config.max_connections = 1);
        let results = join_all((0..50).map(|_| client.get("/"))).await;
        assert!(results.into_iter().all(|result| result.is_ok()));
        assert_eq!(server.connections(), 1);
    });
}

#[test]
fn a_call_dropped_at_any_point_leaves_nothing_behind() {
    run(async {
        let server = serve(Version::One, |request| async move {
            sleep(Duration::from_millis(2)).await;
            let mut body = request.uri().path().as_bytes().to_vec();
            body.resize(300_000, b' ');
            text(body)
        })
        .await;
        let client = client(&server.url(), |config| {
            config.max_connections = 2;
            config.max_connecting = 1;
            config.limit = fanin_config::Limit::Fixed(4);
            config.max_waiting = 64;
        });
        for round in 0..60u64 {
            let calls = join_all((0..8).map(|_| client.get("/")));
            let _ = tokio::time::timeout(Duration::from_micros(100 * round), calls).await;
        }
        until(|| client.gauge("in_flight") == 0.0).await;
        assert_eq!(client.gauge("waiting"), 0.0);
        assert!(client.gauge("connections") <= 2.0);
        let results = join_all((0..20).map(|call| client.get(&format!("/{call}/")))).await;
        for (call, result) in results.into_iter().enumerate() {
            let body = result.expect("all budgets are there").body;
            assert!(body.starts_with(format!("/{call}/").as_bytes()), "nobody gets the answer of a dropped call");
        }
        assert!(client.calls("cancelled") > 0.0);
    });
}

#[test]
fn a_worker_gets_a_connection_that_another_does_not_use() {
    run(async {
        let server = serve(Version::One, |_| async { text("hello") }).await;
        let client = client(&server.url(), |config| config.max_connections = 2);
        join_all((0..2).map(|_| client.get("/"))).await;
        assert_eq!(client.gauge("connections"), 2.0);
        let other = WorkerClient::new();
        client.upstream.call(&other, Request::get("/"), in_time()).await.unwrap();
        assert!(client.gauge("connections") <= 2.0);
        drop(other);
        until(|| client.gauge("connections") <= 1.0).await;
        client.get("/").await.unwrap();
    });
}

/// Many more calls than connections, from several workers at once: each gets one before its time is over, though the connections are
/// never where they are needed.
#[test]
fn bursts_of_several_workers_share_few_connections() {
    run(async {
        let server = serve(Version::One, |_| async {
            sleep(Duration::from_millis(2)).await;
            text("hello")
        })
        .await;
        let client = client(&server.url(), |config| {
            config.max_connections = 4;
            config.limit = fanin_config::Limit::Fixed(1000);
        });
        let workers: Vec<_> = (0..8).map(|_| WorkerClient::new()).collect();
        for round in 0..20 {
            let calls = (0..10).map(|call| {
                let worker = &workers[(round * 3 + call % 3) % workers.len()];
                // Below the time after which a pool looks for room by itself.
                let context = CallContext::new(Instant::now() + Duration::from_secs(4));
                client.upstream.call(worker, Request::get("/"), context)
            });
            let failed: Vec<_> = join_all(calls).await.into_iter().filter_map(Result::err).collect();
            assert!(failed.is_empty(), "round {round}: {failed:?}");
        }
        assert!(client.gauge("connections") <= 4.0);
    });
}

#[test]
fn a_connect_timeout_is_reported() {
    run(async {
        // A listener whose backlog is full: further connections are neither accepted nor refused.
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(1).unwrap();
        let address = listener.local_addr().unwrap();
        let mut filler = Vec::new();
        while let Ok(Ok(stream)) =
            tokio::time::timeout(Duration::from_millis(200), tokio::net::TcpStream::connect(address)).await
        {
            filler.push(stream);
        }
        let client = client(&format!("http://{address}"), |config| config.connect_timeout = Duration::from_millis(100));
        let error = client.get("/").await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Connect, "{error}");
        assert!(error.detail.contains("no connection within 100 ms"), "{error}");
        until(|| client.gauge("connecting") == 0.0).await;
    });
}
