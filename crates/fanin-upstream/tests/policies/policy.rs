//! The policies together, against real servers.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use crate::common::{
    LONG, Response, Version, client, client_of, in_time, no_policies, raw, read_head, run, serve, text,
};
use fanin_config::{Breaker, Hedge, Limit, Retry};
use fanin_upstream::{CallContext, ErrorKind, Request};
use futures_util::future::join_all;
use http::{Method, StatusCode};
use tokio::io::AsyncWriteExt;
use tokio::time::sleep;

fn post(path: &str) -> Request {
    Request { method: Method::POST, ..Request::get(path) }
}

fn status(status: u16) -> Response {
    let mut response = text("");
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    response
}

/// Answers 503 to every other request.
async fn flaky() -> crate::common::Server {
    let turn = Cell::new(0);
    serve(Version::One, move |_| {
        turn.set(turn.get() + 1);
        std::future::ready(status(if turn.get() % 2 == 1 { 503 } else { 200 }))
    })
    .await
}

#[test]
fn a_safe_call_is_retried_and_one_with_effects_is_not() {
    run(async {
        let server = flaky().await;
        let client = client(&server.url(), |_| ());
        assert_eq!(client.get("/").await.unwrap().status, 200);
        assert_eq!(server.requests(), 2);
        assert_eq!(client.call(post("/")).await.unwrap().status, 503);
        assert_eq!(server.requests(), 3);
        assert_eq!(client.metric("fanin_upstream_retries_total{upstream=\"u\"}"), 1.0);
    });
}

#[test]
fn a_call_declared_safe_is_retried() {
    run(async {
        let server = flaky().await;
        let client = client(&server.url(), |_| ());
        let answer = client.upstream.call(&client.worker, post("/"), in_time().safe()).await.unwrap();
        assert_eq!((answer.status.as_u16(), server.requests()), (200, 2));
    });
}

#[test]
fn retries_stay_within_their_budget_whatever_fails() {
    run(async {
        let server = serve(Version::One, |_| std::future::ready(status(503))).await;
        let client = client(&server.url(), |config| {
            no_policies(config);
            config.retry = Some(Retry { max: 3, floor: 0.0, backoff: Duration::ZERO, ..Retry::default() });
        });
        for _ in 0..1000 {
            assert_eq!(client.get("/").await.unwrap().status, 503);
        }
        assert!((1190..=1201).contains(&server.requests()), "{}", server.requests());
        assert!(client.metric("fanin_upstream_retries_denied_total{upstream=\"u\"}") > 700.0);
    });
}

#[test]
fn a_call_with_effects_that_found_no_connection_goes_to_another_endpoint() {
    run(async {
        let dead = raw(|_| async {}).await;
        let alive = serve(Version::One, |_| async { text("hello") }).await;
        let url = dead.url();
        drop(dead);
        while tokio::net::TcpStream::connect(url.trim_start_matches("http://")).await.is_ok() {
            sleep(Duration::from_millis(1)).await;
        }
        let client = client(&alive.url(), |config| {
            no_policies(config);
            config.retry = Some(Retry { budget: 1.0, ..Retry::default() });
            config.urls.push(url.parse().unwrap());
        });
        for call in 0..40 {
            assert_eq!(client.call(post(&format!("/{call}"))).await.unwrap().body, "hello");
        }
        assert_eq!(alive.requests(), 40);
    });
}

#[test]
fn the_breaker_opens_protects_the_upstream_and_closes_again() {
    run(async {
        let broken = Rc::new(Cell::new(true));
        let state = broken.clone();
        let server =
            serve(Version::One, move |_| std::future::ready(status(if state.get() { 500 } else { 200 }))).await;
        let client = client(&server.url(), |config| {
            no_policies(config);
            config.breaker = Some(Breaker { pause: Duration::from_millis(50), ..Breaker::default() });
        });
        for _ in 0..20 {
            assert_eq!(client.get("/").await.unwrap().status, 500);
        }
        for _ in 0..200 {
            if let Err(error) = client.get("/").await {
                assert_eq!(error.kind, ErrorKind::Breaker);
            }
        }
        assert!(server.requests() < 60, "{} of 220 reach it", server.requests());
        assert_eq!(server.requests() as f64 + client.calls("breaker"), 220.0);
        broken.set(false);
        while client.get("/").await.is_err() {
            sleep(Duration::from_millis(5)).await;
        }
        for _ in 0..3 {
            client.get("/").await.unwrap();
        }
        assert_eq!(client.gauge("breaker"), 0.0);
    });
}

