//! Tokens that PyJWT has signed, with keys of a server on loopback.

use serde_json::{Value, json};

use crate::common::Serving;
use crate::issuer::{Issuer, tokens};
use crate::{Response, get, service};

const FLOW: &str = r#"
def whoami(req):
    return {"who": req.principal, "scope": req.claims["scope"]}

def order(req):
    return req.principal
"#;

fn toml(issuer: &Issuer, more: &str) -> String {
    format!(
        r#"
[upstreams.idp]
url = "http://{}"
timeout = "5s"

[auth.shop]
kind = "jwt"
issuers = ["https://idp.example"]
audiences = ["shop"]
algorithms = ["RS256", "PS256", "ES256", "ES384", "EdDSA"]
upstream = "idp"
jwks_path = "/keys"
{more}

[[routes]]
path = "/whoami"
flow = "page.star:whoami"
auth = "shop"

[[routes]]
path = "/orders"
flow = "page.star:order"
auth = ["shop"]
require = {{ scope = "orders:write" }}
"#,
        issuer.address
    )
}

fn with(serving: &Serving, path: &str, token: &Value) -> Response {
    get(serving, path, &format!("authorization: Bearer {}\r\n", token.as_str().expect("a token")))
}

#[test]
fn tokens_of_another_implementation_are_checked() {
    let made = tokens(0);
    let issuer = Issuer::start(Some(&made["keys"]));
    let dir = service(&toml(&issuer, ""), FLOW, &[]);
    let serving = Serving::start(dir.path());
    for (name, token) in made["tokens"].as_object().expect("tokens") {
        for _ in 0..2 {
            let response = with(&serving, "/whoami", token);
            assert_eq!(response.status(), 200, "{name}: {}", response.0);
            assert_eq!(response.json(), json!({"who": "ann", "scope": "read orders:write"}), "{name}");
        }
    }
    assert_eq!(with(&serving, "/orders", &made["tokens"]["ES256"]).status(), 200);
    assert_eq!(issuer.requests(), 1, "the keys were fetched once");

    let none = get(&serving, "/whoami", "");
    assert_eq!((none.status(), none.header("www-authenticate")), (401, Some("Bearer realm=\"shop\"")));
    assert_eq!(none.json()["type"], "urn:fanin:problem:no-credentials");
    for (name, why) in [("expired", "it has expired"), ("other_audience", "it is for another audience")] {
        let response = with(&serving, "/whoami", &made[name]);
        let challenge = format!("Bearer realm=\"shop\", error=\"invalid_token\", error_description=\"{why}\"");
        assert_eq!((response.status(), response.header("www-authenticate")), (401, Some(&*challenge)));
        assert_eq!(
            (&response.json()["type"], &response.json()["detail"]),
            (&json!("urn:fanin:problem:invalid-token"), &json!(why))
        );
        assert!(!response.0.contains(&made[name].as_str().expect("text")[..20]), "no part of the token");
    }
    let denied = with(&serving, "/orders", &made["read_only"]);
    let challenge = "Bearer error=\"insufficient_scope\", scope=\"orders:write\"";
    assert_eq!((denied.status(), denied.header("www-authenticate")), (403, Some(challenge)));
    assert_eq!(denied.json()["detail"], "the claim scope does not have what the route requires");

    let (_, log) = {
        serving.signal("-TERM");
        serving.end()
    };
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines.iter().filter(|line| line["principal"] == "ann").count(), 11);
    // Whoever is refused has proved nothing.
    assert_eq!(
        lines.iter().filter(|line| line["status"] == 401).filter(|line| line.get("principal").is_some()).count(),
        0
    );
}

#[test]
fn made_up_keys_cause_one_fetch_and_new_keys_are_found() {
    let made = tokens(1000);
    let issuer = Issuer::start(Some(&made["keys"]));
    let dir = service(&toml(&issuer, "min_interval = \"1s\"\nrefresh = \"1h\"\nmax_stale = \"2h\""), FLOW, &[]);
    let serving = Serving::start(dir.path());
    assert_eq!(with(&serving, "/whoami", &made["tokens"]["ES256"]).status(), 200);
    assert_eq!(issuer.requests(), 1);
    let begin = std::time::Instant::now();
    for token in made["made_up"].as_array().expect("tokens") {
        let response = with(&serving, "/whoami", token);
        assert_eq!((response.status(), &response.json()["detail"]), (401, &json!("it is signed with an unknown key")));
    }
    let intervals = begin.elapsed().as_secs() as usize + 1;
    assert!(issuer.requests() - 1 <= intervals, "{} fetches in {intervals} intervals", issuer.requests() - 1);
    // The issuer has new keys. The first token with one of them is accepted, once an interval has passed.
    issuer.serve(Some(&made["rotated"]));
    std::thread::sleep(std::time::Duration::from_millis(1100));
    assert_eq!(with(&serving, "/orders", &made["next"]).status(), 200);
    assert_eq!(with(&serving, "/whoami", &made["tokens"]["ES256"]).status(), 401, "the old key is gone");
}

#[test]
fn without_the_issuer_nothing_is_accepted_and_nobody_is_accused() {
    let made = tokens(0);
    let issuer = Issuer::start(None);
    let dir = service(&toml(&issuer, "min_interval = \"1s\"\nrefresh = \"2s\"\nmax_stale = \"3s\""), FLOW, &[]);
    let serving = Serving::start(dir.path());
    let good = &made["tokens"]["RS256"];
    let response = with(&serving, "/whoami", good);
    assert_eq!((response.status(), response.header("retry-after")), (503, Some("1")), "{}", response.0);
    assert_eq!(response.json()["type"], "urn:fanin:problem:auth-unavailable");
    issuer.serve(Some(&made["keys"]));
    serving.logged("the keys of the tokens' issuer could not be fetched");
    wait_for(|| with(&serving, "/whoami", good).status() == 200);
    // It stays accepted for a while, then the keys are too old.
    issuer.serve(None);
    assert_eq!(with(&serving, "/whoami", good).status(), 200);
    wait_for(|| with(&serving, "/whoami", good).status() == 503);
    issuer.serve(Some(&made["keys"]));
    wait_for(|| with(&serving, "/whoami", good).status() == 200);
}

fn wait_for(mut is_so: impl FnMut() -> bool) {
    for _ in 0..600 {
        if is_so() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    panic!("it did not come to that");
}

#[test]
fn a_secret_and_a_file_of_keys_need_no_issuer() {
    let made = tokens(0);
    let toml = r#"
[auth.cron]
kind = "jwt"
issuers = ["i"]
audiences = ["a"]
secret = "${SECRET}"

[auth.shop]
kind = "jwt"
issuers = ["https://idp.example"]
audiences = ["shop"]
keys = ["keys.json"]

[[routes]]
path = "/"
flow = "page.star:order"
auth = ["shop", "cron"]
"#;
    let dir = service(toml, FLOW, &[("keys.json", made["keys"].as_str().expect("text"))]);
    let secret = "0123456789abcdef".repeat(2);
    let serving = Serving::with(dir.path(), &[("SECRET", &secret)]);
    assert_eq!(with(&serving, "/", &made["secret"]).json(), "cron");
    assert_eq!(with(&serving, "/", &made["tokens"]["EdDSA"]).json(), "ann");
    assert_eq!(with(&serving, "/", &made["tokens"]["PS256"]).status(), 401, "not among the algorithms");
    let config = crate::admin(&serving, "/config");
    assert!(config.contains("\"secret\":\"***\"") && !config.contains(&secret), "{config}");
}
