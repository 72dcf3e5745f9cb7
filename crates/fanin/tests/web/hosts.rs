//! Routes by host, and ids of requests, by curl.

use crate::common::Serving;
use crate::{curl, header, service};

const FLOW: &str = r#"
def shop(req):
    return response(text = "shop " + req.params.get("id", ""))

def below(req):
    return response(text = "below")

def all(req):
    return response(text = "all")
"#;

const HOSTED: &str = "[[routes]]\npath = \"/{id}\"\nhost = [\"shop.example\", \"www.shop.example\"]\nflow = \"web.star:shop\"\n\
    cors = { origins = [\"https://a.example\"] }\n\
    [[routes]]\npath = \"/{id}\"\nhost = \"*.shop.example\"\nflow = \"web.star:below\"\n";

#[test]
fn the_host_decides_over_both_protocols() {
    let (_dir, serving) = service(HOSTED, FLOW);
    let get = |host: &str, more: &[&str]| {
        let sent = format!("Host: {host}");
        let url = format!("http://{}/7", serving.listen);
        curl(&[&["-i", "-H", &sent], more, &[&url]].concat())
    };
    for more in [&[][..], &["--http2-prior-knowledge"]] {
        for (host, body) in [
            ("shop.example", "shop 7"),
            ("WWW.Shop.Example:8080", "shop 7"),
            ("shop.example.", "shop 7"),
            ("a.b.shop.example", "below"),
        ] {
            let answer = get(host, more);
            assert!(answer.ends_with(&format!("\r\n\r\n{body}")), "{host} {more:?}: {answer}");
        }
        for host in ["example", "127.0.0.1", "evilshop.example"] {
            let answer = get(host, more);
            assert!(answer.contains(" 421") && answer.contains("urn:fanin:problem:no-host"), "{host}: {answer}");
        }
    }
    // A preflight is for the route of its host.
    let preflight = ["-X", "OPTIONS", "-H", "Origin: https://a.example", "-H", "Access-Control-Request-Method: GET"];
    let allowed = |host| header(&get(host, &preflight), "access-control-allow-origin").map(str::to_owned);
    assert_eq!((allowed("shop.example").as_deref(), allowed("x.shop.example")), (Some("https://a.example"), None));
}

#[test]
fn routes_without_a_host_are_for_all() {
    let more = "[[routes]]\npath = \"/{id}\"\nmethod = \"POST\"\nflow = \"web.star:all\"\n";
    let (_dir, serving) = service(&format!("{HOSTED}{more}"), FLOW);
    let send = |host: &str, method: &str| {
        let sent = format!("Host: {host}");
        curl(&["-i", "-X", method, "-H", &sent, &format!("http://{}/7", serving.listen)])
    };
    assert!(send("shop.example", "POST").ends_with("all"));
    assert!(send("other.example", "POST").ends_with("all"));
    assert_eq!(header(&send("shop.example", "PUT"), "allow"), Some("GET, HEAD, OPTIONS, POST"));
    assert_eq!(header(&send("other.example", "PUT"), "allow"), Some("OPTIONS, POST"));
}

const INNER: &str = "def inner(req):\n    return {'id': req.headers['x-request-id']}\n";

const OUTER: &str = r#"
load("@upstreams", "inner")

def outer(req):
    log("a line")
    return {"id": req.id, "header": req.headers["x-request-id"], "inner": inner.get("/")["id"]}
"#;

#[test]
fn an_id_goes_all_the_way() {
    let (_inner, inner) = service("[[routes]]\npath = \"/\"\nflow = \"web.star:inner\"\n", INNER);
    let dir = tempfile::tempdir().expect("a folder");
    let log = dir.path().join("access.log");
    let toml = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\nadmin = \"off\"\naccess_log = \"{}\"\nrequest_id = \"X-Request-ID\"\n\
         trusted = [\"127.0.0.1\"]\nworkers = 1\n[upstreams.inner]\nurl = \"http://{}\"\nforward_headers = []\n\
         [[routes]]\npath = \"/outer\"\nflow = \"web.star:outer\"\n",
        log.display(),
        inner.listen
    );
    std::fs::write(dir.path().join("fanin.toml"), toml).expect("written");
    std::fs::write(dir.path().join("web.star"), OUTER).expect("written");
    let serving = Serving::start(dir.path());
    let get = |more: &[&str]| {
        let answer = curl(&[&["-i"], more, &[&format!("http://{}/outer", serving.listen)]].concat());
        let id = header(&answer, "x-request-id").expect("an id").to_owned();
        let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
        let body: serde_json::Value = serde_json::from_str(body).expect("JSON");
        for key in ["id", "header", "inner"] {
            assert_eq!(body[key], *id, "{key}: {answer}");
        }
        id
    };
    assert_eq!(get(&["-H", "X-Request-Id: b6f1-7"]), "b6f1-7");
    let line = serving.logged("a line");
    assert!(line.contains("request_id=\"b6f1-7\""), "{line}");
    let own = get(&[]);
    assert!(own.len() == 16 && own != get(&[]), "{own}");
    let missing = curl(&["-i", "-H", "X-Request-Id: b6f1-8", &format!("http://{}/none", serving.listen)]);
    assert_eq!(header(&missing, "x-request-id"), Some("b6f1-8"), "errors have it, too");
    serving.signal("-TERM");
    serving.end();
    let log = std::fs::read_to_string(log).expect("a log");
    assert!(log.contains("\"request_id\":\"b6f1-7\"") && log.contains(&format!("\"id\":\"{own}\"")), "{log}");
}
