//! API keys, addresses, a flow before, errors of methods, and what `fanin check` finds.

use std::process::Command;

use serde_json::json;

use crate::common::{Serving, run};
use crate::{admin, get, service, write};

const FLOW: &str = r#"
def page(req):
    return {"who": req.principal, "claims": req.claims, "auth": req.auth}

def guard(req):
    if req.headers.get("x-team") == None:
        abort(403, "which team?")
    if req.headers["x-team"] == "guests":
        return response(body = "log in first", status = 302, headers = {"location": "/login"})
    return {"team": req.headers["x-team"], "who": req.principal}
"#;

/// As `printf KEY | sha256sum` prints it.
fn hash(key: &str) -> String {
    let output = Command::new("sh").args(["-c", &format!("printf %s '{key}' | sha256sum")]).output().expect("it runs");
    String::from_utf8(output.stdout).expect("text").split(' ').next().expect("a hash").to_owned()
}

#[test]
fn api_keys_are_found_and_reread() {
    let toml = r#"
[auth.partners]
kind = "api_keys"
file = "partners.txt"
query = "key"

[[routes]]
path = "/"
flow = "page.star:page"
auth = "partners"
"#;
    let dir = service(toml, FLOW, &[("partners.txt", &format!("# partners\nacme:{}\n", hash("k-acme")))]);
    let serving = Serving::start(dir.path());
    let known = get(&serving, "/", "x-api-key: k-acme\r\n");
    assert_eq!(known.json(), json!({"who": "acme", "claims": null, "auth": null}));
    assert_eq!(get(&serving, "/?key=k-acme", "").status(), 200);
    let wrong = get(&serving, "/", "x-api-key: k-acm\r\n");
    assert_eq!((wrong.status(), wrong.header("www-authenticate")), (401, Some("ApiKey realm=\"partners\"")));
    assert_eq!(wrong.json()["type"], "urn:fanin:problem:invalid-key");
    assert_eq!(get(&serving, "/", "").json()["detail"], "send an API key in the header x-api-key");
    // Only the file of keys changes.
    write(dir.path(), "partners.txt", &format!("bolt:{}\n", hash("k-bolt")));
    serving.logged("reloaded");
    assert_eq!(get(&serving, "/", "x-api-key: k-acme\r\n").status(), 401);
    assert_eq!(get(&serving, "/", "x-api-key: k-bolt\r\n").json()["who"], "bolt");
    // A broken file does not replace the keys.
    write(dir.path(), "partners.txt", "bolt:1234\n");
    let line = serving.logged("partners.txt:1");
    assert!(line.contains("64 hexadecimal digits"), "{line}");
    assert_eq!(get(&serving, "/", "x-api-key: k-bolt\r\n").status(), 200);
}

#[test]
fn names_and_passwords_are_compared_off_the_worker() {
    // Of the password `open sesame`, as htpasswd -B -C 5 writes it.
    let users = format!("ann:{}\n", bcrypt());
    let toml = r#"
[auth.staff]
kind = "basic"
file = "users.txt"

[[routes]]
path = "/"
flow = "page.star:page"
auth = "staff"
"#;
    let dir = service(toml, FLOW, &[("users.txt", &users)]);
    let serving = Serving::start(dir.path());
    // As curl -u ann:'open sesame' and ann:wrong send them.
    let (right, wrong) = ("authorization: Basic YW5uOm9wZW4gc2VzYW1l\r\n", "authorization: Basic YW5uOndyb25n\r\n");
    for _ in 0..2 {
        let response = get(&serving, "/", right);
        assert_eq!((response.status(), &response.json()["who"]), (200, &json!("ann")));
        let refused = get(&serving, "/", wrong);
        let challenge = Some("Basic realm=\"staff\", charset=\"UTF-8\"");
        assert_eq!((refused.status(), refused.header("www-authenticate")), (401, challenge));
        assert_eq!(refused.json()["type"], "urn:fanin:problem:invalid-password");
    }
    assert_eq!(get(&serving, "/", "").status(), 401);
}

