//! gRPC upstreams: requests that calls send, and calls that are refused before sending.

use crate::common::{after, load_toml, paused, setup_toml};

/// Described by the `.proto` of the tests against a real server.
fn upstreams() -> String {
    let proto = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.ci/servers/proto/probe.proto");
    format!(
        r#"
[upstreams.probe]
grpc = "http://127.0.0.1:1"
proto = '{proto}'
safe_methods = ["Only"]
forward_headers = ["x-user"]
[upstreams.open]
grpc = "http://127.0.0.1:1"
reflection = true
safe_methods = ["shop.Users/Get", "shop.Prices"]
"#
    )
}

fn flow(body: &str) -> String {
    format!("load(\"@upstreams\", \"probe\", \"open\")\ndef flow(req):\n    {}\n", body.replace('\n', "\n    "))
}

fn sent(body: &str) -> Vec<String> {
    paused(async {
        let it = setup_toml(&upstreams(), &flow(body), |_, _| after(5, "{\"text\": \"x\", \"key\": \"k\"}"));
        it.text("/").await;
        it.events()
    })
}

fn refused(body: &str) -> String {
    match load_toml(&upstreams(), &flow(body), "") {
        Ok(_) => panic!("accepted: {body}"),
        Err(problems) => problems.join("\n"),
    }
}

#[test]
fn requests_of_methods() {
    let path = "0 GET probe/fanin.probe.Probe";
    assert_eq!(sent("return probe.Wait({\"ms\": 7})"), [format!("{path}/Wait {{\"ms\":7}}")]);
    assert_eq!(sent("return probe.Wait()"), [format!("{path}/Wait {{}}")]);
    assert_eq!(
        sent("return probe.call(\"fanin.probe.Probe/Wait\", {\"ms\": 7})"),
        [format!("{path}/Wait {{\"ms\":7}}")]
    );
    assert_eq!(sent("return probe.call(\"/fanin.probe.Other/Only\")"), ["0 GET probe/fanin.probe.Other/Only {}"]);
    assert_eq!(sent("return probe.Squares([{\"value\": 1}])"), [format!("{path}/Squares [{{\"value\":1}}]")]);
    assert_eq!(sent("return probe.Squares()"), [format!("{path}/Squares []")]);
    let named = "name = \"fanin.probe.Probe/Count\"\nreturn probe.call(name, {\"to\": 1})";
    assert_eq!(sent(named), ["0 GET probe/fanin.probe.Probe/Count {\"to\":1}"]);
    assert_eq!(sent("return open.call(\"shop.Users/Get\", {\"id\": 1})"), ["0 GET open/shop.Users/Get {\"id\":1}"]);
    assert_eq!(sent("return open.call(\"shop.Prices/Of\", [])"), ["0 GET open/shop.Prices/Of []"]);
    assert_eq!(sent("return open.call(\"shop.Users/Set\")"), ["0 POST open/shop.Users/Set {}"]);
}

#[test]
fn call_with_a_pending_argument() {
    let body =
        "a = probe.Wait({\"key\": \"a\"})\nb = probe.Wait({\"key\": a[\"key\"]})\nc = probe.Only()\nreturn [b, c]";
    assert_eq!(
        sent(body),
        [
            "0 GET probe/fanin.probe.Probe/Wait {\"key\":\"a\"}",
            "0 GET probe/fanin.probe.Other/Only {}",
            "5 GET probe/fanin.probe.Probe/Wait {\"key\":\"k\"}",
        ]
    );
}

#[test]
fn effects_run_in_program_order() {
    let seen = |at: u32| format!("{at} POST probe/fanin.probe.Probe/Seen {{}}");
    let only = |at: u32| format!("{at} GET probe/fanin.probe.Other/Only {{}}");
    let three = |middle: &str| format!("a = probe.Only()\nb = {middle}\nc = probe.Only()\nreturn [a, b, c]");
    assert_eq!(sent(&three("probe.Seen()")), [only(0), seen(5), only(10)]);
    assert_eq!(sent(&three("probe.call(\"fanin.probe.Probe/Seen\")")), [only(0), seen(5), only(10)]);
    assert_eq!(sent(&three("probe.Seen(safe = True)")), [only(0), seen(0), only(0)]);
    assert_eq!(sent(&three("probe.Seen(unordered = True)")), [only(0), seen(0), only(0)]);
    // A method known only at run time counts as an effect.
    assert_eq!(sent(&three("probe.call(\"fanin.probe.\" + \"Other/Only\")")), [only(0), only(5), only(10)]);
}

