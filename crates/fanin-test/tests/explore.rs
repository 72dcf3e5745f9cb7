//! Explorations: what is varied, what is found, how it is reported, and that the written test fails until the flow is right.

use std::fs;
use std::path::Path;

use fanin_test::explore::{ExploreOptions, ExploreRun, Finding, json, text};
use fanin_test::{RunOptions, Suite};

const CONFIG: &str = r#"
[upstreams.catalog]
url = "http://catalog"
timeout = "100ms"
[upstreams.stars]
url = "http://stars"
timeout = "50ms"
[upstreams.bank]
url = "http://bank"
timeout = "100ms"
[[routes]]
path = "/page/{id}"
flow = "flows/page.star:page"
timeout = "300ms"
[[routes]]
method = "POST"
path = "/pay"
flow = "flows/page.star:pay"
timeout = "300ms"
"#;

const PAY: &str = r#"
def pay(req):
    return bank.post("/payments", json = {"amount": 1}, returns = "object")
"#;

const TESTS: &str = r#"
load("@test", "get", "post", "stub")
load("@upstreams", "bank", "catalog", "stars")

def setup():
    stub(catalog.get, "/products/{id}", answer = {"name": "Lamp", "tags": ["new"]}, delay = "10ms")
    stub(stars.get, "/stars", answer = {"average": 4}, delay = "10ms")
    stub(bank.post, "/payments", answer = {"id": 1}, delay = "10ms")

def explore_page():
    get("/page/7")

def explore_pay():
    post("/pay")
"#;

fn page(body: &str) -> String {
    format!("load(\"@upstreams\", \"bank\", \"catalog\", \"stars\")\n\ndef page(req):\n{body}{PAY}")
}

const RIGHT: &str = r#"    product = catalog.get("/products/{id}", params = req.params, ok = [404], returns = {"name": "string", "tags": ["string"]})
    rating = stars.get("/stars", optional = True, returns = {"average": "float"})
    if product.status == 404:
        abort(404, "no such product")
    return {"name": product["name"], "tags": product["tags"], "stars": rating["average"]}
"#;

/// The same without a thought of products that do not exist.
fn plain() -> String {
    let guard = "    if product.status == 404:\n        abort(404, \"no such product\")\n";
    assert!(RIGHT.contains(guard));
    RIGHT.replace(guard, "").replace("ok = [404], ", "")
}

fn service(dir: &Path, flow: &str, tests: &str) -> Suite {
    fs::create_dir_all(dir.join("flows")).unwrap();
    fs::write(dir.join("fanin.toml"), CONFIG).unwrap();
    fs::write(dir.join("flows/page.star"), flow).unwrap();
    fs::write(dir.join("flows/page_test.star"), tests).unwrap();
    Suite::load(dir).unwrap_or_else(|error| panic!("{error:?}"))
}

fn explored(flow: &str, tests: &str, options: &ExploreOptions) -> ExploreRun {
    let dir = tempfile::tempdir().unwrap();
    service(dir.path(), flow, tests).explore(options).unwrap()
}

fn findings(run: &ExploreRun) -> Vec<&Finding> {
    run.explorations.iter().flat_map(|one| &one.findings).collect()
}

#[test]
fn a_right_flow_has_no_finding_and_all_cases_are_tried() {
    let run = explored(&page(RIGHT), TESTS, &ExploreOptions::default());
    assert_eq!(run.found(), 0, "{}", text(&run));
    let page = &run.explorations[0];
    assert_eq!((page.name.as_str(), page.requests, page.is_complete, page.together), ("explore_page", 2, true, 4));
    assert_eq!(page.routes, ["GET /page/{id}"]);
    // Each of the two requests alone has a dozen outcomes.
    assert!(page.cases > 30, "{}", page.cases);
    assert!(text(&run).contains("cases: all, up to 4 deviations at once"), "{}", text(&run));
}

#[test]
fn a_failure_is_reported_once_with_its_line_and_as_a_test_that_fails() {
    let wrong =
        plain().replace(", \"tags\": [\"string\"]}", "}").replace("product[\"tags\"],", "product[\"tags\"][0],");
    let dir = tempfile::tempdir().unwrap();
    let suite = service(dir.path(), &page(&wrong), TESTS);
    let options = ExploreOptions { without: ["not-found".to_owned()].into(), ..ExploreOptions::default() };
    let run = suite.explore(&options).unwrap();
    let found = findings(&run);
    assert_eq!(found.len(), 1, "{}", text(&run));
    assert_eq!(found[0].invariant, "no-500");
    assert!(found[0].place.starts_with("flows/page.star:"), "{}", found[0].place);
    assert_eq!(found[0].deviations.len(), 1, "{:?}", found[0].deviations);
    assert!(found[0].others.iter().any(|other| other.contains("[] as tags")), "{:?}", found[0].others);
    let report = text(&run);
    for part in
        ["FOUND 1  no-500: status 500", "when catalog.get /products/7", "def test_explored_page_1():", "1 finding in"]
    {
        assert!(report.contains(part), "{part}: {report}");
    }
    assert_eq!(json(&run)["explorations"][0]["findings"][0]["invariant"], "no-500");

    assert_eq!(suite.write_tests(&run).unwrap(), ["flows/page_test.star"]);
    let again = Suite::load(dir.path()).unwrap_or_else(|error| panic!("{error:?}"));
    let tests = again.run(&RunOptions::default()).unwrap();
    let failures: Vec<&str> =
        tests.outcomes.iter().filter_map(|one| Some(one.failure.as_ref()?.message.as_str())).collect();
    assert_eq!(failures, ["the flow fails: it is not true"]);
    fs::write(dir.path().join("flows/page.star"), page(RIGHT)).unwrap();
    let right = Suite::load(dir.path()).unwrap_or_else(|error| panic!("{error:?}"));
    assert_eq!(right.run(&RunOptions::default()).unwrap().failed(), 0);
}