#[test]
fn a_hanging_upstream_opens_the_breaker_by_timeouts() {
    run(async {
        let server = raw(|stream| async move {
            let _open = stream;
            sleep(LONG).await;
        })
        .await;
        let client = client(&server.url(), |config| config.timeout = Duration::from_millis(20));
        let errors = join_all((0..20).map(|_| client.get("/"))).await;
        assert!(errors.into_iter().all(|error| error.unwrap_err().kind == ErrorKind::Timeout));
        assert_eq!(client.get("/").await.unwrap_err().kind, ErrorKind::Breaker);
    });
}

#[test]
fn a_request_with_no_time_left_does_not_count_against_the_upstream() {
    run(async {
        let server = serve(Version::One, |_| async {
            sleep(Duration::from_millis(50)).await;
            text("hello")
        })
        .await;
        let client = client(&server.url(), |_| ());
        let hasty = CallContext { timeout: Some(Duration::from_millis(1)), ..in_time() };
        let errors =
            join_all((0..40).map(|_| client.upstream.call(&client.worker, Request::get("/"), hasty.clone()))).await;
        assert!(errors.into_iter().all(|error| error.unwrap_err().kind == ErrorKind::Timeout));
        client.get("/").await.unwrap();
    });
}

#[test]
fn a_hedge_answers_for_a_request_that_is_stuck() {
    run(async {
        let turn = Cell::new(0);
        let server = serve(Version::One, move |_| {
            turn.set(turn.get() + 1);
            let stuck = turn.get() == 1;
            async move {
                if stuck {
                    sleep(LONG).await;
                }
                text("hello")
            }
        })
        .await;
        let client = client(&server.url(), |config| config.hedge = Some(Hedge::Time(Duration::from_millis(10))));
        assert_eq!(client.get("/").await.unwrap().body, "hello");
        assert_eq!(server.requests(), 2);
        assert_eq!(client.metric("fanin_upstream_hedges_won_total{upstream=\"u\"}"), 1.0);
        assert_eq!(client.gauge("in_flight"), 0.0);
        let late = CallContext { timeout: Some(Duration::from_millis(1)), ..in_time() };
        let _ = client.upstream.call(&client.worker, post("/"), late).await;
        assert_eq!(client.metric("fanin_upstream_hedges_total{upstream=\"u\"}"), 1.0, "never for effects");
    });
}

#[test]
fn calls_spread_over_endpoints_and_a_slow_one_gets_few() {
    run(async {
        let quick = |_| async { text("quick") };
        let (one, two) = (serve(Version::One, quick).await, serve(Version::One, quick).await);
        let slow = serve(Version::One, |_| async {
            sleep(Duration::from_millis(300)).await;
            text("slow")
        })
        .await;
        let client = client_of(&[&one, &two, &slow], no_policies);
        for _ in 0..15 {
            join_all((0..8).map(|_| client.get("/"))).await.into_iter().for_each(|answer| drop(answer.unwrap()));
        }
        assert!(one.requests() > 10 && two.requests() > 10, "{} {}", one.requests(), two.requests());
        assert!(slow.requests() < 30, "{}", slow.requests());
    });
}

#[test]
fn a_failing_endpoint_is_ejected_and_comes_back() {
    run(async {
        let broken = Rc::new(Cell::new(true));
        let state = broken.clone();
        let bad = serve(Version::One, move |_| std::future::ready(status(if state.get() { 500 } else { 200 }))).await;
        let good = serve(Version::One, |_| async { text("") }).await;
        let client = client_of(&[&bad, &good], |config| {
            no_policies(config);
            config.ejection = true;
        });
        while bad.requests() < 5 {
            client.get("/").await.unwrap();
        }
        assert_eq!(client.gauge("endpoints_ejected"), 1.0);
        let bad_answers = join_all((0..100).map(|_| client.get("/"))).await;
        let bad_answers = bad_answers.into_iter().filter(|answer| answer.as_ref().unwrap().status != 200).count();
        // The breaker's pause may end on a slow machine, which lets one call through.
        assert!(bad_answers < 5, "{bad_answers}");
        assert!(bad.requests() < 10, "{}", bad.requests());
        broken.set(false);
        while client.gauge("endpoints_ejected") > 0.0 {
            assert_eq!(client.get("/").await.unwrap().status, 200);
            sleep(Duration::from_millis(10)).await;
        }
    });
}