#[test]
fn static_checks_of_methods_and_fields() {
    let mut wrong = Vec::new();
    for (body, says, hint) in [
        ("return probe.Wate()", "probe has no method Wate", "did you mean Wait?"),
        ("return probe.get(\"/x\")", "probe has no method get", ""),
        (
            "return probe.Echo({})",
            "probe has several methods Echo: fanin.probe.Probe/Echo, fanin.probe.Other/Echo",
            "probe.call(\"fanin.probe.Probe/Echo\", ...)",
        ),
        (
            "return probe.call(\"fanin.probe.Probe/Wate\", {})",
            "probe: there is no method fanin.probe.Probe/Wate",
            "did you mean fanin.probe.Probe/Wait?",
        ),
        ("return probe.call()", "probe.call needs the full name of a method", ""),
        ("return probe.call(7)", "probe.call needs the full name of a method", ""),
        ("return open.call(\"Get\")", "open: there is no method Get", "package.Service/Method"),
        ("return open.Get({})", "open has no method Get", ""),
        (
            "return probe.Wait({\"duration\": 7})",
            "probe.Wait(): fanin.probe.Pause has no field duration",
            "its fields are key, ms, first",
        ),
        ("return probe.Wait({\"kye\": \"\"})", "fanin.probe.Pause has no field kye", "did you mean key?"),
        ("return probe.Wait({\"ms\": \"x\"})", "ms is an int32, which \"x\" does not fit", ""),
        ("return probe.Wait({\"ms\": req.path, \"first\": 1})", "first is a boolean, not a number", ""),
        (
            "return probe.call(\"fanin.probe.Probe/Echo\", {\"others\": [{\"citi\": 1}]})",
            "others[0]: fanin.probe.parts.Address has no field citi",
            "did you mean city?",
        ),
        (
            "return probe.call(\"fanin.probe.Probe/Echo\", {\"colour\": \"RED\"})",
            "colour: fanin.probe.Colour has no value RED",
            "COLOUR_RED",
        ),
        ("return probe.Wait([{}])", "the message is a fanin.probe.Pause, not a list", ""),
        ("return probe.Squares({})", "probe.Squares(): it takes a stream of fanin.probe.Number", "a list of messages"),
        ("return probe.Squares([{\"value\": True}])", "value is an int64, not a boolean", ""),
        ("return probe.Wait({}, {})", "probe.Wait() takes one message", ""),
        ("return probe.Wait(ms = 7)", "probe.Wait() has no argument ms", "probe.Wait({\"ms\": ...})"),
        ("return probe.Wait({}, metadeta = {})", "probe.Wait() has no argument metadeta", "did you mean metadata?"),
    ] {
        let text = refused(body);
        let errors: Vec<&str> = text.lines().filter(|line| !line.contains("warning: ")).collect();
        let right = errors.len() == 1 && errors[0].starts_with("flow.star:3:");
        if !right || !text.contains(says) || !text.contains(hint) {
            wrong.push(format!("{body}: {text}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for fine in [
        "return probe.Wait({\"ms\": req.path, req.path: 1})",
        "return probe.Wait({\"ms\": None})",
        "return probe.call(\"fanin.probe.Probe/Echo\", {\"counts\": {\"anything\": 1}, \"free\": {\"x\": [1]}, \"streetName\": 1} if req.path else {})",
        "return probe.call(\"fanin.probe.Probe/Echo\", {\"address\": {\"streetName\": \"a\", \"city\": \"b\"}, \"big\": \"7\", \"real\": 1})",
        "return probe.Wait(**{\"timeout\": \"5ms\"})",
    ] {
        load_toml(&upstreams(), &flow(fine), "").map(|_| ()).unwrap_or_else(|problems| panic!("{fine}: {problems:?}"));
    }
}

#[test]
fn run_time_errors_of_arguments_prevent_sending() {
    for body in [
        "return probe.call(\"fanin.probe.\" + req.query[\"m\"])",
        "it = [probe][0]\nreturn it.Echo({})",
        "return probe.call(len)",
        "it = [probe][0]\nreturn it.Wait({}, {})",
        "it = [probe][0]\nreturn it.Wait({}, field = 1)",
        "return probe.Wait(req.query, metadata = 7)",
        "return open.call(\"shop.Users\" + req.query[\"m\"])",
    ] {
        paused(async {
            let it = setup_toml(&upstreams(), &flow(body), |_, _| after(5, "{}"));
            assert_eq!(it.error("/?m=Nope").await.kind, "flow", "{body}");
            assert!(it.events().is_empty(), "{body}");
        });
    }
}

#[test]
fn metadata_and_statuses() {
    paused(async {
        let seen = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
        let noted = seen.clone();
        let body = "a = probe.Wait({}, metadata = {\"x-own\": \"o\", \"x-no\": None}, ok = [404])\nreturn [a.status, a[\"code\"]]";
        let it = setup_toml(&upstreams(), &flow(body), move |_, request| {
            let mut names: Vec<String> = request.headers.keys().map(ToString::to_string).collect();
            names.sort();
            noted.borrow_mut().push(names);
            after(5, "{\"code\": \"NOT_FOUND\", \"message\": \"\"}").status(404)
        });
        let mut incoming = it.incoming("/");
        incoming.headers.insert("x-user", "u".parse().unwrap());
        incoming.headers.insert("cookie", "c".parse().unwrap());
        let reply = it.flows.run(0, incoming).await.result.unwrap();
        assert_eq!(reply.body.concat(), b"[404,\"NOT_FOUND\"]");
        assert_eq!(*seen.borrow(), [["x-own", "x-user"]]);

        let body = "return [probe.Wait({}, optional = True), probe.Only({}, default = \"none\")]";
        let it = setup_toml(&upstreams(), &flow(body), |_, _| after(5, "").status(503));
        assert_eq!(it.text("/").await, "[null,\"none\"]");
    });
}
