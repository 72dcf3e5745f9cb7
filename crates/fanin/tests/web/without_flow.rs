//! Redirects, static answers and folders, by curl.

use std::fs;
use std::path::Path;

use crate::{curl, curl_bytes, header, service};

const FLOW: &str = "def page(req):\n    return response(text = \"a flow\")\n";

fn write(dir: &Path, name: &str, content: &[u8]) {
    let path = dir.join(name);
    fs::create_dir_all(path.parent().expect("a folder")).expect("created");
    fs::write(path, content).expect("written");
}

fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or(answer)
}

#[test]
fn redirects_and_static_answers() {
    let toml = "[[routes]]\npath = \"/old/{*page}\"\nredirect = { to = \"https://new.example/{page}\", status = 308 }\n\
        [[routes]]\npath = \"/go/{*page}\"\nmethod = [\"GET\", \"POST\"]\nredirect = { to = \"/{page}\", keep_query = false }\n\
        [[routes]]\npath = \"/robots.txt\"\netag = true\nrespond = { text = \"User-agent: *\\n\", headers = { x-mine = \"1\" } }\n\
        [[routes]]\npath = \"/version\"\nmethod = \"PUT\"\nrespond = { status = 201, json = { version = 7, of = [\"a\"] } }\n\
        [[routes]]\npath = \"/gone\"\nrespond = { status = 410 }\n";
    let (_dir, serving) = service(toml, FLOW);
    let get =
        |path: &str, more: &[&str]| curl(&[&["-i"], more, &[&format!("http://{}{path}", serving.listen)]].concat());
    let moved = get("/old/a%20b/c?x=1", &[]);
    assert_eq!((status(&moved), header(&moved, "location")), ("308", Some("https://new.example/a%20b/c?x=1")));
    assert_eq!(header(&moved, "content-length"), Some("0"));
    // A value cannot become a host, nor a second header.
    for (path, to) in
        [("/go//evil.example?x=1", "/%2Fevil.example"), ("/go/%0d%0ax:y", "/%0D%0Ax%3Ay"), ("/go/a", "/a")]
    {
        for method in ["GET", "POST"] {
            let answer = get(path, &["-X", method]);
            assert_eq!((status(&answer), header(&answer, "location")), ("302", Some(to)), "{answer}");
        }
    }
    let robots = get("/robots.txt", &[]);
    assert!(robots.ends_with("\r\n\r\nUser-agent: *\n"), "{robots}");
    assert_eq!(header(&robots, "content-type"), Some("text/plain; charset=utf-8"));
    assert_eq!(header(&robots, "x-mine"), Some("1"));
    let sent = format!("If-None-Match: {}", header(&robots, "etag").expect("a tag"));
    assert_eq!(status(&get("/robots.txt", &["-H", &sent])), "304");
    let version = get("/version", &["-X", "PUT"]);
    assert!(status(&version) == "201" && version.ends_with("{\"of\":[\"a\"],\"version\":7}"), "{version}");
    let gone = get("/gone", &[]);
    assert_eq!(
        (status(&gone), header(&gone, "content-length"), header(&gone, "content-type")),
        ("410", Some("0"), None)
    );
}

/// A folder with files of all kinds, and a server for it.
fn folder() -> (tempfile::TempDir, crate::common::Serving, Vec<u8>) {
    let dir = tempfile::tempdir().expect("a folder");
    let public = dir.path().join("public");
    let big: Vec<u8> = (0..1_000_000_u32).map(|at| (at % 251) as u8).collect();
    write(&public, "index.html", b"<!doctype html><title>Start</title>");
    write(&public, "app.js", b"let a = 1;");
    write(&public, "app.js.br", b"brotli");
    write(&public, "app.js.gz", b"gzip");
    write(&public, "docs/index.html", b"docs");
    write(&public, "empty/file", b"");
    write(&public, "big.bin", &big);
    write(&public, ".env", b"secret");
    write(&public, ".git/config", b"secret");
    write(&public, ".well-known/security.txt", b"Contact: us");
    write(dir.path(), "outside.txt", b"secret");
    std::os::unix::fs::symlink("../outside.txt", public.join("link.txt")).expect("linked");
    std::os::unix::fs::symlink("app.js", public.join("inside.js")).expect("linked");
    let toml = "[[routes]]\npath = \"/{*file}\"\nfolder = \"public\"\ncache_control = \"max-age=60\"\n\
        [[routes]]\npath = \"/app/{*file}\"\nfolder = { path = \"public\", fallback = \"index.html\", precompressed = false, index = \"off\" }\n";
    crate::write(dir.path(), toml, FLOW);
    let serving = crate::common::Serving::start(dir.path());
    (dir, serving, big)
}