#[test]
fn an_attempt_that_times_out_is_retried() {
    run(async {
        let turn = Cell::new(0);
        let server = serve(Version::One, move |_| {
            turn.set(turn.get() + 1);
            let stuck = turn.get() == 1;
            async move {
                if stuck {
                    sleep(LONG).await;
                }
                text("hello")
            }
        })
        .await;
        let answers = client(&server.url(), |config| config.attempt_timeout = Some(Duration::from_millis(500)));
        assert_eq!(answers.get("/").await.unwrap().body, "hello");
        let silent = raw(|stream| async move {
            let _open = stream;
            sleep(LONG).await;
        })
        .await;
        let client = client(&silent.url(), |config| {
            no_policies(config);
            config.attempt_timeout = Some(Duration::from_millis(20));
        });
        let error = client.get("/").await.unwrap_err();
        assert_eq!((error.kind, &*error.detail), (ErrorKind::Timeout, "the attempt timed out after 20 ms: no answer"));
    });
}

#[test]
fn a_stalled_answer_times_out() {
    run(async {
        let server = raw(|mut stream| async move {
            read_head(&mut stream).await;
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf!").await.unwrap();
            sleep(LONG).await;
        })
        .await;
        let client = client(&server.url(), |config| config.chunk_timeout = Some(Duration::from_millis(20)));
        let error = client.get("/").await.unwrap_err();
        assert_eq!((error.kind, &*error.detail), (ErrorKind::Timeout, "no further part of the answer within 20 ms"));
    });
}

#[test]
fn an_adaptive_limit_grows_under_load() {
    run(async {
        let server = serve(Version::Two, |_| async {
            sleep(Duration::from_millis(2)).await;
            text("hello")
        })
        .await;
        let client = client(&server.url(), |config| {
            config.limit = Limit::Adaptive { min: 4, max: 500 };
            config.http = fanin_config::HttpVersion::Http2;
            config.max_waiting = 1000;
        });
        assert_eq!(client.gauge("limit"), 16.0);
        for _ in 0..20 {
            let answers = join_all((0..100).map(|_| client.get("/"))).await;
            assert!(answers.into_iter().all(|answer| answer.is_ok()));
        }
        let limit = client.gauge("limit");
        assert!((4.0..=500.0).contains(&limit) && limit != 16.0, "{limit}");
        assert_eq!(client.gauge("in_flight"), 0.0);
    });
}

#[test]
fn a_rolling_restart_fails_no_call() {
    run(async {
        let mut servers = Vec::new();
        for _ in 0..3 {
            servers.push(serve(Version::One, |_| async { text("hello") }).await);
        }
        let client = client_of(&servers.iter().collect::<Vec<_>>(), |_| ());
        let done = Cell::new(false);
        let load = async {
            let mut calls = 0;
            while !done.get() {
                for answer in join_all((0..4).map(|_| client.get("/"))).await {
                    assert_eq!(answer.unwrap().body, "hello");
                    calls += 1;
                }
                sleep(Duration::from_millis(1)).await;
            }
            calls
        };
        let restarts = async {
            for _ in 0..3 {
                sleep(Duration::from_millis(50)).await;
                let old = servers.remove(0);
                let address = old.address;
                drop(old);
                sleep(Duration::from_millis(50)).await;
                let socket = tokio::net::TcpSocket::new_v4().unwrap();
                socket.set_reuseaddr(true).unwrap();
                socket.bind(address).unwrap();
                let listener = socket.listen(64).unwrap();
                servers.push(crate::common::serve_on(listener, Version::One, |_| async { text("hello") }));
            }
            sleep(Duration::from_millis(50)).await;
            done.set(true);
        };
        let (calls, ()) = tokio::join!(load, restarts);
        assert!(calls > 10, "{calls}");
    });
}

/// Forwards connections until it is switched to silent. Then it neither answers nor closes, as a machine without power.
async fn relay(to: std::net::SocketAddr) -> (crate::common::Server, Rc<Cell<bool>>) {
    let silent = Rc::new(Cell::new(false));
    let flag = silent.clone();
    let relay = raw(move |mut client| {
        let flag = flag.clone();
        async move {
            let mut server = tokio::net::TcpStream::connect(to).await.unwrap();
            let silence = async {
                while !flag.get() {
                    sleep(Duration::from_millis(1)).await;
                }
            };
            tokio::select! {
                _ = tokio::io::copy_bidirectional(&mut client, &mut server) => return,
                () = silence => {}
            }
            sleep(LONG).await;
        }
    })
    .await;
    (relay, silent)
}

