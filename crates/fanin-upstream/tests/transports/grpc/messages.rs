//! Messages of gRPC as JSON, streams, statuses, descriptors.

use super::*;

#[test]
fn messages_are_json_by_the_protobuf_rules() {
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
        // A reader of JSON for protobuf also accepts original field names, numbers as strings, and strings as numbers.
        let other =
            json!({"small": "3", "big": 5, "real": "NaN", "colour": 1, "address": {"street_name": "a"}, "text": null});
        let echoed = probe.get("Echo", other).await;
        assert_eq!(echoed["small"], 3);
        assert_eq!((&echoed["big"], &echoed["real"]), (&json!("5"), &json!("NaN")));
        assert_eq!((&echoed["colour"], &echoed["address"]["streetName"]), (&json!("COLOUR_RED"), &json!("a")));
        // A field without presence is written with its default; one with presence is written if it is set.
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
        // Far more than a flow-control window and a frame.
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
        // A stream that stalls: the next part must come in time.
        let probe = Probe::new("chunk_timeout = '300ms'\nretry = 'off'");
        let error = probe.refused("Count", json!({"to": 2, "end": "hang"})).await;
        assert_eq!(error.kind, ErrorKind::Timeout, "{error}");
    });
}

#[test]
fn what_the_server_receives() {
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
fn unsendable_requests_have_clear_errors() {
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
fn a_descriptor_set_works_like_proto_files() {
    run(async {
        let set = SERVER.lock().unwrap().ca.join("set.binpb");
        let probe = Probe::at(&server(), &format!("timeout = '60s'\ndescriptors = {set:?}"));
        assert_eq!(probe.get("Echo", json!({"text": "x"})).await["text"], "x");
        assert_eq!(probe.get("fanin.probe.Other/Echo", json!({"text": "y"})).await["text"], "y");
    });
}

#[test]
fn wrong_descriptors_are_errors() {
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
        ("proto = 'import.proto'", "import 'none/there.proto' not found (proto_path lists"),
        ("proto = 'type.proto'", "type.proto:2:"),
        ("proto = 'empty.proto'", "proto: describes no method of any service"),
        ("descriptors = 'noise'", "is not a FileDescriptorSet"),
        ("descriptors = 'good.proto'", "is not a FileDescriptorSet"),
        (
            "proto = 'good.proto'\nsafe_methods = ['Gett']",
            "safe_methods: Gett is neither a method nor a service; did you mean Get?",
        ),
    ] {
        let text = told(more);
        assert!(text.contains(says), "{more}: {text}");
        assert_eq!(text.lines().count(), 1, "{text}");
    }
    assert_eq!(told("proto = 'good.proto'\nsafe_methods = ['Get', 'p.S', 'p.S/Get']"), "");
}

#[test]
fn an_answer_that_does_not_fit_its_descriptor_is_an_error() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let text = "syntax = \"proto3\"; package fanin.probe; message In { string text = 1; bool new = 99; }\n\
                    message Out { int64 text = 1; } service Probe { rpc Echo(In) returns (Out); }";
        std::fs::write(dir.path().join("other.proto"), text).unwrap();
        let proto = dir.path().join("other.proto");
        let probe = Probe::at(&server(), &format!("timeout = '60s'\nproto = {proto:?}"));
        let error = probe.refused("Echo", json!({"text": "x", "new": true})).await;
        assert_eq!((error.kind, error.fault), (ErrorKind::Decode, Fault::Upstream));
        assert!(error.to_string().contains("the answer is not a valid fanin.probe.Out: "), "{error}");
        // The server ignores unknown fields, and fields that are not described here are left out.
        assert_eq!(probe.get("Echo", json!({"new": true})).await, json!({"text": "0"}));
    });
}
