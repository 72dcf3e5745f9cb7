//! gRPC, against a server of Python's grpcio.

use std::rc::Rc;
use std::sync::{LazyLock, Mutex};
use std::time::Duration;

use crate::common::{Version, run, serve};
use fanin_testbed::Server;
use fanin_upstream::{Answer, CallContext, CallError, ErrorKind, Fault, Request, Upstreams, WorkerClient};
use http::{HeaderMap, HeaderValue, Method};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

/// One for all tests that leave it alive. It ends with the process.
static SERVER: LazyLock<Mutex<Server>> = LazyLock::new(|| Mutex::new(Server::grpc()));

fn server() -> String {
    SERVER.lock().unwrap().url.clone()
}

struct Probe {
    upstreams: Upstreams,
    worker: Rc<WorkerClient>,
}

fn parse(url: &str, more: &str) -> Vec<fanin_config::Upstream> {
    let text = format!("[upstreams.probe]\ngrpc = {url:?}\n{more}");
    let config = fanin_config::Config::parse(&text, "fanin.toml", &Server::protos(), &|_| None);
    config.unwrap_or_else(|error| panic!("{error}")).upstreams.into_values().collect()
}

impl Probe {
    /// Described by the `.proto` file, with further keys.
    fn new(more: &str) -> Probe {
        Probe::at(&server(), &format!("timeout = '60s'\nproto = 'probe.proto'\n{more}"))
    }

    fn at(url: &str, more: &str) -> Probe {
        Probe { upstreams: Upstreams::new(&parse(url, more)).unwrap(), worker: WorkerClient::new() }
    }

    async fn send(&self, method: &str, body: Value, context: CallContext) -> Result<Answer, CallError> {
        self.with(method, body, HeaderMap::new(), context).await
    }

    async fn with(
        &self,
        method: &str,
        body: Value,
        headers: HeaderMap,
        context: CallContext,
    ) -> Result<Answer, CallError> {
        let path = if method.contains('.') { format!("/{method}") } else { format!("/fanin.probe.Probe/{method}") };
        let request = Request { method: Method::POST, path_and_query: path, headers, body: body.to_string().into() };
        self.upstreams.get("probe").unwrap().call(&self.worker, request, context).await
    }

    /// A call that changes nothing.
    async fn ask(&self, method: &str, body: Value) -> Result<Answer, CallError> {
        self.send(method, body, within(60).safe()).await
    }

    /// Its answer, which must be a success.
    async fn get(&self, method: &str, body: Value) -> Value {
        let answer = self.ask(method, body).await.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(answer.status, 200, "{:?}", answer.body);
        value(&answer)
    }

    async fn refused(&self, method: &str, body: Value) -> CallError {
        match self.ask(method, body).await {
            Err(error) => error,
            Ok(answer) => panic!("answered {} {:?}", answer.status, answer.body),
        }
    }
}

fn within(seconds: u64) -> CallContext {
    CallContext::new(Instant::now() + Duration::from_secs(seconds))
}

fn value(answer: &Answer) -> Value {
    serde_json::from_slice(&answer.body).unwrap()
}

#[test]
fn messages_travel_as_json_by_the_protobuf_rules() {
    run(async {
        let probe = Probe::new("");
        let full = json!({
            "text": "ö\u{1F600}\"", "small": -7, "big": "9007199254740993", "huge": "18446744073709551615",
            "real": 0.1, "single": 1.5, "yes": true, "raw": "AP8=", "colour": "COLOUR_GREEN",
            "address": {"streetName": "a", "city": "b"},
            "others": [{"streetName": "c", "city": ""}, {"streetName": "", "city": "d"}],
            "counts": {"x": "1"}, "places": {"7": {"streetName": "", "city": "e"}},
            "rightSide": 0, "maybe": "", "at": "2024-01-01T10:00:00.500Z", "lasts": "1.500s",
            "free": {"any": [1.5, null, {"thing": "x"}]}, "wrapped": "w", "numbers": [1, 2],
        });
        assert_eq!(probe.get("Echo", full.clone()).await, full);
        // What a proto reader must understand besides: names of the file, numbers as strings and the other way round.
        let other =
            json!({"small": "3", "big": 5, "real": "NaN", "colour": 1, "address": {"street_name": "a"}, "text": null});
        let echoed = probe.get("Echo", other).await;
        assert_eq!(echoed["small"], 3);
        assert_eq!((&echoed["big"], &echoed["real"]), (&json!("5"), &json!("NaN")));
        assert_eq!((&echoed["colour"], &echoed["address"]["streetName"]), (&json!("COLOUR_RED"), &json!("a")));
        // Without presence a field is there with its default; with presence it is there if it is set.
        let empty = probe.get("Echo", json!({})).await;
        assert_eq!(
            (&empty["text"], &empty["others"], &empty["colour"]),
            (&json!(""), &json!([]), &json!("COLOUR_UNSPECIFIED"))
        );
        assert!(
            ["maybe", "address", "leftSide", "wrapped", "at"].iter().all(|key| empty.get(key).is_none()),
            "{empty}"
        );

        let probe = Probe::new("int64 = 'number'\nfield_names = 'proto'");
        let echoed = probe.get("Echo", json!({"big": 9007199254740993_i64, "address": {"city": "x"}})).await;
        assert_eq!((&echoed["big"], &echoed["address"]["street_name"]), (&json!(9007199254740993_i64), &json!("")));
    });
}

