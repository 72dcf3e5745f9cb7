//! Cookies, signed values and redirects of flows, by curl, whose jar keeps cookies as browsers do.

use crate::common::run;
use crate::{curl, header, service};

const FLOW: &str = r#"
def login(req):
    session = cookie("session", sign("user 7", "session"), max_age = "30d", secure = False)
    return redirect("/me", status = 303, query = {"from": "login ü"}, cookies = [session, cookie("theme", "dark", http_only = False, secure = False)])

def me(req):
    user = unsign(req.cookies.get("session", ""), "session", max_age = "30d")
    if user == None:
        abort(401, "sign in first")
    return {"user": user, "theme": req.cookies["theme"], "all": len(req.cookies)}

def logout(req):
    return response(text = "bye", cookies = [cookie("session", None)])

def go(req):
    return redirect(req.query["to"], hosts = ["*.friends.example"])

def strict(req):
    return response(status = 204, cookies = [cookie("__Host-a", 1, same_site = "strict")])

def bad(req):
    return response(cookies = [cookie("a", req.query["value"])])
"#;

fn toml() -> String {
    let route = |name: &str| format!("[[routes]]\npath = \"/{name}\"\nflow = \"web.star:{name}\"\n");
    let routes = ["login", "me", "logout", "go", "strict", "bad"].map(route).concat();
    format!("[signing]\nkey_files = [\"signing.key\"]\n{routes}")
}

#[test]
fn a_session_lives_in_a_cookie() {
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::write(dir.path().join("signing.key"), "0123456789abcdef0123456789abcdef\n").expect("written");
    crate::write(dir.path(), &toml(), FLOW);
    let serving = crate::common::Serving::start(dir.path());
    let url = |path: &str| format!("http://{}{path}", serving.listen);
    let jar = dir.path().join("jar");
    let jar = jar.to_str().expect("text");
    let get = |path: &str, more: &[&str]| curl(&[&["-i"], more, &[&url(path)]].concat());
    let login = get("/login", &["-c", jar]);
    assert!(login.starts_with("HTTP/1.1 303"), "{login}");
    assert_eq!(header(&login, "location"), Some("/me?from=login+%C3%BC"));
    assert_eq!((header(&login, "content-length"), header(&login, "content-type")), (Some("0"), None));
    let set: Vec<&str> = login.lines().filter_map(|line| line.strip_prefix("set-cookie: ")).collect();
    assert!(set[0].ends_with("; Path=/; Max-Age=2592000; SameSite=Lax; HttpOnly"), "{set:?}");
    assert_eq!(set[1], "theme=dark; Path=/; SameSite=Lax");
    let me = get("/me", &["-b", jar]);
    assert!(me.ends_with(r#"{"user":"user 7","theme":"dark","all":2}"#), "{me}");
    // A changed cookie is no session, and neither is one of another name.
    let value = set[0].split(['=', ';']).nth(1).expect("a value");
    for cookies in [format!("session=x{value}; theme=a"), "session=dXNlciA4.0.AAAA".to_owned(), String::new()] {
        let answer = get("/me", &["-H", &format!("Cookie: {cookies}")]);
        assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    }
    let missing = get("/me", &["-H", &format!("Cookie: session={value}")]);
    assert!(missing.starts_with("HTTP/1.1 400") && missing.contains("theme"), "{missing}");
    assert_eq!(
        header(&get("/logout", &[]), "set-cookie"),
        Some("session=; Path=/; Max-Age=0; SameSite=Lax; Secure; HttpOnly")
    );
    assert_eq!(
        header(&get("/strict", &[]), "set-cookie"),
        Some("__Host-a=1; Path=/; SameSite=Strict; Secure; HttpOnly")
    );
    // What a client sends decides neither where others go nor what a cookie has in it.
    for (to, status) in [
        ("/here", "302"),
        ("https://a.friends.example/", "302"),
        ("//evil.example", "400"),
        ("https://evil.example", "400"),
    ] {
        let answer = curl(&["-i", "-G", "--data-urlencode", &format!("to={to}"), &url("/go")]);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{to}: {answer}");
        assert_eq!(header(&answer, "location"), (status == "302").then_some(to));
    }
    for value in ["a b", "a;b", "a\r\nset-cookie: c=d", "ü"] {
        let answer = curl(&["-i", "-G", "--data-urlencode", &format!("value={value}"), &url("/bad")]);
        assert!(answer.starts_with("HTTP/1.1 500") && header(&answer, "set-cookie").is_none(), "{value}: {answer}");
    }
    // The key is replaced: the new one signs, the old one still verifies.
    std::fs::write(dir.path().join("new.key"), "another key of at least 32 bytes").expect("written");
    let both = toml().replace("[\"signing.key\"]", "[\"new.key\", \"signing.key\"]");
    crate::write(dir.path(), &both, FLOW);
    serving.signal("-HUP");
    serving.logged("reloaded");
    assert!(get("/me", &["-b", jar]).starts_with("HTTP/1.1 200"));
}

#[test]
fn check_finds_what_cannot_work() {
    for (toml, flow, message) in [
        (toml(), FLOW.to_owned(), "there is no file"),
        (
            "[[routes]]\npath = \"/\"\nflow = \"web.star:f\"\n".to_owned(),
            "def f(req):\n    return redirect(\"https://evil.example/\")\n".to_owned(),
            "leads to another host",
        ),
        ("[signing]\nkey_files = [\"web.star\"]\n".to_owned(), "# short\n".to_owned(), "has fewer than 32 bytes"),
    ] {
        let dir = tempfile::tempdir().expect("a folder");
        crate::write(dir.path(), &toml, &flow);
        let (code, _, told) = run(&["check", dir.path().to_str().expect("text")]);
        assert!(code != Some(0) && told.contains(message), "{message}: {told}");
    }
    let (_dir, serving) =
        service("[[routes]]\npath = \"/\"\nflow = \"web.star:f\"\n", "def f(req):\n    return sign(\"a\")\n");
    assert!(serving.get("/").starts_with("HTTP/1.1 500"));
    assert!(
        serving.logged("sign() needs keys").contains("[signing]") || serving.logged("[signing]").contains("key_files")
    );
}
