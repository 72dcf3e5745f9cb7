//! CORS: pages in Chromium, and each header by curl.

use fanin_testbed::tab::Tab;
use serde_json::json;

use crate::common::Serving;
use crate::{curl, header, service, write};

const API: &str = r#"
def read(req):
    if req.query.get("fail"):
        abort(409, "it is taken")
    return response(body = {"origin": req.headers.get("origin")}, headers = {"x-total": "7", "x-hidden": "8",
        "set-cookie": "seen=1; SameSite=Lax", "access-control-allow-origin": "*"})

def plain(req):
    return {}

def write(req):
    return {"sent": req.body["a"], "mine": req.headers["x-mine"]}
"#;

const SITE: &str = r#"
def page(req):
    return response(text = "<!doctype html><title>A page</title>", headers = {"content-type": "text/html"})
"#;

/// What a page sees of a request: the status, the body and a header, or that its browser refused.
const FETCH: &str = r#"
async function seen(path, options) {
    try {
        const answer = await fetch("http://" + api + path, options);
        return [answer.status, await answer.json(), answer.headers.get("x-total"), answer.headers.get("x-hidden")];
    } catch (error) { return "refused"; }
}
"#;

fn api(cors: &str) -> String {
    format!(
        "{cors}\n\
        [[routes]]\npath = \"/items\"\nflow = \"web.star:read\"\n\
        [[routes]]\nmethod = [\"PUT\", \"DELETE\"]\npath = \"/items\"\nflow = \"web.star:write\"\n\
        [[routes]]\npath = \"/closed\"\nflow = \"web.star:read\"\ncors = \"off\"\n\
        [[routes]]\npath = \"/plain\"\nflow = \"web.star:plain\"\ncors = \"off\"\n\
        [[routes]]\npath = \"/open\"\nflow = \"web.star:read\"\ncors = {{ origins = [\"*\"] }}\n"
    )
}

#[test]
fn pages_in_a_browser_see_what_the_rules_allow() {
    let (_site, site) = service("[[routes]]\npath = \"/\"\nflow = \"web.star:page\"\n", SITE);
    let allowed = format!("http://{}", site.listen);
    let port = site.listen.rsplit_once(':').expect("a port").1;
    let rules = format!(
        "[cors]\norigins = [\"{allowed}\"]\nmethods = [\"GET\", \"PUT\"]\nheaders = [\"content-type\", \"x-mine\"]\n\
         expose = [\"x-total\"]\ncredentials = true\n"
    );
    let (_api, api) = service(&api(&rules), API);
    let mut tab = Tab::open(&format!("{allowed}/"));
    let mut ask = |page: &str, path: &str, options: &str| {
        tab.navigate(page);
        tab.evaluate(&format!(
            "(async () => {{ const api = '{}'; {FETCH} return seen('{path}', {options}); }})()",
            api.listen
        ))
    };
    let put = "{ method: 'PUT', headers: { 'content-type': 'application/json', 'x-mine': 'm' }, body: '{\"a\": 5}' }";
    let page = format!("{allowed}/");
    assert_eq!(ask(&page, "/items", "{ credentials: 'include' }"), json!([200, { "origin": allowed }, "7", null]));
    assert_eq!(ask(&page, "/items", put), json!([200, { "sent": 5, "mine": "m" }, null, null]));
    // An error of a flow can be read, too.
    assert_eq!(ask(&page, "/items?fail=1", "{}")[0], 409);
    let other = put.replace("x-mine", "x-other");
    for (path, options) in [("/items", other.as_str()), ("/items", "{ method: 'DELETE' }"), ("/plain", "{}")] {
        assert_eq!(ask(&page, path, options), "refused", "{path} {options}");
    }
    assert_eq!(ask(&page, "/open", "{}"), json!([200, { "origin": allowed }, null, null]));
    // A page of another origin: the same server by another name.
    let page = format!("http://localhost:{port}/");
    for (path, options) in [("/items", "{}"), ("/items", put)] {
        assert_eq!(ask(&page, path, options), "refused", "{path} {options}");
    }
    assert_eq!(ask(&page, "/open", "{}")[0], 200);
}

