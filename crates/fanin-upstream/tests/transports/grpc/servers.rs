//! Servers of gRPC: deadlines, policies, reflection, TLS, failures.

use super::*;

#[test]
fn a_deadline_ends_the_call_and_cancels_the_stream() {
    run(async {
        let probe = Probe::new("retry = 'off'");
        // A connection is open, so that the calls reach the server.
        probe.get("Echo", json!({})).await;
        let mut context = within(60).safe();
        context.timeout = Some(Duration::from_secs(1));
        let error = probe.send("Wait", json!({"key": "late", "ms": 50_000}), context).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Timeout, "{error}");
        // A call that is dropped.
        let call = probe.ask("Wait", json!({"key": "left", "ms": 50_000}));
        timeout(Duration::from_secs(1), call).await.unwrap_err();
        for key in ["late/cancelled", "left/cancelled"] {
            while probe.get("Seen", json!({"key": key})).await["times"] == 0 {
                sleep(Duration::from_millis(10)).await;
            }
        }
    });
}

#[test]
fn retries_where_they_may_help() {
    run(async {
        let probe = Probe::new("retry = { floor = 100 }");
        let flaky = |key: &str, code: i32| json!({"key": key, "code": code, "times": 1});
        assert_eq!(probe.get("Fail", flaky("retried", 14)).await["times"], 2);
        // A call with effects is not sent twice, and neither is one that a retry does not help.
        let answer = probe.send("FailWriting", flaky("once", 14), within(60)).await.unwrap();
        assert_eq!(answer.status, 503);
        for (key, code, status) in [("internal", 13, 500), ("exhausted", 8, 429), ("missing", 5, 404)] {
            assert_eq!(probe.ask("Fail", flaky(key, code)).await.unwrap().status, status, "{key}");
        }
        // A server's pushback is obeyed.
        let body = json!({"key": "later", "code": 14, "times": 1, "pushbackMs": "60000"});
        let answer = probe.ask("Fail", body).await.unwrap();
        assert_eq!((answer.status.as_u16(), &answer.headers["retry-after"]), (503, &HeaderValue::from_static("60")));
    });
}

#[test]
fn a_slow_call_is_hedged_and_a_failing_upstream_is_not() {
    run(async {
        let probe = Probe::new("hedge = '100ms'\nretry = { floor = 100 }");
        let answer = probe.get("Wait", json!({"key": "hedged", "ms": 50_000, "first": true})).await;
        assert_eq!(answer["times"], 2);

        let breaker = "retry = 'off'\nbreaker = { calls = 5, share = 0.5, pause = '60s' }";
        let probe = Probe::new(breaker);
        for _ in 0..20 {
            assert_eq!(probe.ask("Fail", json!({"key": "x", "code": 12})).await.unwrap().status, 501);
        }
        let mut kinds = Vec::new();
        for _ in 0..60 {
            kinds.push(probe.ask("Fail", json!({"key": "y", "code": 13})).await.map_err(|error| error.kind).err());
        }
        assert_eq!(kinds[0], None, "methods that are not there open no breaker");
        assert_eq!(kinds[59], Some(ErrorKind::Breaker), "{kinds:?}");
    });
}

#[test]
fn a_reload_takes_changed_descriptors_and_keeps_unchanged_ones() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.proto");
    let text = "syntax = \"proto3\";\nmessage A {}\nservice S { rpc Get(A) returns (A); }\n";
    std::fs::write(&file, text).unwrap();
    let toml = "[upstreams.probe]\ngrpc = 'http://127.0.0.1:1'\nproto = 'a.proto'";
    let config = fanin_config::Config::parse(toml, "fanin.toml", dir.path(), &|_| None).unwrap();
    let first = Upstreams::new(config.upstreams.values()).unwrap();
    let second = first.reload(config.upstreams.values()).unwrap();
    let same = |a: &Upstreams, b: &Upstreams| std::sync::Arc::ptr_eq(a.get("probe").unwrap(), b.get("probe").unwrap());
    assert!(same(&first, &second));
    std::fs::write(&file, text.replace("Get", "Put")).unwrap();
    let third = second.reload(config.upstreams.values()).unwrap();
    assert!(!same(&second, &third));
    assert!(third.get("probe").unwrap().services().unwrap().find("S/Put").is_some());
}

