//! Values in paths of calls: none names another path, also for a backend that decodes before it splits.

use crate::common::{Setup, after, load_toml, paused, setup, setup_toml};
use bytes::Bytes;
use http::Method;

/// The three ways in which a value enters a path.
const FLOWS: [&str; 3] = [
    "def flow(req):\n    return a.get(\"/items/{id}\", params = {\"id\": req.query[\"v\"]})\n",
    "def flow(req):\n    return a.get(\"/items/\" + req.query[\"v\"])\n",
    "def flow(req):\n    return c.products(kind = req.query[\"v\"])\n",
];

/// Values that would leave their segment, for a backend that decodes once or twice or strips parameters first.
const ESCAPES: [&str; 13] = [
    "..",
    ".",
    "../admin",
    "x/../../admin",
    "%2e%2e%2fadmin",
    "%2e%2e/admin",
    "..%2fadmin",
    "..%5cadmin",
    "..;/admin",
    "..;x=1/admin",
    "%2e%2e;/admin",
    "..%3b/admin",
    "a%00",
];

fn target(value: &str) -> String {
    let query = value.replace('%', "%25").replace(';', "%3B").replace('\\', "%5C");
    format!("/?v={query}")
}

#[test]
fn values_that_name_another_path_are_refused() {
    paused(async {
        for star in FLOWS {
            let it = setup(star, |_, _| after(1, "1"));
            for value in ESCAPES {
                let error = it.error(&target(value)).await;
                assert_eq!((error.status.as_u16(), error.kind), (400, "bad-request"), "{star} {value}: {error}");
                assert!(error.detail.contains(&format!("{value:?}")), "{value}: {error}");
            }
            assert_eq!(it.events(), [""; 0], "{star}");
            for value in ["a", "a.b", "...", ".a", "a..", "50%25", "a;b", "M%C3%BCnchen"] {
                it.text(&target(value)).await;
            }
        }
    });
}

#[test]
fn slashes_in_a_segment_are_refused_unless_the_upstream_takes_them() {
    paused(async {
        for star in [FLOWS[0], FLOWS[2]] {
            let it = setup(star, |_, _| after(1, "1"));
            for value in ["a/b", "/a", "a/", "a\\b", "a%2Fb", "a%2fb", "a%5Cb"] {
                let error = it.error(&target(value)).await;
                assert_eq!(error.status, 400, "{star} {value}: {error}");
            }
            assert_eq!(it.events(), [""; 0]);
        }
        // What is written between slashes by the flow itself is its own choice.
        let it = setup(FLOWS[1], |_, _| after(1, "1"));
        it.text("/?v=a/b").await;
        assert_eq!(it.error("/?v=a%252Fb").await.status, 400);
        // Nor can such a path be sent; as a parameter, the value is encoded.
        for value in ["50%", "%u002e%u002e/x", "a b", "a?b", "a\\b", "x\r\ny"] {
            let target = target(value).replace(' ', "%20").replace("a?", "a%3F").replace("\r\n", "%0D%0A");
            assert_eq!(it.error(&target).await.status, 400, "{value}");
        }
        assert_eq!(it.events(), ["0 GET a/items/a/b"]);
    });
}

const GITLAB: &str = "
[upstreams.gitlab]
url = \"http://127.0.0.1:1\"
escaped_slashes = \"encode\"
operations.tree = { path = \"/projects/{project}/tree\" }
operations.fixed = { path = \"/projects/group%2Fname\" }
";

#[test]
fn an_upstream_may_take_escaped_slashes_but_no_dot_segments() {
    paused(async {
        let star = "load(\"@upstreams\", \"gitlab\")
def flow(req):
    project = req.query[\"v\"]
    return [gitlab.tree(project = project), gitlab.get(\"/projects/{id}\", params = {\"id\": project}), gitlab.fixed()]
";
        let it = setup_toml(GITLAB, star, |_, _| after(1, "1"));
        it.text("/?v=group/sub/name").await;
        it.text(&target("a\\b")).await;
        assert_eq!(
            it.events(),
            [
                "0 GET gitlab/projects/group%2Fsub%2Fname/tree",
                "0 GET gitlab/projects/group%2Fsub%2Fname",
                "0 GET gitlab/projects/group%2Fname",
                "1 GET gitlab/projects/a%5Cb/tree",
                "1 GET gitlab/projects/a%5Cb",
                "1 GET gitlab/projects/group%2Fname",
            ]
        );
        for value in ESCAPES.into_iter().chain(["a/..", "a/./b", "a\\..\\b", "a%2f..", "a/..;x"]) {
            assert_eq!(it.error(&target(value)).await.status, 400, "{value}");
        }
    });
}

async fn error_with_body(it: &Setup, body: &'static str) -> fanin_flow::FlowError {
    let mut incoming = it.incoming("/?v=plain");
    incoming.method = Method::POST;
    incoming.headers.insert("x-id", "..".parse().unwrap());
    incoming.params = vec![("id".into(), "a/b".into())];
    incoming.body = Bytes::from_static(body.as_bytes());
    it.flows.run(0, incoming).await.result.map(|success| success.body).expect_err("a success")
}

#[test]
fn the_client_is_blamed_only_for_its_own_values() {
    paused(async {
        let call = |value: &str| {
            format!("def flow(req):\n    return a.get(\"/items/{{id}}\", params = {{\"id\": {value}}})\n")
        };
        let body = "{\"a\": [{\"id\": \"x/y\"}]}";
        for value in
            ["req.params[\"id\"]", "req.headers[\"x-id\"]", "req.body[\"a\"][0][\"id\"]", "\"n-\" + req.params[\"id\"]"]
        {
            let it = setup(&call(value), |_, _| after(1, "1"));
            let error = error_with_body(&it, body).await;
            assert_eq!(error.status, 400, "{value}: {error}");
        }
        // An upstream's value and the flow's own are not the client's fault.
        for value in ["b.get(\"/id\")", "\"n\" + \"/\" + req.query[\"v\"]"] {
            let it = setup(&call(value), |_, _| after(1, "\"c/d\""));
            let error = error_with_body(&it, body).await;
            assert_eq!((error.status.as_u16(), error.kind), (500, "flow"), "{value}: {error}");
        }
    });
}

#[test]
fn an_optional_call_does_not_hide_a_refused_path() {
    paused(async {
        let star =
            "def flow(req):\n    return a.get(\"/items/{id}\", params = {\"id\": req.query[\"v\"]}, optional = True)\n";
        let it = setup(star, |_, _| after(1, "1"));
        assert_eq!(it.error("/?v=..").await.status, 400);
    });
}

#[test]
fn check_finds_literal_paths_that_are_refused() {
    for (path, part) in [
        ("/a/../b", "\"..\""),
        ("/a/%2e%2e/b", "\"..\""),
        ("/a/..;x/b", "\"..\""),
        ("/a%2Fb", "slash"),
        ("/a%255cb", "slash"),
        ("/a%0A", "control"),
    ] {
        let upstreams = "[upstreams.u]\nurl = \"http://127.0.0.1:1\"\n";
        let star = format!("load(\"@upstreams\", \"u\")\ndef flow(req):\n    return u.get({path:?})\n");
        let problems = load_toml(upstreams, &star, "").map(|_| ()).expect_err(path).join("\n");
        assert!(problems.contains(part) && problems.contains("flow.star:3"), "{path}: {problems}");
    }
    let star = "load(\"@upstreams\", \"gitlab\")\ndef flow(req):\n    return gitlab.get(\"/a%2Fb\")\n";
    assert!(load_toml(GITLAB, star, "").is_ok());
}