#[test]
fn headers_of_preflights_and_responses() {
    let rules = "[cors]\norigins = [\"https://shop.example\", \"https://*.partner.example\"]\nexpose = [\"x-total\"]\n\
                 credentials = true\nmax_age = \"1h\"\n";
    let (_dir, serving) = service(&api(rules), API);
    let url = |path: &str| format!("http://{}{path}", serving.listen);
    let preflight = |path: &str, origin: &str, method: &str| {
        let (origin, method) = (format!("Origin: {origin}"), format!("Access-Control-Request-Method: {method}"));
        curl(&["-i", "-X", "OPTIONS", "-H", &origin, "-H", &method, &url(path)])
    };
    let names = ["allow-origin", "allow-credentials", "allow-methods", "allow-headers", "max-age", "expose-headers"]
        .map(|name| format!("access-control-{name}"));
    let of = |answer: &str| names.clone().map(|name| header(answer, &name).unwrap_or("-").to_owned());

    let answer = preflight("/items", "https://a.partner.example", "PUT");
    assert!(answer.starts_with("HTTP/1.1 204"), "{answer}");
    assert_eq!(of(&answer), ["https://a.partner.example", "true", "PUT, DELETE", "content-type", "3600", "-"]);
    let vary = answer.lines().filter(|line| line.starts_with("vary: ")).collect::<Vec<_>>();
    assert_eq!(vary.len(), 3, "{answer}");
    assert_eq!(of(&preflight("/items", "https://shop.example", "GET"))[2], "GET, HEAD");
    for (origin, method) in [("https://evil.example", "PUT"), ("null", "PUT"), ("https://shop.example", "POST")] {
        let answer = preflight("/items", origin, method);
        assert!(answer.starts_with("HTTP/1.1 204"), "{answer}");
        assert_eq!(of(&answer), ["-"; 6], "{origin} {method}");
    }
    assert_eq!(of(&preflight("/open", "null", "GET")), ["*", "-", "GET, HEAD", "content-type", "600", "-"]);
    // OPTIONS that is no preflight, and a path without rules, are answered as ever.
    assert_eq!(
        header(&curl(&["-i", "-X", "OPTIONS", &url("/items")]), "allow"),
        Some("DELETE, GET, HEAD, OPTIONS, PUT")
    );
    assert_eq!(of(&preflight("/closed", "https://shop.example", "GET")), ["-"; 6]);

    let get = |path: &str, origin: &str| curl(&["-i", "-H", &format!("Origin: {origin}"), &url(path)]);
    let answer = get("/items", "https://shop.example");
    assert_eq!(of(&answer), ["https://shop.example", "true", "-", "-", "-", "x-total"]);
    assert_eq!(header(&answer, "vary"), Some("origin"));
    // The flow's own header does not open what the rules close.
    let answer = get("/items", "https://evil.example");
    assert_eq!((of(&answer), header(&answer, "vary")), (["-"; 6].map(str::to_owned), Some("origin")));
    let answer = get("/open", "https://evil.example");
    assert_eq!((&*of(&answer)[0], header(&answer, "vary")), ("*", None));
    // Without rules the flow's own header stays.
    assert_eq!(of(&get("/closed", "https://evil.example"))[0], "*");
    let head = curl(&["-I", "-H", "Origin: https://shop.example", &url("/items")]);
    assert_eq!((of(&head)[0].as_str(), head.starts_with("HTTP/1.1 200")), ("https://shop.example", true), "{head}");
}

#[test]
fn routes_for_methods_take_the_headers_of_their_protocols() {
    const PROTO: &str =
        "syntax = \"proto3\";\npackage t;\nservice T { rpc Echo(M) returns (M); }\nmessage M { string id = 1; }\n";
    const FLOW: &str = "def echo(req):\n    if req.body[\"id\"] == \"none\":\n        abort(\"NOT_FOUND\", \"there is none\")\n    return req.body\n";
    let toml = "[cors]\norigins = [\"https://shop.example\"]\nheaders = [\"x-mine\"]\n[compression]\n[grpc]\nproto = \"t.proto\"\n\
                [[routes]]\ngrpc = \"t.T/Echo\"\nflow = \"web.star:echo\"\n";
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::write(dir.path().join("t.proto"), PROTO).expect("written");
    write(dir.path(), toml, FLOW);
    let serving = Serving::start(dir.path());
    let url = format!("http://{}/t.T/Echo", serving.listen);
    let page = ["-i", "-H", "Origin: https://shop.example"];
    let asked = ["-X", "OPTIONS", "-H", "Access-Control-Request-Method: POST", &url];
    let answer = curl(&[&page[..], &asked].concat());
    let headers = header(&answer, "access-control-allow-headers").expect("some").to_owned();
    for name in ["x-mine", "content-type", "x-grpc-web", "connect-protocol-version"] {
        assert!(headers.split(", ").any(|known| known == name), "{name} in {headers}");
    }
    assert_eq!(header(&answer, "access-control-allow-methods"), Some("POST"));
    let json = ["-H", "Content-Type: application/json", "-H", "Accept-Encoding: gzip"];
    for (body, status) in [("{\"id\": \"7\"}", "HTTP/1.1 200"), ("{\"id\": \"none\"}", "HTTP/1.1 404")] {
        let answer = curl(&[&page[..], &json, &["-d", body, &url]].concat());
        assert!(answer.starts_with(status), "{answer}");
        let values = ["access-control-allow-origin", "access-control-expose-headers", "content-encoding"];
        let shown = "grpc-message, grpc-status, grpc-status-details-bin";
        let expected = [Some("https://shop.example"), Some(shown), None];
        assert_eq!(values.map(|name| header(&answer, name)), expected, "{answer}");
        assert!(answer.lines().any(|line| line == "vary: origin"), "{answer}");
    }
}