#[test]
fn the_server_describes_itself() {
    run(async {
        let probe = Probe::at(&server(), "timeout = '60s'\nreflection = true");
        // Many calls at once fetch the descriptors once.
        let calls = (0..20).map(|_| probe.get("Echo", json!({"address": {"city": "x"}})));
        for answer in futures_util::future::join_all(calls).await {
            assert_eq!(answer["address"], json!({"streetName": "", "city": "x"}));
        }
        assert_eq!(probe.get("Squares", json!([{"value": 3}])).await[0]["value"], "9");
        for (method, body, says) in [
            ("Ecko", json!({}), "there is no method fanin.probe.Probe/Ecko (did you mean fanin.probe.Probe/Echo?)"),
            ("Echo", json!({"txt": 1}), "fanin.probe.Everything has no field txt (did you mean text?)"),
            ("no.Such/Thing", json!({}), "the server does not describe no.Such"),
        ] {
            let error = probe.refused(method, body).await;
            assert!(error.to_string().contains(says), "{error}");
            assert_eq!(error.fault, Fault::Us);
        }
    });
}

#[test]
fn v1alpha_reflection_works_and_missing_reflection_is_an_error() {
    run(async {
        let old = Server::grpc_with(&["--old-reflection"]);
        let probe = Probe::at(&old.url, "timeout = '60s'\nreflection = true");
        assert_eq!(probe.get("Echo", json!({"text": "old"})).await["text"], "old");
        drop(old);
        let none = Server::grpc_with(&["--no-reflection"]);
        let probe = Probe::at(&none.url, "timeout = '60s'\nreflection = true\nretry = 'off'");
        let error = probe.refused("Echo", json!({})).await.to_string();
        assert!(error.contains("the server has no server reflection (neither v1 nor v1alpha)"), "{error}");
    });
}

#[test]
fn calls_over_tls() {
    run(async {
        let secure = Server::grpc_with(&["--tls"]);
        let more = format!(
            "timeout = '60s'\nconnect_timeout = '20s'\nproto = 'probe.proto'\ntls = {{ ca = {:?} }}",
            secure.ca.join("ca.pem")
        );
        let probe = Probe::at(&secure.url, &more);
        assert_eq!(probe.get("Echo", json!({"text": "sealed"})).await["text"], "sealed");
        // The certificate of another authority is not trusted.
        let probe = Probe::at(&secure.url, "timeout = '60s'\nproto = 'probe.proto'\nretry = 'off'");
        assert_eq!(probe.refused("Echo", json!({})).await.kind, ErrorKind::Connect);
    });
}

#[test]
fn a_server_that_stops_in_the_middle() {
    run(async {
        let mut own = Server::grpc();
        let more = "timeout = '60s'\nproto = 'probe.proto'\nretry = 'off'\nbreaker = 'off'";
        let probe = Probe::at(&own.url, more);
        let answer = probe.ask("Count", json!({"to": 3, "end": "fail"})).await.unwrap();
        assert_eq!(
            (answer.status.as_u16(), value(&answer)),
            (500, json!({"code": "DATA_LOSS", "message": "lost count"}))
        );
        let error = probe.refused("Count", json!({"to": 3, "end": "die"})).await;
        assert_eq!(error.kind, ErrorKind::Protocol);
        assert!(error.to_string().contains("the answer broke off after 3 messages"), "{error}");
        own.kill();
        assert_eq!(probe.refused("Echo", json!({})).await.kind, ErrorKind::Refused);
        own.start();
        assert_eq!(probe.get("Echo", json!({"text": "again"})).await["text"], "again");
        // An orderly shutdown: calls in flight end, later ones are sent on a new connection.
        own.stop();
        own.start();
        // The runtime has to read what came while this thread was blocked.
        sleep(Duration::from_millis(10)).await;
        assert_eq!(probe.get("Echo", json!({"text": "anew"})).await["text"], "anew");
    });
}

#[test]
fn calls_are_spread_over_endpoints_and_survive_the_loss_of_one() {
    run(async {
        let mut other = Server::grpc();
        let urls = format!("[{:?}, {:?}]", server(), other.url);
        let text = format!(
            "[upstreams.probe]\ngrpc = {urls}\ntimeout = '60s'\nproto = 'probe.proto'\nretry = {{ floor = 1000 }}"
        );
        let config = fanin_config::Config::parse(&text, "fanin.toml", &Server::protos(), &|_| None).unwrap();
        let upstreams = Upstreams::new(config.upstreams.values()).unwrap();
        let probe = Probe { upstreams, worker: WorkerClient::new() };
        for round in 0..10 {
            let calls = (0..20).map(|_| probe.get("Fail", json!({"key": "spread", "code": 13, "times": -1})));
            let answers = futures_util::future::join_all(calls).await;
            assert_eq!(answers.len(), 20, "{round}");
        }
        // Each server counts its own calls.
        for url in [server(), other.url.clone()] {
            let one = Probe::at(&url, "timeout = '60s'\nproto = 'probe.proto'");
            let times = one.get("Seen", json!({"key": "spread"})).await["times"].as_i64().unwrap();
            assert!((10..=190).contains(&times), "{times} of 200");
        }
        other.kill();
        for _ in 0..50 {
            probe.get("Echo", json!({})).await;
        }
    });
}

