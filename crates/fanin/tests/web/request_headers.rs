//! Which headers flows and upstreams see, and which of an answer clients get.

use crate::{curl, header, service};

const BACKEND: &str = r#"
def echo(req):
    names = ["x-secret", "x-from", "x-user", "accept-language", "x-other"]
    seen = {name: req.headers.get(name, "-") for name in names}
    headers = {"set-cookie": "a=1", "cache-control": "max-age=9", "x-inner": "1", "etag": '"e"'}
    return response(body = seen, headers = headers)
"#;

const FLOW: &str = r#"
load("@upstreams", "own", "plain")

def seen(req):
    return {"flow": [req.headers.get(name, "-") for name in ["x-secret", "x-from", "x-other"]], "backend": own.get("/echo")}

def whole(req):
    return own.get("/echo")

def mine(req):
    return response(headers = {"etag": '"mine"'}, body = own.get("/echo"))

def streamed(req):
    return stream(own.get("/echo"))

def untouched(req):
    return plain.get("/echo")
"#;

#[test]
fn rules_of_routes_and_upstreams() {
    let (_backend, backend) = service("[[routes]]\npath = \"/echo\"\nflow = \"web.star:echo\"\n", BACKEND);
    let names = ["seen", "whole", "mine", "streamed", "untouched"];
    let routes = names.map(|name| format!("[[routes]]\npath = \"/{name}\"\nflow = \"web.star:{name}\"\n")).concat();
    let url = format!("url = \"http://{}\"\n", backend.listen);
    let toml = format!(
        "[request_headers]\nset = {{ x-from = \"edge\" }}\nremove = [\"X-Secret\"]\n\
         [upstreams.own]\n{url}forward_headers = [\"x-secret\", \"x-from\", \"x-other\", \"accept-language\"]\n\
         headers = {{ x-user = \"fixed\" }}\n\
         answer_headers = {{ pass = [\"set-cookie\", \"etag\"], remove = [\"cache-control\"], set = {{ x-set = \"1\" }} }}\n\
         [upstreams.plain]\n{url}{routes}\
         [[routes]]\npath = \"/passed\"\nflow = \"web.star:seen\"\nrequest_headers = {{ pass = [\"x-other\"] }}\n\
         [[routes]]\npath = \"/off\"\nflow = \"web.star:seen\"\nrequest_headers = \"off\"\n"
    );
    let (_dir, serving) = service(&toml, FLOW);
    let get = |path: &str| {
        let sent =
            ["X-Secret: s", "X-From: client", "X-Other: o", "Accept-Language: en"].map(|line| ["-H", line]).concat();
        let answer = curl(&[&["-i"], &sent[..], &[&format!("http://{}/{path}", serving.listen)]].concat());
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        answer
    };
    let body = |path: &str| get(path).split("\r\n\r\n").nth(1).expect("a body").to_owned();
    for (path, flow, backend) in [
        ("seen", "[\"-\",\"edge\",\"o\"]", ["-", "edge", "fixed", "en", "o"]),
        ("passed", "[\"-\",\"-\",\"o\"]", ["-", "-", "fixed", "-", "o"]),
        ("off", "[\"s\",\"client\",\"o\"]", ["s", "client", "fixed", "en", "o"]),
    ] {
        let [secret, from, user, language, other] = backend;
        let expected = format!(
            "{{\"flow\":{flow},\"backend\":{{\"x-secret\":\"{secret}\",\"x-from\":\"{from}\",\"x-user\":\"{user}\",\
             \"accept-language\":\"{language}\",\"x-other\":\"{other}\"}}}}"
        );
        assert_eq!(body(path), expected, "{path}");
    }
    let of = |path: &str| {
        let answer = get(path);
        ["set-cookie", "etag", "cache-control", "x-set", "x-inner"].map(|name| header(&answer, name).map(str::to_owned))
    };
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(of("whole"), [some("a=1"), some("\"e\""), None, some("1"), None]);
    assert_eq!(of("mine"), [some("a=1"), some("\"mine\""), None, some("1"), None]);
    assert_eq!(of("streamed"), [some("a=1"), some("\"e\""), None, some("1"), None]);
    assert_eq!(of("untouched"), [None, None, None, None, None]);
    assert_eq!(of("seen"), [None, None, None, None, None], "a part of a response is not passed on");
}
