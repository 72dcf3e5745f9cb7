//! Rules for headers of responses, by curl.

use crate::{curl, header, service};

const FLOW: &str = r#"
def page(req):
    if req.query.get("fail"):
        abort(409, "it is taken")
    return response(body = {"long": "text " * 1000}, headers = {"x-powered-by": "a backend", "x-frame-options": "SAMEORIGIN",
        "vary": "Accept-Language"})
"#;

const TOML: &str = "[response_headers]\nset = { x-frame-options = \"DENY\", x-secret = \"${WEB_TEST_SECRET:-none}\", vary = \"Accept\" }\n\
    remove = [\"X-Powered-By\"]\n[compression]\n\
    [[routes]]\npath = \"/page\"\nflow = \"web.star:page\"\ncors = { origins = [\"https://shop.example\"] }\n\
    [[routes]]\npath = \"/own\"\nflow = \"web.star:page\"\nresponse_headers = { set = { x-own = \"1\" } }\n\
    [[routes]]\npath = \"/off\"\nflow = \"web.star:page\"\nresponse_headers = \"off\"\ncompression = \"off\"\n";

#[test]
fn headers_are_set_and_removed_on_every_response_of_a_route() {
    let (_dir, serving) = service(TOML, FLOW);
    let get = |path: &str, more: &[&str]| {
        let answer = curl(&[&["-i"], more, &[&format!("http://{}{path}", serving.listen)]].concat());
        let names = ["x-frame-options", "x-powered-by", "x-secret", "x-own"];
        let values = names.map(|name| header(&answer, name).unwrap_or("-").to_owned());
        (answer, values)
    };
    for (path, status) in [("/page", "HTTP/1.1 200"), ("/page?fail=1", "HTTP/1.1 409")] {
        let (answer, values) = get(path, &[]);
        assert!(answer.starts_with(status), "{answer}");
        assert_eq!(values, ["DENY", "-", "none", "-"], "{path}");
    }
    assert_eq!(get("/page", &["-X", "DELETE"]).1, ["-"; 4], "no route has answered");
    assert_eq!(get("/own", &[]).1, ["SAMEORIGIN", "a backend", "-", "1"]);
    assert_eq!(get("/off", &[]).1, ["SAMEORIGIN", "a backend", "-", "-"]);
    // What the server adds by itself is not lost.
    let (answer, _) = get("/page", &["-H", "Accept-Encoding: br", "-I"]);
    let vary: Vec<&str> = answer.lines().filter_map(|line| line.strip_prefix("vary: ")).collect();
    assert_eq!((vary, header(&answer, "content-encoding")), (vec!["Accept", "accept-encoding", "origin"], Some("br")));
}