#[test]
fn streams_are_lists() {
    run(async {
        let probe = Probe::new("");
        let number = |value: i64| json!({"value": value.to_string(), "ballast": ""});
        assert_eq!(probe.get("Count", json!({"to": 3})).await, json!([number(1), number(2), number(3)]));
        assert_eq!(probe.get("Count", json!({"to": 0})).await, json!([]));
        assert_eq!(probe.get("Sum", json!([{"value": 2}, {"value": "3"}, {}])).await, number(5));
        assert_eq!(probe.get("Sum", json!([])).await, number(0));
        assert_eq!(probe.get("Squares", json!([{"value": 2}, {"value": 3}])).await, json!([number(4), number(9)]));
        assert_eq!(probe.get("Squares", json!([])).await, json!([]));
        // Far more than a window, and than a frame.
        let many: Vec<Value> = (0..5000).map(|value| json!({"value": value, "ballast": "A".repeat(400)})).collect();
        let squares = probe.get("Squares", json!(many)).await;
        assert_eq!((squares.as_array().unwrap().len(), &squares[4999]["value"]), (5000, &json!("24990001")));
        let large = probe.get("Count", json!({"to": 3, "bytes": 2_000_000})).await;
        assert_eq!(large[2]["ballast"].as_str().unwrap().len(), 2_666_668);
        let error = probe.refused("Sum", json!({"value": 1})).await.to_string();
        assert!(error.contains("fanin.probe.Probe/Sum: takes a stream of messages: give it a list of them"), "{error}");
        let error = probe.refused("Sum", json!([{"value": 1}, {"valu": 1}])).await.to_string();
        assert!(error.contains("message 1: fanin.probe.Number has no field valu (did you mean value?)"), "{error}");
    });
}

#[test]
fn streams_are_bounded() {
    run(async {
        let probe = Probe::new("max_messages = 100");
        assert_eq!(probe.get("Count", json!({"to": 100})).await.as_array().unwrap().len(), 100);
        for body in [json!({"to": 101}), json!({"end": "forever"})] {
            let error = probe.refused("Count", body).await;
            assert_eq!(error.kind, ErrorKind::TooLarge);
            assert!(error.to_string().contains("the stream has more than 100 messages (max_messages)"), "{error}");
        }
        let probe = Probe::new("max_answer = '10KB'");
        assert_eq!(probe.refused("Count", json!({"to": 1000})).await.kind, ErrorKind::TooLarge);
        assert_eq!(probe.refused("Count", json!({"end": "forever", "bytes": 100})).await.kind, ErrorKind::TooLarge);
        let error = probe.refused("Count", json!({"to": 1, "bytes": 20_000})).await;
        assert!(error.to_string().contains("a message of the answer has 200"), "{error}");
        assert_eq!(probe.get("Count", json!({"to": 3})).await.as_array().unwrap().len(), 3, "the connection lives");
        // A stream that stops in the middle: the next part must come in time.
        let probe = Probe::new("chunk_timeout = '300ms'\nretry = 'off'");
        let error = probe.refused("Count", json!({"to": 2, "end": "hang"})).await;
        assert_eq!(error.kind, ErrorKind::Timeout, "{error}");
    });
}

