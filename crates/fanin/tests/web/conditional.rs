//! Entity tags and conditional requests, by curl and a browser's cache.

use fanin_testbed::tab::Tab;

use crate::{curl, header, service};

const FLOW: &str = r#"
def page(req):
    return response(body = {"for": req.query.get("for", "all"), "long": "text " * 1000}, headers = {"x-mine": "1"})

def dated(req):
    headers = {"last-modified": "Tue, 24 Nov 2026 10:00:00 GMT", "content-type": "text/plain"}
    if req.query.get("tag"):
        headers["etag"] = 'W/"mine"'
    if req.query.get("cache"):
        headers["cache-control"] = "no-cache"
    return response(text = "dated", headers = headers)

def fail(req):
    abort(int(req.query["status"]), "as asked")

def html(req):
    return response(text = "<!doctype html><title>A page</title>", headers = {"content-type": "text/html"})
"#;

const TOML: &str = "[compression]\n\
    [[routes]]\npath = \"/page\"\nflow = \"web.star:page\"\netag = true\ncache_control = \"public, max-age=0\"\n\
    [[routes]]\nmethod = \"POST\"\npath = \"/page\"\nflow = \"web.star:page\"\netag = true\n\
    [[routes]]\npath = \"/dated\"\nflow = \"web.star:dated\"\netag = true\ncache_control = \"max-age=60\"\n\
    [[routes]]\npath = \"/fail\"\nflow = \"web.star:fail\"\netag = true\ncache_control = \"max-age=60\"\n\
    [[routes]]\npath = \"/plain\"\nflow = \"web.star:page\"\n\
    [[routes]]\npath = \"/html\"\nflow = \"web.star:html\"\n";

#[test]
fn a_client_that_has_the_body_gets_304() {
    let (_dir, serving) = service(TOML, FLOW);
    let url = |path: &str| format!("http://{}{path}", serving.listen);
    let get = |path: &str, more: &[&str]| curl(&[&["-i"], more, &[&url(path)]].concat());
    let first = get("/page", &[]);
    let tag = header(&first, "etag").expect("a tag").to_owned();
    assert!(tag.starts_with('"') && tag.len() > 20, "{tag}");
    assert_eq!(header(&first, "cache-control"), Some("public, max-age=0"));
    assert_eq!(header(&get("/page", &[]), "etag"), Some(&*tag), "the same bytes have the same tag");
    assert_ne!(header(&get("/page?for=me", &[]), "etag"), Some(&*tag));

    for list in [tag.clone(), format!("\"other\", W/{tag}"), "*".to_owned()] {
        let sent = format!("If-None-Match: {list}");
        for more in [&["-H", &sent][..], &["-I", "-H", &sent]] {
            let answer = get("/page", more);
            let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
            assert!(head.starts_with("HTTP/1.1 304") && body.is_empty(), "{answer}");
            let names = ["etag", "cache-control", "vary", "x-mine", "content-type", "content-length"];
            let values = names.map(|name| header(head, name));
            assert_eq!(
                values,
                [Some(&*tag), Some("public, max-age=0"), Some("accept-encoding"), Some("1"), None, None],
                "{head}"
            );
        }
    }
    let answer = get("/page", &["-H", "If-None-Match: \"other\""]);
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("text text"), "{answer}");

    // Compressed bytes are others, so the tag is weak; it still names the same page.
    let accept = ["-H", "Accept-Encoding: gzip"];
    let encoded = curl(&[&["-I"], &accept[..], &[&url("/page")]].concat());
    assert_eq!(header(&encoded, "etag"), Some(&*format!("W/{tag}")));
    let sent = format!("If-None-Match: W/{tag}");
    let answer = get("/page", &[&accept[..], &["-H", &sent]].concat());
    assert!(answer.starts_with("HTTP/1.1 304"), "{answer}");
    let values = ["etag", "vary", "content-encoding"].map(|name| header(&answer, name));
    assert_eq!(values, [Some(&*format!("W/{tag}")), Some("accept-encoding"), None]);

    // No tags where they say nothing.
    assert_eq!(header(&get("/page", &["-X", "POST"]), "etag"), None);
    assert_eq!(header(&get("/plain", &[]), "etag"), None);
    let error = get("/fail?status=404", &["-H", "If-None-Match: *"]);
    assert!(error.starts_with("HTTP/1.1 404"), "{error}");
    assert_eq!((header(&error, "etag"), header(&error, "cache-control")), (None, Some("no-store")));
}

#[test]
fn tags_and_times_of_the_flow_count() {
    let (_dir, serving) = service(TOML, FLOW);
    let get = |path: &str, headers: &[&str]| {
        let sent: Vec<&str> = headers.iter().flat_map(|header| ["-H", header]).collect();
        let url = format!("http://{}{path}", serving.listen);
        curl(&[&["-i"], &sent[..], &[&url]].concat())
    };
    let status = |answer: &str| answer.split(' ').nth(1).map(str::to_owned);
    let (then, before) = ("Tue, 24 Nov 2026 10:00:00 GMT", "Tue, 24 Nov 2026 09:59:59 GMT");
    let since = |date: &str| format!("If-Modified-Since: {date}");
    for (path, headers, expected) in [
        ("/dated", vec![since(then)], "304"),
        ("/dated", vec![since("Wed, 25 Nov 2026 10:00:00 GMT")], "304"),
        ("/dated", vec![since(before)], "200"),
        ("/dated", vec![since("yesterday")], "200"),
        ("/dated?tag=1", vec!["If-None-Match: \"mine\"".to_owned()], "304"),
        // A tag counts more than a time.
        ("/dated?tag=1", vec!["If-None-Match: \"other\"".to_owned(), since(then)], "200"),
    ] {
        let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
        let answer = get(path, &headers);
        assert_eq!(status(&answer).as_deref(), Some(expected), "{path} {headers:?}: {answer}");
        assert_eq!(header(&answer, "last-modified"), Some(then));
    }
    assert_eq!(header(&get("/dated?tag=1", &[]), "etag"), Some("W/\"mine\""));
    assert_eq!(header(&get("/dated?cache=1", &[]), "cache-control"), Some("no-cache"));
    assert_eq!(header(&get("/dated", &[]), "cache-control"), Some("max-age=60"));
}

#[test]
fn a_browser_asks_again_and_keeps_its_copy() {
    let (_dir, serving) = service(TOML, FLOW);
    let mut tab = Tab::open(&format!("http://{}/html", serving.listen));
    // A response with status 304 takes fewer bytes. The browser may still be writing its copy when the next request is made.
    let script = "(async () => {
        for (let at = 0; at < 100; at++) {
            const answer = await fetch('/page');
            if ((await answer.json()).for !== 'all') return 'another body';
            const [first, ...more] = performance.getEntriesByType('resource').map(entry => entry.transferSize);
            if (more.some(size => size > 0 && size < first)) return 'it keeps its copy';
            await new Promise(done => setTimeout(done, 50));
        }
        return 'each response had a body';
    })()";
    assert_eq!(tab.evaluate(script), "it keeps its copy");
}
