//! Requests and responses: `req`, arguments of calls, `response`, `abort`, limits.

use crate::common::{after, load, paused, setup, setup_with};
use bytes::Bytes;
use http::{HeaderValue, Method};

async fn echo(star: &str) -> String {
    let it = setup(star, |_, _| after(1, "1"));
    it.text("/p?text=a%20b&x=1&x=2").await
}

#[test]
fn attributes_of_the_request() {
    paused(async {
        let star = "def flow(req):\n    return [req.method, req.path, req.params[\"id\"], req.query[\"text\"], req.query[\"x\"], req.query_all[\"x\"], req.query.get(\"none\", \"d\"), \"x\" in req.query, req.remote, req.body, req.text]\n";
        assert_eq!(
            echo(star).await,
            "[\"GET\",\"/p\",\"7\",\"a b\",\"1\",[\"1\",\"2\"],\"d\",true,\"127.0.0.1\",null,\"\"]"
        );
    });
}

#[test]
fn missing_parts_of_the_request_are_answered_with_400() {
    paused(async {
        for star in [
            "def flow(req):\n    return req.query[\"nope\"]\n",
            "def flow(req):\n    return a.get(\"/x\", query = {\"q\": req.query[\"nope\"]})\n",
            "def flow(req):\n    return req.headers[\"nope\"]\n",
        ] {
            let it = setup(star, |_, _| after(1, "1"));
            let error = it.error("/").await;
            assert_eq!(error.status, 400, "{star} {error}");
            assert!(error.detail.contains("nope"), "{error}");
        }
    });
}

#[test]
fn body_is_parsed_lazily() {
    paused(async {
        let it =
            setup("def flow(req):\n    return {\"n\": req.body[\"n\"], \"all\": req.body}\n", |_, _| after(1, "1"));
        let mut incoming = it.incoming("/");
        incoming.method = Method::POST;
        incoming.body = Bytes::from_static(b"{\"n\": 10000000000000000000000.10}");
        let success = it.flows.run(0, incoming).await.result.unwrap();
        assert_eq!(
            success.body.concat(),
            b"{\"n\":10000000000000000000000.10,\"all\":{\"n\": 10000000000000000000000.10}}"
        );
        for (body, part) in [("{\"n\":", "JSON"), ("{}", "n"), ("17", "a number"), ("null", "null"), ("", "null")] {
            let mut incoming = it.incoming("/");
            incoming.body = Bytes::from_static(body.as_bytes());
            let error = it.flows.run(0, incoming).await.result.unwrap_err();
            assert_eq!(error.status, 400);
            assert!(error.detail.contains(part), "{error}");
        }
        let never = setup("def flow(req):\n    return 1\n", |_, _| after(1, "1"));
        let mut incoming = never.incoming("/");
        incoming.body = Bytes::from_static(b"{");
        assert!(never.flows.run(0, incoming).await.result.is_ok());
    });
}

#[test]
fn a_request_without_a_body_has_none() {
    paused(async {
        let star = "def flow(req):\n    return [req.body, req.body == None, not req.body, type(req.body)]\n";
        let it = setup(star, |_, _| after(1, "1"));
        let success = it.flows.run(0, it.incoming("/")).await.result.unwrap();
        assert_eq!(success.body.concat(), b"[null,true,true,\"NoneType\"]");
    });
}