#[test]
fn what_the_server_sees() {
    run(async {
        let probe = Probe::new("headers = { x-own = 'o', x-over = 'a' }");
        let mut headers = HeaderMap::new();
        headers.insert("x-over", HeaderValue::from_static("b"));
        headers.insert("grpc-timeout", HeaderValue::from_static("1n"));
        headers.insert("content-type", HeaderValue::from_static("application/json"));
        let answer = probe.with("Seen", json!({"key": "none"}), headers, within(30)).await.unwrap();
        let seen = value(&answer);
        assert_eq!((&seen["metadata"]["x-own"], &seen["metadata"]["x-over"]), (&json!("o"), &json!("b")));
        let left = seen["leftMs"].as_f64().unwrap();
        assert!((0.0..=30_000.0).contains(&left), "the deadline is sent: {left}");
        assert!(answer.headers["x-before"] == "b" && answer.headers["x-behind"] == "t");
        assert!(answer.headers.contains_key("x-raw-bin"));
        assert!(!answer.headers.contains_key("grpc-status") && !answer.headers.contains_key("content-type"));

        let probe = Probe::new("attempt_timeout = '10s'");
        let left = probe.get("Seen", json!({"key": "none"})).await["leftMs"].as_f64().unwrap();
        assert!((0.0..=10_000.0).contains(&left), "{left}");
    });
}

