//! HEAD and `Vary`, by curl.

use crate::{curl, service};

const FLOW: &str = r#"
def page(req):
    return {"long": "text " * 1000}

def small(req):
    return response(text = "small", headers = {"x-mine": "1"})

def none(req):
    return response(status = 204)

def fail(req):
    abort(404, "there is none")
"#;

#[test]
fn head_has_the_headers_of_get_and_no_body() {
    let routes = |more: &str| {
        let route = |name: &str| format!("[[routes]]\npath = \"/{name}\"\nflow = \"web.star:{name}\"\n{more}");
        ["page", "small", "none", "fail"].map(route).concat()
    };
    for (toml, etag) in [(routes(""), false), (format!("[compression]\n{}", routes("etag = true\n")), true)] {
        let (_dir, serving) = service(&toml, FLOW);
        for path in ["page", "small", "none", "fail", "missing"] {
            for more in
                [&[][..], &["-H", "Accept-Encoding: gzip"], &["--http2-prior-knowledge"], &["-H", "If-None-Match: *"]]
            {
                let url = format!("http://{}/{path}", serving.listen);
                // The headers of GET, the body left out.
                let get = curl(&[&["-D", "-", "-o", "/dev/null"], more, &[&url]].concat());
                let head = curl(&[&["-I"], more, &[&url]].concat());
                let lines = |text: &str| {
                    let kept = |line: &&str| !line.is_empty() && !line.starts_with("date:");
                    text.split("\r\n").filter(kept).map(str::to_owned).collect::<Vec<_>>()
                };
                assert_eq!(lines(&get), lines(&head), "{path} {more:?}");
                // Whoever asks, caches learn that the answer depends on what was asked for.
                let is_compressible = ["page", "small", "fail"].contains(&path) && etag;
                assert_eq!(get.contains("vary: accept-encoding"), is_compressible, "{path}: {get}");
            }
        }
    }
}