#[test]
fn files_of_a_folder() {
    let (dir, serving, big) = folder();
    let url = |path: &str| format!("http://{}{path}", serving.listen);
    let get = |path: &str, more: &[&str]| curl(&[&["-i", "--path-as-is"], more, &[&url(path)]].concat());
    for (path, body, kind) in [
        ("/", "<!doctype html><title>Start</title>", "text/html; charset=utf-8"),
        ("/app.js", "let a = 1;", "text/javascript; charset=utf-8"),
        ("/inside.js", "let a = 1;", "text/javascript; charset=utf-8"),
        ("/docs/", "docs", "text/html; charset=utf-8"),
        ("/empty/file", "", "application/octet-stream"),
        ("/.well-known/security.txt", "Contact: us", "text/plain; charset=utf-8"),
        ("/app/some/page", "<!doctype html><title>Start</title>", "text/html; charset=utf-8"),
    ] {
        let answer = get(path, &[]);
        assert!(status(&answer) == "200" && answer.ends_with(&format!("\r\n\r\n{body}")), "{path}: {answer}");
        assert_eq!(header(&answer, "content-type"), Some(kind), "{path}");
        assert_eq!(header(&answer, "content-length"), Some(&*body.len().to_string()), "{path}");
        assert_eq!(header(&answer, "accept-ranges"), Some("bytes"), "{path}");
        let head = get(path, &["-I"]);
        for name in ["content-length", "content-type", "etag", "last-modified", "vary", "cache-control"] {
            assert_eq!(header(&head, name), header(&answer, name), "{name} of {path}");
        }
    }
    let moved = get("/docs?x=1", &[]);
    assert_eq!((status(&moved), header(&moved, "location")), ("301", Some("/docs/?x=1")));
    for path in [
        "/none",
        "/empty/",
        "/empty",
        "/.env",
        "/.git/config",
        "/link.txt",
        "/docs//index.html",
        "//docs",
        "/app.js/",
        "/app/none.js",
        "/docs/..%5C..%5Coutside.txt",
        "/..%2foutside.txt",
        "/../outside.txt",
        "/%2e%2e/outside.txt",
    ] {
        let answer = get(path, &[]);
        assert!(["404", "400"].contains(&status(&answer)) && !answer.contains("secret"), "{path}: {answer}");
    }
    // What was compressed before, by what the client accepts.
    for (accept, body, coding) in [("br, gzip", "brotli", "br"), ("gzip", "gzip", "gzip")] {
        let answer = get("/app.js", &["-H", &format!("Accept-Encoding: {accept}")]);
        assert!(answer.ends_with(body), "{answer}");
        assert_eq!(
            (header(&answer, "content-encoding"), header(&answer, "vary")),
            (Some(coding), Some("accept-encoding"))
        );
        assert_ne!(header(&answer, "etag"), header(&get("/app.js", &[]), "etag"));
    }
    assert_eq!(header(&get("/app/app.js", &["-H", "Accept-Encoding: br"]), "content-encoding"), None);
    assert_eq!(curl_bytes(&[&url("/big.bin")]), big, "a large file comes as a stream");
    // Conditions.
    let first = get("/app.js", &[]);
    let tag = header(&first, "etag").expect("a tag");
    let modified = header(&first, "last-modified").expect("a time");
    for (sent, expected) in [
        (format!("If-None-Match: {tag}"), "304"),
        (format!("If-Modified-Since: {modified}"), "304"),
        ("If-Match: \"other\"".to_owned(), "412"),
        (format!("If-Match: {tag}"), "200"),
    ] {
        let answer = get("/app.js", &["-H", &sent]);
        assert_eq!(status(&answer), expected, "{sent}: {answer}");
        if expected == "304" {
            assert_eq!((header(&answer, "etag"), header(&answer, "cache-control")), (Some(tag), Some("max-age=60")));
        }
    }
    assert_eq!(status(&get("/app.js", &["-X", "POST"])), "405");
    // A deployment replaces the folder.
    fs::rename(dir.path().join("public"), dir.path().join("old")).expect("renamed");
    assert_eq!(status(&get("/", &[])), "500", "without the folder, nothing is known");
    write(dir.path(), "public/index.html", b"new");
    assert!(get("/", &[]).ends_with("new"));
}