#[test]
fn a_deadline_ends_the_call_and_the_server_hears_of_it() {
    run(async {
        let probe = Probe::new("retry = 'off'");
        // A connection is there, so that the calls reach the server.
        probe.get("Echo", json!({})).await;
        let mut context = within(60).safe();
        context.timeout = Some(Duration::from_secs(1));
        let error = probe.send("Wait", json!({"key": "late", "ms": 50_000}), context).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Timeout, "{error}");
        // A call that nobody needs any more.
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
fn statuses_are_those_of_http() {
    run(async {
        let probe = Probe::new("retry = 'off'\nbreaker = 'off'");
        for (code, name, status, fault) in [
            (1, "CANCELLED", 499, Fault::Client),
            (2, "UNKNOWN", 500, Fault::Upstream),
            (3, "INVALID_ARGUMENT", 400, Fault::Client),
            (4, "DEADLINE_EXCEEDED", 504, Fault::Upstream),
            (5, "NOT_FOUND", 404, Fault::Client),
            (6, "ALREADY_EXISTS", 409, Fault::Client),
            (7, "PERMISSION_DENIED", 403, Fault::Client),
            (8, "RESOURCE_EXHAUSTED", 429, Fault::Client),
            (9, "FAILED_PRECONDITION", 400, Fault::Client),
            (10, "ABORTED", 409, Fault::Client),
            (11, "OUT_OF_RANGE", 400, Fault::Client),
            (12, "UNIMPLEMENTED", 501, Fault::Upstream),
            (13, "INTERNAL", 500, Fault::Upstream),
            (14, "UNAVAILABLE", 503, Fault::Upstream),
            (15, "DATA_LOSS", 500, Fault::Upstream),
            (16, "UNAUTHENTICATED", 401, Fault::Client),
        ] {
            let body = json!({"key": name, "code": code, "message": "no öne\nthere"});
            let answer = probe.ask("Fail", body).await.unwrap();
            assert_eq!(answer.status, status, "{name}");
            assert_eq!(value(&answer), json!({"code": name, "message": "no öne\nthere"}));
            let upstream = probe.upstreams.get("probe").unwrap();
            let error = CallError::status(upstream.name(), &answer);
            assert!(error.to_string().ends_with(&format!("status {status}: {name}: no öne there")), "{error}");
            assert_eq!((error.fault, error.retry), (fault, [4, 8, 14].contains(&code)), "{name}");
        }
    });
}

#[test]
fn what_may_be_tried_again_is() {
    run(async {
        let probe = Probe::new("retry = { floor = 100 }");
        let flaky = |key: &str, code: i32| json!({"key": key, "code": code, "times": 1});
        assert_eq!(probe.get("Fail", flaky("retried", 14)).await["times"], 2);
        // What may change something is not sent twice; nor what another try does not help.
        let answer = probe.send("FailWriting", flaky("once", 14), within(60)).await.unwrap();
        assert_eq!(answer.status, 503);
        for (key, code, status) in [("internal", 13, 500), ("exhausted", 8, 429), ("missing", 5, 404)] {
            assert_eq!(probe.ask("Fail", flaky(key, code)).await.unwrap().status, status, "{key}");
        }
        // A server that says when to come back is believed.
        let body = json!({"key": "later", "code": 14, "times": 1, "pushbackMs": "60000"});
        let answer = probe.ask("Fail", body).await.unwrap();
        assert_eq!((answer.status.as_u16(), &answer.headers["retry-after"]), (503, &HeaderValue::from_static("60")));
    });
}

#[test]
fn a_slow_call_is_hedged_and_a_failing_upstream_left_alone() {
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
fn what_cannot_be_sent_is_said_by_name() {
    run(async {
        let probe = Probe::new("");
        for (method, body, says) in [
            ("Ecko", json!({}), "there is no method fanin.probe.Probe/Ecko (did you mean fanin.probe.Probe/Echo?)"),
            ("no.Such/Thing", json!({}), "there is no method no.Such/Thing"),
            ("Echo", json!({"txt": ""}), "fanin.probe.Everything has no field txt (did you mean text?)"),
            (
                "Echo",
                json!({"others": [{}, {"citi": 1}]}),
                "others[1]: fanin.probe.parts.Address has no field citi (did you mean city?)",
            ),
            (
                "Echo",
                json!({"places": {"1": {"zzz": 1}}}),
                "places.1: fanin.probe.parts.Address has no field zzz (its fields are street_name, city)",
            ),
            ("Echo", json!({"small": "x"}), "small is an int32, which \"x\" does not fit"),
            ("Echo", json!({"small": 1.5}), "does not fit fanin.probe.Everything: "),
            ("Echo", json!({"huge": -1}), "huge is a uint64, which -1 does not fit"),
            ("Echo", json!({"small": 3_000_000_000_u64}), "small is an int32, which 3000000000 does not fit"),
            ("Echo", json!({"text": 7}), "text is a string, not a number"),
            ("Echo", json!({"yes": "true"}), "yes is a boolean, not a string"),
            (
                "Echo",
                json!({"colour": "COLOUR_GREN"}),
                "colour: fanin.probe.Colour has no value COLOUR_GREN (did you mean COLOUR_GREEN?)",
            ),
            ("Echo", json!({"address": "x"}), "address is a fanin.probe.parts.Address, not a string"),
            ("Echo", json!({"numbers": 1}), "numbers is a list, not a number"),
            ("Echo", json!({"numbers": [1, "a"]}), "numbers[1] is a uint32, which \"a\" does not fit"),
            ("Echo", json!({"counts": []}), "counts is a map, not a list"),
            ("Echo", json!({"at": "noon"}), "does not fit fanin.probe.Everything: "),
            ("Echo", json!({"raw": "%%"}), "does not fit fanin.probe.Everything: "),
            ("Echo", json!([]), "the message is a fanin.probe.Everything, not a list"),
        ] {
            let error = probe.refused(method, body.clone()).await;
            assert!(error.to_string().contains(says), "{body}: {error}");
            assert!(!error.to_string().contains("column"), "{error}");
            assert_eq!((error.fault, error.retry), (Fault::Us, false));
        }
        let sent = probe.get("Seen", json!({"key": "none"})).await;
        assert_eq!(sent["key"], "none");
    });
}

#[test]
fn a_compiled_set_does_as_well() {
    run(async {
        let set = SERVER.lock().unwrap().ca.join("set.binpb");
        let probe = Probe::at(&server(), &format!("timeout = '60s'\ndescriptors = {set:?}"));
        assert_eq!(probe.get("Echo", json!({"text": "x"})).await["text"], "x");
        assert_eq!(probe.get("fanin.probe.Other/Echo", json!({"text": "y"})).await["text"], "y");
    });
}

#[test]
fn descriptions_that_are_wrong_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    write("syntax.proto", "syntax = \"proto3\";\nmessage A {\n  int32 = 1;\n}\n");
    write("import.proto", "syntax = \"proto3\";\nimport \"none/there.proto\";\n");
    write("type.proto", "syntax = \"proto3\";\nservice A { rpc B(None) returns (None); }\n");
    write("empty.proto", "syntax = \"proto3\";\nmessage A {}\n");
    write("good.proto", "syntax = \"proto3\";\npackage p;\nmessage A {}\nservice S { rpc Get(A) returns (A); }\n");
    write("noise", "\x07\x07\x07");
    let told = |more: &str| {
        let text = format!("[upstreams.probe]\ngrpc = 'http://127.0.0.1:1'\n{more}");
        let config = fanin_config::Config::parse(&text, "fanin.toml", dir.path(), &|_| None).unwrap();
        let errors = Upstreams::new(config.upstreams.values()).err().unwrap_or_default();
        errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    };
    for (more, says) in [
        ("proto = 'syntax.proto'", "upstream probe: proto: syntax.proto:3:9: "),
        ("proto = 'import.proto'", "import 'none/there.proto' not found (proto_path names"),
        ("proto = 'type.proto'", "type.proto:2:"),
        ("proto = 'empty.proto'", "proto: describes no method of any service"),
        ("descriptors = 'noise'", "is no FileDescriptorSet"),
        ("descriptors = 'good.proto'", "is no FileDescriptorSet"),
        (
            "proto = 'good.proto'\nsafe_methods = ['Gett']",
            "safe_methods: Gett is no method and no service; did you mean Get?",
        ),
    ] {
        let text = told(more);
        assert!(text.contains(says), "{more}: {text}");
        assert_eq!(text.lines().count(), 1, "{text}");
    }
    assert_eq!(told("proto = 'good.proto'\nsafe_methods = ['Get', 'p.S', 'p.S/Get']"), "");
}

#[test]
fn an_answer_that_is_not_as_described_is_told() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let text = "syntax = \"proto3\"; package fanin.probe; message In { string text = 1; bool new = 99; }\n\
                    message Out { int64 text = 1; } service Probe { rpc Echo(In) returns (Out); }";
        std::fs::write(dir.path().join("other.proto"), text).unwrap();
        let proto = dir.path().join("other.proto");
        let probe = Probe::at(&server(), &format!("timeout = '60s'\nproto = {proto:?}"));
        let error = probe.refused("Echo", json!({"text": "x", "new": true})).await;
        assert_eq!((error.kind, error.fault), (ErrorKind::Decode, Fault::Upstream));
        assert!(error.to_string().contains("the answer is no fanin.probe.Out: "), "{error}");
        // What the server does not know it lets pass, and what is not described here is left out.
        assert_eq!(probe.get("Echo", json!({"new": true})).await, json!({"text": "0"}));
    });
}