/// A hash that another implementation has made.
fn bcrypt() -> String {
    let script = "import bcrypt; print(bcrypt.hashpw(b'open sesame', bcrypt.gensalt(5)).decode())";
    let python = crate::common::root().join(".venv/jwt/bin/python");
    let output = Command::new(python).args(["-c", script]).output().expect("python runs; .ci/setup jwt");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text").trim().to_owned()
}

#[test]
fn addresses_are_those_that_the_load_balancer_names() {
    let toml = r#"
forwarded_header = "x-forwarded-for"
trusted = ["127.0.0.1"]
deny = ["10.5.0.0/16"]

[[routes]]
path = "/all"
flow = "page.star:page"

[[routes]]
path = "/"
flow = "page.star:page"
allow = ["10.0.0.0/8", "2001:db8::/32"]
deny = ["10.9.0.0/16"]
"#;
    let dir = service(toml, FLOW, &[]);
    let serving = Serving::start(dir.path());
    for (client, status) in [("10.1.2.3", 200), ("2001:db8::7", 200), ("10.9.1.1", 403), ("11.0.0.1", 403)] {
        let response = get(&serving, "/", &format!("x-forwarded-for: {client}\r\n"));
        assert_eq!(response.status(), status, "{client}: {}", response.0);
    }
    let denied = "x-forwarded-for: 10.5.0.1\r\n";
    assert_eq!((get(&serving, "/all", denied).status(), get(&serving, "/", denied).status()), (403, 403));
    assert_eq!(get(&serving, "/all", "x-forwarded-for: 11.0.0.1\r\n").status(), 200);
    // The balancer itself is no client of these networks.
    assert_eq!(get(&serving, "/", "").json()["type"], "urn:fanin:problem:address-denied");
    let metrics = admin(&serving, "/metrics");
    assert!(metrics.contains("fanin_access_refused_total{reason=\"address-denied\"} 5"), "{metrics}");
}

#[test]
fn a_flow_before_decides_whether_the_route_runs() {
    let toml = "[[routes]]\npath = \"/\"\nflow = \"page.star:page\"\nbefore = \"page.star:guard\"\n";
    let dir = service(toml, FLOW, &[]);
    let serving = Serving::start(dir.path());
    let admitted = get(&serving, "/", "x-team: red\r\n");
    assert_eq!(admitted.json(), json!({"who": null, "claims": null, "auth": {"team": "red", "who": null}}));
    let refused = get(&serving, "/", "");
    assert_eq!((refused.status(), &refused.json()["detail"]), (403, &json!("which team?")));
    let sent = get(&serving, "/", "x-team: guests\r\n");
    assert_eq!((sent.status(), sent.header("location")), (302, Some("/login")));
    let (code, plan, _) = run(&["check", "--plan", dir.path().to_str().expect("text")]);
    assert!(code == Some(0) && plan.contains("GET / (before)"), "{plan}");
    write(dir.path(), "fanin.toml", &toml.replace(":guard", ":gard"));
    let (code, _, found) = run(&["check", dir.path().to_str().expect("text")]);
    assert!(code == Some(1) && found.contains("page.star has no function gard"), "{found}");
}

#[test]
fn methods_get_refusals_in_their_form() {
    let proto =
        "syntax = \"proto3\";\npackage a;\nmessage M { string who = 1; }\nservice S { rpc Get(M) returns (M); }\n";
    let toml = r#"
[grpc]
proto = "a.proto"

[auth.partners]
kind = "api_keys"
file = "partners.txt"

[[routes]]
grpc = "a.S/Get"
flow = "page.star:method"
auth = "partners"
"#;
    let flow = "def method(req):\n    return {\"who\": req.principal}\n";
    let keys = format!("acme:{}\n", hash("k-acme"));
    let dir = service(toml, flow, &[("a.proto", proto), ("partners.txt", &keys)]);
    let serving = Serving::start(dir.path());
    let refused = serving.post("/a.S/Get", "{}");
    assert!(refused.starts_with("HTTP/1.1 401") || refused.starts_with("HTTP/1.1 415"), "{refused}");
    let call = |more: &str| {
        let url = format!("http://{}/a.S/Get", serving.listen);
        let mut curl = Command::new("curl");
        curl.args(["-sS", "-i", &url, "-H", "content-type: application/json", "-d", "{}"]);
        if !more.is_empty() {
            curl.args(["-H", more]);
        }
        String::from_utf8(curl.output().expect("curl runs").stdout).expect("text")
    };
    let refused = call("");
    assert!(refused.contains("401") && refused.contains("\"code\":\"unauthenticated\""), "{refused}");
    assert!(refused.contains("www-authenticate: ApiKey"), "{refused}");
    let answered = call("x-api-key: k-acme");
    assert!(answered.contains("{\"who\":\"acme\"}"), "{answered}");
}

