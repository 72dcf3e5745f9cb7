//! What a reload keeps.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{Client, Version, config, in_time, run, serve, text, until};
use fanin_upstream::{Request, Upstreams, WorkerClient};

#[test]
fn unchanged_upstreams_stay_and_changed_ones_keep_what_they_can() {
    run(async {
        let server = serve(Version::One, |_| async { text("hello") }).await;
        let other = serve(Version::One, |_| async { text("other") }).await;
        let first = config(&server.url());
        let upstreams = Upstreams::new([&first]).unwrap();
        let worker = WorkerClient::new();
        let old = upstreams.get("u").unwrap().clone();
        old.call(&worker, Request::get("/"), in_time()).await.unwrap();

        let same = upstreams.reload([&first.clone()]).unwrap();
        assert!(Arc::ptr_eq(same.get("u").unwrap(), &old));

        let mut slower = first.clone();
        slower.timeout = Duration::from_secs(9);
        slower.limit = fanin_config::Limit::Fixed(7);
        let next = upstreams.reload([&slower]).unwrap();
        upstreams.switch_to(&next);
        let changed = next.get("u").unwrap().clone();
        assert!(!Arc::ptr_eq(&changed, &old));
        changed.call(&worker, Request::get("/"), in_time()).await.unwrap();
        assert_eq!(server.connections(), 1, "the connection is kept");
        let client = Client { upstreams: next, upstream: changed, worker };
        assert_eq!(client.gauge("limit"), 7.0);
        assert_eq!(client.calls("2xx"), 2.0, "counters go on");

        let moved = client.upstreams.reload([&config(&other.url())]).unwrap();
        client.upstreams.switch_to(&moved);
        let upstream = moved.get("u").unwrap().clone();
        assert_eq!(upstream.call(&client.worker, Request::get("/"), in_time()).await.unwrap().body, "other");
        // A call of a request that began before the change still works.
        old.call(&client.worker, Request::get("/"), in_time()).await.unwrap();
        let client = Client { upstreams: moved, upstream, worker: client.worker };
        assert_eq!(client.calls("2xx"), 4.0);
        until(|| client.gauge("connections") == 1.0).await;
    });
}

#[test]
fn all_errors_are_reported_at_once_and_nothing_changes() {
    run(async {
        let server = serve(Version::One, |_| async { text("hello") }).await;
        let upstreams = Upstreams::new([&config(&server.url())]).unwrap();
        let mut bad = config("https://a.internal");
        bad.tls = Some(fanin_config::ClientTls { ca: Some("missing.pem".into()), ..Default::default() });
        let mut worse = bad.clone();
        worse.name = "v".into();
        let errors = upstreams.reload([&bad, &worse]).unwrap_err();
        let texts: Vec<_> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(texts.len(), 2);
        assert!(texts[1].starts_with("upstream v: tls.ca: missing.pem: "), "{texts:?}");
        let worker = WorkerClient::new();
        upstreams.get("u").unwrap().call(&worker, Request::get("/"), in_time()).await.unwrap();
    });
}

#[test]
fn a_removed_upstream_closes_its_connections() {
    run(async {
        let server = serve(Version::One, |_| async { text("hello") }).await;
        let upstreams = Upstreams::new([&config(&server.url())]).unwrap();
        let upstream = upstreams.get("u").unwrap().clone();
        let client = Client { upstreams, upstream, worker: WorkerClient::new() };
        client.get("/").await.unwrap();
        let none = client.upstreams.reload([]).unwrap();
        client.upstreams.switch_to(&none);
        until(|| client.gauge("connections") == 0.0).await;
    });
}