#[test]
fn a_server_that_is_pinged_too_often_is_pinged_less() {
    run(async {
        // By default grpcio closes connections that ping more often than every five minutes without data.
        let more =
            "timeout = '60s'\nproto = 'probe.proto'\nretry = 'off'\nkeepalive = '30ms'\nkeepalive_timeout = '20s'";
        let probe = Probe::at(&server(), more);
        let answer = probe.ask("Wait", json!({"key": "pinged", "ms": 2000})).await;
        assert!(answer.is_err() || answer.as_ref().is_ok_and(|answer| answer.status == 503), "{answer:?}");
        assert_eq!(probe.get("Wait", json!({"key": "calm", "ms": 1000})).await["times"], 1);
        // A server that allows pings is pinged.
        let permissive = Server::grpc_with(&["--permissive"]);
        let probe = Probe::at(&permissive.url, more);
        assert_eq!(probe.get("Wait", json!({"key": "calm", "ms": 1000})).await["times"], 1);
        // Without calls there are no pings, if so configured.
        let probe = Probe::at(&server(), &format!("{more}\nkeepalive_idle = false"));
        probe.get("Echo", json!({})).await;
        sleep(Duration::from_millis(500)).await;
        let mut registry = Registry::default();
        probe.upstreams.register(&mut registry);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        assert!(text.contains("fanin_upstream_connections{upstream=\"probe\"} 1\n"), "still there: {text}");
    });
}

#[test]
fn an_answer_without_grpc_is_an_error() {
    run(async {
        let proxy = serve(Version::Two, |request| async move {
            let body = |kind: &str, status: u16, body: &'static [u8]| {
                let builder = http::Response::builder().status(status).header("content-type", kind);
                builder.body(bytes::Bytes::from_static(body).into()).unwrap()
            };
            match request.uri().path() {
                "/fanin.probe.Probe/Echo" => body("text/html", 502, b"<p>"),
                "/fanin.probe.Probe/Seen" => body("text/html", 200, b"<p>"),
                "/fanin.probe.Probe/Fail" => body("application/grpc", 200, b"\0\0\0\0\0"),
                "/fanin.probe.Probe/Wait" => body("application/grpc+proto", 200, b"\0\0\0\0\x05ab"),
                "/fanin.probe.Probe/Sum" => body("application/grpc", 200, b"\x01\0\0\0\0"),
                _ => body("text/plain", 404, b"what?"),
            }
        })
        .await;
        let probe = Probe::at(&proxy.url(), "timeout = '60s'\nproto = 'probe.proto'\nretry = 'off'\nbreaker = 'off'");
        for (method, status, says) in [
            ("Echo", 503, "UNAVAILABLE: HTTP status 502 with text/html instead of gRPC"),
            ("Seen", 500, "UNKNOWN: HTTP status 200 with text/html instead of gRPC"),
            ("FailWriting", 501, "UNIMPLEMENTED: HTTP status 404 with text/plain instead of gRPC"),
        ] {
            let answer = probe.ask(method, json!({})).await.unwrap();
            assert_eq!(answer.status, status, "{method}");
            let error = CallError::status(probe.upstreams.get("probe").unwrap().name(), &answer);
            assert!(error.to_string().contains(says), "{error}");
        }
        for (method, body, kind, says) in [
            ("Fail", json!({}), ErrorKind::Protocol, "closed the stream after 1 messages without a status"),
            ("Wait", json!({}), ErrorKind::Protocol, "closed the stream after 0 messages without a status"),
            ("Sum", json!([]), ErrorKind::Protocol, "with compression 1, which was not requested"),
        ] {
            let error = probe.refused(method, body).await;
            assert_eq!(error.kind, kind, "{error}");
            assert!(error.to_string().contains(says), "{error}");
        }
    });
}