#[test]
fn a_changed_description_is_seen_by_a_reload_and_an_unchanged_one_changes_nothing() {
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
        // Many calls at once ask once.
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
fn older_reflection_will_do_and_none_is_told() {
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
fn calls_go_over_tls() {
    run(async {
        let secure = Server::grpc_with(&["--tls"]);
        let more = format!(
            "timeout = '60s'\nconnect_timeout = '20s'\nproto = 'probe.proto'\ntls = {{ ca = {:?} }}",
            secure.ca.join("ca.pem")
        );
        let probe = Probe::at(&secure.url, &more);
        assert_eq!(probe.get("Echo", json!({"text": "sealed"})).await["text"], "sealed");
        // Nobody else vouches for it.
        let probe = Probe::at(&secure.url, "timeout = '60s'\nproto = 'probe.proto'\nretry = 'off'");
        assert_eq!(probe.refused("Echo", json!({})).await.kind, ErrorKind::Connect);
    });
}

#[test]
fn a_server_that_ends_in_the_middle() {
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
        // It goes in order: calls in flight end, later ones are tried on a new connection.
        own.stop();
        own.start();
        // The runtime has to see what has come while this thread was held.
        sleep(Duration::from_millis(10)).await;
        assert_eq!(probe.get("Echo", json!({"text": "anew"})).await["text"], "anew");
    });
}

#[test]
fn calls_are_spread_over_endpoints_and_one_that_is_gone_is_not_missed() {
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
        // Each server counts for itself.
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
        // Without settings of its own grpcio ends connections that ping more often than every five minutes without data.
        let more =
            "timeout = '60s'\nproto = 'probe.proto'\nretry = 'off'\nkeepalive = '30ms'\nkeepalive_timeout = '20s'";
        let probe = Probe::at(&server(), more);
        let answer = probe.ask("Wait", json!({"key": "pinged", "ms": 2000})).await;
        assert!(answer.is_err() || answer.as_ref().is_ok_and(|answer| answer.status == 503), "{answer:?}");
        assert_eq!(probe.get("Wait", json!({"key": "calm", "ms": 1000})).await["times"], 1);
        // One that bears pings gets them.
        let permissive = Server::grpc_with(&["--permissive"]);
        let probe = Probe::at(&permissive.url, more);
        assert_eq!(probe.get("Wait", json!({"key": "calm", "ms": 1000})).await["times"], 1);
        // Without calls none are sent, if so configured.
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
fn what_is_no_grpc_is_told() {
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
            ("Sum", json!([]), ErrorKind::Protocol, "with compression 1, which was not asked for"),
        ] {
            let error = probe.refused(method, body).await;
            assert_eq!(error.kind, kind, "{error}");
            assert!(error.to_string().contains(says), "{error}");
        }
    });
}