#[test]
fn check_finds_what_cannot_work() {
    let keys = format!("acme:{}\n", hash("k-acme"));
    let route = "[[routes]]\npath = \"/\"\nflow = \"page.star:page\"\n";
    let api_keys = "[auth.a]\nkind = \"api_keys\"\nfile = \"keys.txt\"\n";
    let jwt = "[auth.j]\nkind = \"jwt\"\nissuers = []\naudiences = []\n";
    let limit = "[rate_limits.l]\nrequests = 5\nper = \"1s\"\n";
    for (toml, why) in [
        (format!("{route}auth = \"b\"\n"), "there is no section [auth.b]"),
        (format!("{route}auth = \"b\"\n{api_keys}"), "there is no section [auth.b]; there is a"),
        (format!("{route}rate_limit = \"b\"\n{limit}"), "there is no section [rate_limits.b]; there is l"),
        (format!("{route}require = {{ scope = \"x\" }}\n"), "needs `auth`"),
        (format!("{route}auth = \"a\"\nrequire = {{ scope = \"x\" }}\n{api_keys}"), "no token has claims here"),
        (format!("{route}auth = \"a\"\nrequire = {{ scope = [] }}\n{api_keys}"), "no token could satisfy it"),
        (format!("{route}rate_limit = \"l\"\n{limit}key = \"principal\"\n"), "needs `auth`"),
        (format!("{route}rate_limit = \"l\"\nrate_cost = 6\n{limit}"), "above the burst of the limit, 5"),
        (format!("{route}{limit}key = \"cookie\"\n"), "`cookie` is not a key"),
        (format!("{route}allow = [\"10.0.0.0/40\"]\n"), "between 0 and 32"),
        (format!("{route}[auth.x]\nkind = \"jwt\"\n"), "needs `issuers`"),
        (format!("{route}{jwt}"), "needs `upstream`"),
        (format!("{route}{jwt}upstream = \"idp\"\n"), "there is no section [upstreams.idp]"),
        (format!("{route}{jwt}upstream = \"f\"\n[upstreams.f]\nfiles = \".\"\n"), "the keys come over HTTP"),
        (format!("{route}{jwt}secret = \"short\"\n"), "less than 32 bytes"),
        (format!("{route}{jwt}keys = [\"keys.txt\"]\nalgorithms = [\"HS256\"]\n"), "need a `secret`"),
        (format!("{route}{jwt}keys = [\"keys.txt\"]\nalgorithms = [\"none\"]\n"), "`none` is not one of"),
        (format!("{route}{jwt}keys = [\"keys.txt\"]\n"), "keys.txt: it is not JSON"),
        (format!("{route}{jwt}keys = [\"gone.json\"]\n"), "there is no file"),
        (format!("{route}{api_keys}issuers = []\n"), "belongs to kind = \"jwt\""),
        (
            format!("{route}[auth.b]\nkind = \"basic\"\nfile = \"keys.txt\"\n"),
            "keys.txt:1: the hash is not one of bcrypt",
        ),
        (format!("{route}[auth.b]\nkind = \"basic\"\n"), "needs `file`"),
        (
            format!("{route}[auth.a]\nkind = \"api_keys\"\nfile = \"page.star\"\n"),
            "page.star:2: the hash is not a SHA-256",
        ),
        (format!("{route}before = \"gone.star:guard\"\n"), "there is no flow file"),
    ] {
        let dir = service("", FLOW, &[("keys.txt", &keys)]);
        write(dir.path(), "fanin.toml", &toml);
        let (code, _, found) = run(&["check", dir.path().to_str().expect("text")]);
        assert!(code == Some(1) && found.contains(why), "{toml}\n{why}\n{found}");
    }
}