#[test]
fn a_vanished_instance_fails_no_call() {
    run(async {
        let quick = |_| async { text("hello") };
        let (one, two, three) =
            (serve(Version::One, quick).await, serve(Version::One, quick).await, serve(Version::One, quick).await);
        let (vanishes, silent) = relay(three.address).await;
        let client = client_of(&[&one, &two, &vanishes], |config| {
            // The default hedge, at half of the call's timeout, goes to another endpoint.
            config.timeout = Duration::from_secs(10);
        });
        let load = |rounds: usize| {
            let client = &client;
            async move {
                for _ in 0..rounds {
                    for answer in join_all((0..3).map(|_| client.get("/"))).await {
                        assert_eq!(answer.unwrap().body, "hello");
                    }
                }
            }
        };
        load(50).await;
        assert!(three.requests() > 0);
        silent.set(true);
        sleep(Duration::from_millis(10)).await;
        load(100).await;
        assert_eq!(client.calls("timeout"), 0.0);
        assert_eq!(client.gauge("in_flight"), 0.0);
    });
}

/// An operation without settings of its own.
fn operation(toml: &str) -> fanin_config::Operation {
    let text = format!("[upstreams.u]\nurl = 'http://u'\n[upstreams.u.operations.it]\npath = '/'\n{toml}\n");
    let config = fanin_config::Config::parse(&text, "fanin.toml", std::path::Path::new("."), &|_| None).unwrap();
    config.upstreams["u"].operations["it"].clone()
}

fn of_operation(at: u32) -> CallContext {
    CallContext { operation: Some(at), ..in_time().safe() }
}

#[test]
fn an_operation_has_its_own_retries_and_timeouts() {
    run(async {
        let server = flaky().await;
        let client = client(&server.url(), |config| {
            config.operations.insert("never".into(), operation("retry = 'off'"));
            config.operations.insert("as_upstream".into(), operation(""));
        });
        let call = |at| client.upstream.call(&client.worker, Request::get("/"), of_operation(at));
        assert_eq!(call(0).await.unwrap().status, 503);
        assert_eq!(server.requests(), 1);
        // The next answer of the flaky server is a success.
        assert_eq!(call(1).await.unwrap().status, 200);
        assert_eq!(call(1).await.unwrap().status, 200);
        assert_eq!(server.requests(), 4, "of the last two calls the second needed a retry");

        let slow = serve(Version::One, |_| async {
            sleep(LONG).await;
            text("")
        })
        .await;
        let client = crate::common::client(&slow.url(), |config| {
            no_policies(config);
            config.timeout = LONG;
            config.operations.insert("hasty".into(), operation("attempt_timeout = '10ms'"));
        });
        let error = client.upstream.call(&client.worker, Request::get("/"), of_operation(0)).await.unwrap_err();
        assert!(error.to_string().contains("the attempt timed out after 10 ms"), "{error}");
    });
}

#[test]
fn an_operations_limit_leaves_room_for_the_upstreams_other_calls() {
    run(async {
        let server = serve(Version::One, |request| async move {
            if request.uri().path() == "/slow" {
                sleep(LONG).await;
            }
            text("hello")
        })
        .await;
        let client = client(&server.url(), |config| {
            no_policies(config);
            config.operations.insert("slow".into(), operation("limit = 2\nmax_waiting = 1"));
        });
        let slow = || Box::pin(client.upstream.call(&client.worker, Request::get("/slow"), of_operation(0)));
        let mut running = [slow(), slow(), slow()];
        let none_ends = futures_util::future::select_all(running.iter_mut());
        tokio::select! {
            (ended, ..) = none_ends => panic!("{ended:?}"),
            () = sleep(Duration::from_millis(20)) => {}
        }
        let error = slow().await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Limit);
        assert!(error.to_string().contains("2 calls in flight (limit 2) and 1 waiting"), "{error}");
        assert_eq!(client.get("/").await.unwrap().body, "hello");
        drop(running);
        assert_eq!(client.gauge("in_flight"), 0.0);
    });
}