#[test]
fn calls_in_flight_count_against_the_limit_of_the_next_configuration() {
    run(async {
        let server = serve(Version::One, |request| async move {
            if request.uri().path() == "/slow" {
                tokio::time::sleep(crate::common::LONG).await;
            }
            text("hello")
        })
        .await;
        let mut first = config(&server.url());
        crate::common::no_policies(&mut first);
        (first.limit, first.max_waiting) = (fanin_config::Limit::Fixed(2), 0);
        let upstreams = Upstreams::new([&first]).unwrap();
        let worker = WorkerClient::new();
        let old = upstreams.get("u").unwrap().clone();
        let mut running = Box::pin(old.call(&worker, Request::get("/slow"), in_time()));
        let started = tokio::time::timeout(Duration::from_millis(20), &mut running).await;
        assert!(started.is_err(), "it runs");

        let mut second = first.clone();
        second.limit = fanin_config::Limit::Fixed(1);
        let next = upstreams.reload([&second]).unwrap();
        upstreams.switch_to(&next);
        let new = next.get("u").unwrap().clone();
        let error = new.call(&worker, Request::get("/"), in_time()).await.unwrap_err();
        assert!(error.to_string().contains("1 calls in flight (limit 1)"), "{error}");
        drop(running);
        assert_eq!(new.call(&worker, Request::get("/"), in_time()).await.unwrap().body, "hello");
    });
}

#[test]
fn breaker_and_retry_budget_keep_their_state_when_other_settings_change() {
    run(async {
        let server = serve(Version::One, |_| async {
            let mut response = text("");
            *response.status_mut() = http::StatusCode::SERVICE_UNAVAILABLE;
            response
        })
        .await;
        let mut first = config(&server.url());
        first.breaker = Some(fanin_config::Breaker {
            pause: crate::common::LONG,
            longest_pause: crate::common::LONG,
            ..Default::default()
        });
        let upstreams = Upstreams::new([&first]).unwrap();
        let worker = WorkerClient::new();
        let old = upstreams.get("u").unwrap().clone();
        while old.call(&worker, Request::get("/"), in_time()).await.is_ok() {}
        let reached = server.requests();

        // The breaker is unchanged: a limit shows nothing about the upstream's health.
        let mut second = first.clone();
        second.limit = fanin_config::Limit::Fixed(5);
        let next = upstreams.reload([&second]).unwrap();
        upstreams.switch_to(&next);
        let new = next.get("u").unwrap().clone();
        let error = new.call(&worker, Request::get("/"), in_time()).await.unwrap_err();
        assert_eq!(error.kind, fanin_upstream::ErrorKind::Breaker);

        // Another breaker starts closed, and the retry budget is new as well.
        let mut third = second.clone();
        third.breaker = None;
        let last = next.reload([&third]).unwrap();
        next.switch_to(&last);
        let newest = last.get("u").unwrap().clone();
        newest.call(&worker, Request::get("/"), in_time()).await.unwrap();
        assert!(server.requests() > reached);
    });
}

#[test]
fn connections_count_against_the_budget_of_the_next_configuration() {
    run(async {
        let server = serve(Version::One, |request| async move {
            if request.uri().path() == "/slow" {
                tokio::time::sleep(crate::common::LONG).await;
            }
            text("hello")
        })
        .await;
        let mut first = config(&server.url());
        crate::common::no_policies(&mut first);
        (first.max_connections, first.max_connecting) = (1, 1);
        let upstreams = Upstreams::new([&first]).unwrap();
        let worker = WorkerClient::new();
        let old = upstreams.get("u").unwrap().clone();
        let mut running = Box::pin(old.call(&worker, Request::get("/slow"), in_time()));
        assert!(tokio::time::timeout(Duration::from_millis(50), &mut running).await.is_err(), "it runs");

        let mut second = first.clone();
        second.timeout = Duration::from_millis(50);
        let next = upstreams.reload([&second]).unwrap();
        upstreams.switch_to(&next);
        let new = next.get("u").unwrap().clone();
        let context = fanin_upstream::CallContext { timeout: Some(Duration::from_millis(50)), ..in_time() };
        let error = new.call(&worker, Request::get("/"), context).await.unwrap_err();
        assert_eq!(error.kind, fanin_upstream::ErrorKind::Timeout, "the only connection is in use: {error}");
        assert_eq!(server.connections(), 1);
        drop(running);
        assert_eq!(new.call(&worker, Request::get("/"), in_time()).await.unwrap().body, "hello");
    });
}
