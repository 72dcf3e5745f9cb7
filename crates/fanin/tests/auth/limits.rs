//! Rate limits over HTTP.

use crate::common::Serving;
use crate::{admin, get, service, write};

const FLOW: &str = "def page(req):\n    return {}\n";

const TOML: &str = r#"
forwarded_header = "x-forwarded-for"
trusted = ["127.0.0.1"]

[rate_limits.client]
requests = 2
per = "1h"

[rate_limits.tenant]
requests = 3
per = "1h"
key = "header:x-tenant"
headers = false

[[routes]]
path = "/a"
flow = "page.star:page"
rate_limit = "client"

[[routes]]
path = "/b"
flow = "page.star:page"
rate_limit = ["tenant", "client"]
rate_cost = 2

[[routes]]
path = "/open"
flow = "page.star:page"
"#;

#[test]
fn a_client_learns_its_budget_and_is_refused_beyond_it() {
    let dir = service(TOML, FLOW, &[]);
    let serving = Serving::start(dir.path());
    let from = |client: &str, path: &str| get(&serving, path, &format!("x-forwarded-for: {client}\r\nx-tenant: t\r\n"));
    let first = from("10.0.0.1", "/a");
    assert_eq!((first.status(), first.header("ratelimit-policy")), (200, Some("\"client\";q=2;w=3600")));
    assert!(first.header("ratelimit").is_some_and(|left| left.starts_with("\"client\";r=1;t=")), "{}", first.0);
    assert_eq!(from("10.0.0.1", "/a").status(), 200);
    let refused = from("10.0.0.1", "/a");
    assert_eq!((refused.status(), &refused.json()["type"]), (429, &"urn:fanin:problem:rate-limit".into()));
    let after: u64 = refused.header("retry-after").and_then(|after| after.parse().ok()).expect("seconds");
    assert!((1..=1800).contains(&after), "{after}");
    assert!(refused.header("ratelimit").is_some_and(|left| left.starts_with("\"client\";r=0;t=")), "{}", refused.0);
    assert_eq!(from("10.0.0.2", "/a").status(), 200, "another client");
    assert_eq!(from("10.0.0.1", "/open").header("ratelimit"), None);
    // One limit refuses: the request counts for no other.
    assert_eq!(from("10.0.0.1", "/b").status(), 429);
    assert_eq!(from("10.0.0.3", "/b").status(), 200, "the tenant has a budget of three, and this is two");
    assert_eq!(from("10.0.0.4", "/b").status(), 429, "of which one is left");
    let metrics = admin(&serving, "/metrics");
    for line in [
        "fanin_access_refused_total{reason=\"rate-limit\"} 3",
        "fanin_rate_limit_refused_total{limit=\"client\"} 2",
        "fanin_rate_limit_refused_total{limit=\"tenant\"} 1",
    ] {
        assert!(metrics.contains(line), "no {line} in {metrics}");
    }
    // A reload that does not change a limit keeps what was used.
    let changed = TOML.replace("requests = 3\n", "requests = 9\n");
    write(dir.path(), "fanin.toml", &format!("[server]\nlisten = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\n{changed}"));
    serving.signal("-HUP");
    serving.logged("reloaded");
    assert_eq!(from("10.0.0.1", "/a").status(), 429);
    assert_eq!(from("10.0.0.4", "/b").status(), 200);
}
