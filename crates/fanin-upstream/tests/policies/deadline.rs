//! No call outlives its deadline, and the limit bounds the calls in flight.

use std::time::Duration;

use crate::common::{LONG, Version, client, in_time, raw, read_head, run, serve, text, until};
use fanin_upstream::{CallContext, ErrorKind, Fault, Request};
use futures_util::FutureExt;
use futures_util::future::join_all;
use tokio::io::AsyncWriteExt;
use tokio::time::{Instant, sleep};

#[test]
fn no_call_starts_after_its_deadline() {
    run(async {
        let server = serve(Version::One, |_| async { text("hello") }).await;
        let client = client(&server.url(), |_| ());
        let context = CallContext::new(Instant::now());
        let call = client.upstream.call(&client.worker, Request::get("/"), context);
        let error = call.now_or_never().expect("at once").unwrap_err();
        assert_eq!(error.kind, ErrorKind::Timeout);
        assert_eq!(server.connections(), 0);
    });
}

#[test]
fn a_timeout_names_its_cause_and_the_phase() {
    run(async {
        let silent = raw(|stream| async move {
            let _open = stream;
            std::future::pending().await
        })
        .await;
        let silent = client(&silent.url(), |_| ());
        let own = CallContext { timeout: Some(Duration::from_millis(30)), ..in_time() };
        let error = silent.upstream.call(&silent.worker, Request::get("/"), own).await.unwrap_err();
        assert_eq!((error.kind, error.fault, error.retry), (ErrorKind::Timeout, Fault::Upstream, true));
        assert_eq!(error.detail, "the call timed out: no answer");
        let request = CallContext::new(Instant::now() + Duration::from_millis(30));
        let error = silent.upstream.call(&silent.worker, Request::get("/"), request).await.unwrap_err();
        assert_eq!(error.detail, "the request's deadline passed: no answer");
        until(|| silent.gauge("connections") == 0.0).await;

        let slow = raw(|mut stream| async move {
            read_head(&mut stream).await;
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n").await.unwrap();
            while stream.write_all(b"x").await.is_ok() {
                sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
        let slow = client(&slow.url(), |config| config.timeout = Duration::from_millis(50));
        let error = slow.get("/").await.unwrap_err();
        assert_eq!(error.detail, "the call timed out: the answer is not complete");
        until(|| slow.gauge("connections") == 0.0).await;
    });
}

#[test]
fn the_limit_holds_and_the_excess_is_refused_at_once() {
    run(async {
        let server = serve(Version::One, |_| async {
            sleep(LONG).await;
            text("late")
        })
        .await;
        let client = client(&server.url(), |config| {
            config.limit = fanin_config::Limit::Fixed(3);
            config.max_waiting = 2;
        });
        let mut calls: Vec<_> = (0..5).map(|_| Box::pin(client.get("/"))).collect();
        for call in &mut calls {
            assert!(call.as_mut().now_or_never().is_none());
        }
        assert_eq!((client.gauge("in_flight"), client.gauge("waiting")), (3.0, 2.0));
        let error = client.get("/").now_or_never().expect("at once").unwrap_err();
        assert_eq!((error.kind, error.fault), (ErrorKind::Limit, Fault::Us));
        assert_eq!(error.detail, "3 calls in flight (limit 3) and 2 waiting");
        let old = CallContext { request_started: Instant::now() - Duration::from_secs(1), ..in_time() };
        let mut older = Box::pin(client.upstream.call(&client.worker, Request::get("/"), old));
        assert!(older.as_mut().now_or_never().is_none(), "an older request waits");
        let error = calls.pop().unwrap().now_or_never().expect("instead of the youngest").unwrap_err();
        assert_eq!(error.kind, ErrorKind::Limit);
        tokio::select! {
            _ = join_all(calls.iter_mut()) => panic!("nothing is answered"),
            () = until(|| server.requests() == 3) => {}
        }
        drop((calls, older));
        assert_eq!((client.gauge("in_flight"), client.gauge("waiting")), (0.0, 0.0));
    });
}

#[test]
fn waiting_for_the_limit_ends_with_the_deadline() {
    run(async {
        let server = serve(Version::One, |_| async {
            sleep(LONG).await;
            text("late")
        })
        .await;
        let client = client(&server.url(), |config| config.limit = fanin_config::Limit::Fixed(1));
        let mut first = Box::pin(client.get("/"));
        assert!(first.as_mut().now_or_never().is_none());
        let short = CallContext { timeout: Some(Duration::from_millis(50)), ..in_time() };
        let error = client.upstream.call(&client.worker, Request::get("/"), short).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Timeout);
        assert_eq!(error.detail, "the call timed out: waiting for a permit of the limit");
        assert_eq!((client.gauge("in_flight"), client.gauge("waiting")), (1.0, 0.0));
        drop(first);
        assert_eq!(client.gauge("in_flight"), 0.0);
        assert_eq!((client.calls("timeout"), client.calls("cancelled")), (1.0, 1.0));
    });
}