#[test]
fn two_deviations_are_found_where_one_is_not_enough() {
    let wrong = page(
        r#"    one = catalog.get("/products/{id}", params = req.params, ok = [404], optional = True, returns = "object")
    rating = stars.get("/stars", optional = True, returns = "object")
    if one.failed and rating.failed:
        fail("nothing is there")
    return {"one": one, "stars": rating}
"#,
    );
    let run = explored(&wrong, TESTS, &ExploreOptions::default());
    let found = findings(&run);
    assert_eq!(found.len(), 1, "{}", text(&run));
    assert_eq!(found[0].deviations.len(), 2, "{}", text(&run));
    assert!(found[0].what.contains("nothing is there"), "{}", found[0].what);
    let off = ExploreOptions { without: ["no-500".to_owned()].into(), ..ExploreOptions::default() };
    let run = explored(&wrong, TESTS, &off);
    assert!(findings(&run).iter().all(|one| one.invariant != "no-500"), "{}", text(&run));
}

#[test]
fn a_status_that_an_optional_call_changes_is_found() {
    let wrong = RIGHT.replace("    return", "    if rating.failed:\n        abort(503, \"no stars\")\n    return");
    let run = explored(&page(&wrong), TESTS, &ExploreOptions::default());
    assert_eq!(
        findings(&run).iter().map(|one| one.invariant.as_str()).collect::<Vec<_>>(),
        ["optional"],
        "{}",
        text(&run)
    );
}

#[test]
fn what_a_backend_does_not_have_is_no_failure() {
    let run = explored(&page(&plain()), TESTS, &ExploreOptions::default());
    let found = findings(&run);
    assert_eq!(found.iter().map(|one| one.invariant.as_str()).collect::<Vec<_>>(), ["not-found"], "{}", text(&run));
    assert_eq!(found[0].what, "status 502 although catalog.get /products/7 is only answered with 404");
}

#[test]
fn an_effect_that_is_sent_again_is_found() {
    let wrong = page(RIGHT).replace(
        "    return bank.post(\"/payments\", json = {\"amount\": 1}, returns = \"object\")",
        "    paid = bank.post(\"/payments\", json = {\"amount\": 1}, optional = True, returns = \"object\")\n    if paid.failed:\n        paid = bank.post(\"/payments\", json = {\"amount\": 1}, returns = \"object\")\n    return paid",
    );
    let run = explored(&wrong, TESTS, &ExploreOptions::default());
    let found = findings(&run);
    assert_eq!(found.len(), 1, "{}", text(&run));
    assert_eq!(
        (found[0].invariant.as_str(), found[0].what.as_str()),
        ("effects-once", "the effect bank.post /payments was sent 2 times")
    );
    // A payment that was refused was not made.
    assert!(!found[0].others.iter().chain(&found[0].deviations).any(|one| one.ends_with("is refused")), "{found:?}");
}

#[test]
fn beyond_the_bound_cases_are_drawn_at_random_by_the_seed() {
    let options = ExploreOptions { max_cases: 20, random_cases: 15, seed: 3, ..ExploreOptions::default() };
    let run = explored(&page(RIGHT), TESTS, &options);
    let page_run = &run.explorations[0];
    assert!(!page_run.is_complete && page_run.random > 0 && page_run.cases <= 35, "{page_run:?}");
    assert!(text(&run).contains("not all;"), "{}", text(&run));
    let again = explored(&page(RIGHT), TESTS, &options);
    assert_eq!(again.explorations[0].cases, page_run.cases);
}

#[test]
fn own_invariants_and_bounds_are_held() {
    let tests = format!(
        "{TESTS}\ndef always(req, result):\n    if req.path == \"/page/7\" and result.status != 200:\n        fail(\"no page\")\n"
    );
    let run = explored(&page(RIGHT), &tests, &ExploreOptions::default());
    let found = findings(&run);
    assert!(!found.is_empty() && found.iter().all(|one| one.invariant == "assertions"), "{}", text(&run));
    assert!(found[0].test.contains(&"    always(found.sent, found)".to_owned()), "{:?}", found[0].test);
    let bound = ExploreOptions { max_calls: Some(1), route: Some("GET /page".to_owned()), ..ExploreOptions::default() };
    let run = explored(&page(RIGHT), TESTS, &bound);
    assert_eq!(run.explorations.len(), 1);
    assert_eq!(findings(&run)[0].invariant, "max-calls");
    assert!(findings(&run)[0].deviations.is_empty());
}