#[test]
fn ranges_of_files() {
    let (_dir, serving, big) = folder();
    let url = |path: &str| format!("http://{}{path}", serving.listen);
    let ranged = |path: &str, range: &str, more: &[&str]| {
        let sent = format!("Range: {range}");
        let output = curl_bytes(&[&["-i", "-H", &sent], more, &[&url(path)]].concat());
        let at = output.windows(4).position(|four| four == b"\r\n\r\n").expect("a head");
        (String::from_utf8(output[..at + 4].to_vec()).expect("text"), output[at + 4..].to_vec())
    };
    for (range, part) in [
        ("bytes=0-0", 0..1),
        ("bytes=10-400009", 10..400_010),
        ("bytes=-5", 999_995..1_000_000),
        ("bytes=999990-", 999_990..1_000_000),
    ] {
        let (head, body) = ranged("/big.bin", range, &[]);
        assert!(status(&head) == "206" && body == big[part.clone()], "{range}: {head}");
        let expected = format!("bytes {}-{}/1000000", part.start, part.end - 1);
        assert_eq!(header(&head, "content-range"), Some(&*expected));
    }
    let (head, _) = ranged("/big.bin", "bytes=1000000-", &[]);
    assert_eq!((status(&head), header(&head, "content-range")), ("416", Some("bytes */1000000")));
    for (range, more) in [("lines=1-2", &[][..]), ("bytes=2-1", &[]), ("bytes=0-1", &["-H", "If-Range: \"other\""])] {
        let (head, body) = ranged("/big.bin", range, more);
        assert!(status(&head) == "200" && body == big, "{range}: {head}");
    }
    let (head, _) = ranged("/big.bin", "bytes=0-1", &["-I"]);
    assert_eq!((status(&head), header(&head, "content-length")), ("200", Some("1000000")));
    // Several parts, of a small file and of a large one.
    for (path, parts) in [("/app.js", [0..2_usize, 4..6]), ("/big.bin", [0..2, 500_000..900_000])] {
        let whole = curl_bytes(&[&url(path)]);
        let list: Vec<String> = parts.iter().map(|part| format!("{}-{}", part.start, part.end - 1)).collect();
        let (head, body) = ranged(path, &format!("bytes={}", list.join(", ")), &[]);
        let kind = header(&head, "content-type").expect("a type");
        let boundary = kind.strip_prefix("multipart/byteranges; boundary=").unwrap_or_else(|| panic!("{head}"));
        assert_eq!(header(&head, "content-length"), Some(&*body.len().to_string()));
        let mut expected = Vec::new();
        let of = header(&curl(&["-I", &url(path)]), "content-type").expect("a type").to_owned();
        for (part, shown) in parts.iter().zip(&list) {
            let head = format!(
                "\r\n--{boundary}\r\ncontent-type: {of}\r\ncontent-range: bytes {shown}/{}\r\n\r\n",
                whole.len()
            );
            expected.extend_from_slice(head.as_bytes());
            expected.extend_from_slice(&whole[part.clone()]);
        }
        expected.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
        assert!(body == expected, "{path}: {}", String::from_utf8_lossy(&body[..body.len().min(400)]));
    }
}