#[test]
fn requests_of_calls() {
    paused(async {
        let star = "
def flow(req):
    id = \"x,..?y z\"
    x = a.get(\"/p/{id}\", params = {\"id\": id}, query = {\"l\": [1, \"b c\"], \"none\": None, \"t\": True, \"f\": 1.5})
    y = c.get(\"/q\", query = {\"l\": [1, \"b,c\"]})
    z = c.products(kind = \"new\", ids = [1, 2])
    return [x, y, z]
";
        let it = setup(star, |_, _| after(1, "1"));
        it.text("/").await;
        assert_eq!(
            it.events(),
            [
                "0 GET a/p/x%2C..%3Fy%20z?l=1&l=b%20c&t=true&f=1.5",
                "0 GET c/q?l=1,b%2Cc",
                "0 GET c/products/new?ids=1,2"
            ]
        );
    });
}

#[test]
fn lists_of_answers_in_queries() {
    paused(async {
        for (answer, joined, repeated) in [
            ("[1,-2,3.50,4e2]", "1,-2,3.50,4e2", "l=1&l=-2&l=3.50&l=4e2"),
            ("[7]", "7", "l=7"),
            ("[1, 2]", "1,2", "l=1&l=2"),
            ("[1e+2]", "1e%2B2", "l=1e%2B2"),
            ("[1,\"b,c\",true]", "1,b%2Cc,true", "l=1&l=b%2Cc&l=true"),
        ] {
            let star = "
def flow(req):
    found = a.get(\"/x\")
    return [a.get(\"/y\", query = {\"l\": found}), c.get(\"/z\", query = {\"l\": found, \"m\": 1})]
";
            let it = setup(star, move |_, request| after(1, if request.path_and_query == "/x" { answer } else { "1" }));
            it.text("/").await;
            let sent = it.events();
            assert!(sent.contains(&format!("1 GET a/y?{repeated}")), "{answer}: {sent:?}");
            assert!(sent.contains(&format!("1 GET c/z?l={joined}&m=1")), "{answer}: {sent:?}");
        }
        let star = "def flow(req):\n    return c.get(\"/z\", query = {\"l\": a.get(\"/x\")})\n";
        let it = setup(star, move |_, request| after(1, if request.path_and_query == "/x" { "[1,[2]]" } else { "1" }));
        assert_eq!(it.error("/").await.status, 500);
    });
}

#[test]
fn forward_headers() {
    paused(async {
        let star = "def flow(req):\n    return [a.get(\"/x\"), b.get(\"/y\", headers = {\"X-Own\": 5})]\n";
        let seen = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
        let log = seen.clone();
        let it = setup(star, move |upstream, request| {
            log.borrow_mut().push((upstream.to_owned(), request.headers.clone()));
            after(1, "1")
        });
        let mut incoming = it.incoming("/");
        incoming.headers.insert("x-user", HeaderValue::from_static("u"));
        incoming.headers.insert("cookie", HeaderValue::from_static("secret"));
        it.flows.run(0, incoming).await.result.unwrap();
        let seen = seen.borrow();
        assert!(seen[0].1.get("x-user").is_none());
        assert_eq!(seen[1].1["x-user"], "u");
        assert_eq!(seen[1].1["x-own"], "5");
        assert!(seen.iter().all(|(_, headers)| headers.get("cookie").is_none()));
    });
}

#[test]
fn response_function() {
    paused(async {
        let star = "def flow(req):\n    return response(status = 201, headers = {\"X-A\": \"b\", \"set-cookie\": [\"a=1\", \"b=2\"]}, body = {\"x\": a.get(\"/x\")})\n";
        let it = setup(star, |_, _| after(1, "{\"n\":1.0}"));
        let success = it.run("/").await.result.unwrap();
        assert_eq!(success.status, 201);
        assert_eq!(success.headers["x-a"], "b");
        assert_eq!(success.headers.get_all("set-cookie").iter().count(), 2);
        assert_eq!(success.headers["content-type"], "application/json");
        assert_eq!(success.body.concat(), b"{\"x\":{\"n\":1.0}}");

        let it = setup("def flow(req):\n    return response(text = \"hello\")\n", |_, _| after(1, "1"));
        let success = it.run("/").await.result.unwrap();
        assert_eq!(success.headers["content-type"], "text/plain; charset=utf-8");
        assert_eq!(success.body.concat(), b"hello");

        let it = setup("def flow(req):\n    return a.get(\"/x\")\n", |_, _| after(1, "<p>").kind("text/html"));
        let success = it.run("/").await.result.unwrap();
        assert_eq!(success.headers["content-type"], "text/html");
        assert_eq!(success.body.concat(), b"<p>");
    });
}

#[test]
fn a_header_cannot_break_the_line() {
    paused(async {
        for star in [
            "def flow(req):\n    return response(headers = {\"x\": \"a\\r\\nb: c\"})\n",
            "def flow(req):\n    return a.get(\"/x\", headers = {\"x\": \"a\\r\\nb: c\"})\n",
            "def flow(req):\n    return response(headers = {\"x\\n\": \"a\"})\n",
            "def flow(req):\n    return response(headers = {\"content-length\": \"3\"})\n",
            "def flow(req):\n    return a.get(\"/x\\r\\n\" + req.path)\n",
        ] {
            let it = setup(star, |_, _| after(1, "1"));
            assert_eq!(it.error("/").await.status, 500, "{star}");
            assert!(it.events().is_empty(), "{star}");
        }
    });
}

#[test]
fn abort_ends_the_request() {
    paused(async {
        let star = "def flow(req):\n    x = a.get(\"/x\", ok = [404])\n    if x.status == 404:\n        abort(404, \"no such product\")\n    return x\n";
        let it = setup(star, |_, _| after(1, "{}").status(404));
        let error = it.error("/").await;
        assert_eq!((error.status.as_u16(), &*error.detail), (404, "no such product"));
    });
}

#[test]
fn answers_have_attributes() {
    paused(async {
        let star = "def flow(req):\n    x = a.get(\"/x\")\n    return [x.status, x.headers[\"x-from\"], x.text, x.failed, x.error]\n";
        let it = setup(star, |_, _| after(1, "{\"a\": 1}"));
        assert_eq!(it.text("/").await, "[200,\"a\",\"{\\\"a\\\": 1}\",false,null]");
    });
}

#[test]
fn answers_act_as_the_values_they_hold() {
    paused(async {
        let star = "def flow(req):\n    x = a.get(\"/x\")\n    d = dict(x)\n    d[\"k\"] = 1\n    return [x[\"l\"][0] + 1, [i * 2 for i in x[\"l\"]], \"l\" in x, len(x[\"l\"]), x.get(\"z\", 5), x.keys(), [k for k, v in x.items()], bool(x), x[\"l\"] == [1, 2], d[\"k\"]]\n";
        let it = setup(star, |_, _| after(1, "{\"l\": [1, 2]}"));
        assert_eq!(it.text("/").await, "[2,[2,4],true,2,5,[\"l\"],[\"l\"],true,true,1]");
    });
}

#[test]
fn an_answer_cannot_be_changed() {
    paused(async {
        let it =
            setup("def flow(req):\n    x = a.get(\"/x\")\n    x[\"k\"] = 1\n    return x\n", |_, _| after(1, "{}"));
        assert_eq!(it.error("/").await.status, 500);
    });
}

#[test]
fn limits_of_a_flow() {
    paused(async {
        let many = "def flow(req):\n    return [a.get(\"/x\") for i in range(65)]\n";
        let it = setup(many, |_, _| after(1, "1"));
        assert_eq!(it.error("/").await.status, 500);
        let it = setup_with(many, "max_calls = 65", |_, _| after(1, "1"));
        assert!(it.run("/").await.result.is_ok());
        let long = "def flow(req):\n    n = 0\n    for i in range(1000000000):\n        n += i\n    return n\n";
        let it = setup_with(long, "max_steps = 100000", |_, _| after(1, "1"));
        assert_eq!(it.error("/").await.status, 500);
        let wide = "def flow(req):\n    return a.get(\"/x\")\n";
        let it = setup_with(wide, "max_response = \"10B\"", |_, _| after(1, "\"0123456789\""));
        assert_eq!(it.error("/").await.status, 500);
        let fat = "def flow(req):\n    s = \"x\"\n    for i in range(40):\n        s = s + s\n    return len(s)\n";
        let it = setup_with(fat, "max_memory = \"1MB\"", |_, _| after(1, "1"));
        assert_eq!(it.error("/").await.status, 500);
    });
}

#[test]
fn static_checks_of_calls() {
    for (star, part) in [
        ("def other(req):\n    return 1\n", "no function flow"),
        ("def flow():\n    return 1\n", "one argument"),
        ("def flow(req):\n    return nope\n", "nope"),
        ("def flow(req:\n", "flow.star"),
        ("load(\"../x.star\", \"y\")\ndef flow(req):\n    return 1\n", "outside"),
        ("load(\"@nope\", \"y\")\ndef flow(req):\n    return 1\n", "@nope"),
        ("load(\"@upstreams\", \"nope\")\ndef flow(req):\n    return 1\n", "nope"),
        ("def flow(req):\n    return a.fetch(\"/x\")\n", "fetch"),
    ] {
        let problems = load(star, "").err().unwrap_or_default().join("\n");
        assert!(problems.contains(part), "{star}: {problems:?}");
    }
}

#[test]
fn recursion_is_refused() {
    paused(async {
        let it = setup("def f(n):\n    return f(n)\ndef flow(req):\n    return f(1)\n", |_, _| after(1, "1"));
        assert_eq!(it.error("/").await.status, 500);
    });
}

#[test]
fn repeated_headers_are_joined() {
    paused(async {
        let it = setup("def flow(req):\n    return req.headers[\"x-a\"]\n", |_, _| after(1, "1"));
        let mut incoming = it.incoming("/");
        incoming.headers.append("x-a", HeaderValue::from_static("1"));
        incoming.headers.append("x-a", HeaderValue::from_static("2"));
        let success = it.flows.run(0, incoming).await.result.unwrap();
        assert_eq!(success.body.concat(), b"\"1, 2\"");
    });
}
