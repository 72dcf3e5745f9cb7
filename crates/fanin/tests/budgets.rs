//! Budgets of routes, and what a change does to the worst case: `fanin check`, `fanin serve` and a reload, on copies of the examples.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{Serving, fanin, root, run};
use serde_json::Value;
use tempfile::TempDir;

const EXAMPLES: [&str; 4] = ["antispam", "orders", "shop", "vacancies"];

fn example(name: &str) -> PathBuf {
    root().join("examples").join(name)
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("made");
    for entry in fs::read_dir(from).expect("a folder") {
        let from = entry.expect("an entry").path();
        let to = to.join(from.file_name().expect("a name"));
        if from.is_dir() {
            copy_folder(&from, &to);
        } else {
            fs::copy(&from, &to).expect("copied");
        }
    }
}

/// A copy of an example with a part of a file replaced.
fn changed(name: &str, file: &str, from: &str, to: &str) -> TempDir {
    let dir = tempfile::tempdir().expect("a folder");
    copy_folder(&example(name), dir.path());
    replace(dir.path(), file, from, to);
    dir
}

fn replace(dir: &Path, file: &str, from: &str, to: &str) {
    let path = dir.join(file);
    let text = fs::read_to_string(&path).expect("read");
    assert_eq!(text.matches(from).count(), 1, "{from} in {file}");
    fs::write(path, text.replace(from, to)).expect("written");
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of text")
}

/// What `check --json` tells, with further options.
fn told(dir: &Path, options: &[&str]) -> (Option<i32>, Value) {
    let (code, out, err) = run(&[&["check", "--json", text(dir)], options].concat());
    assert_eq!(err, "");
    (code, serde_json::from_str(&out).expect("JSON"))
}

/// The number of the line of a file that has a text.
fn line_of(dir: &Path, file: &str, part: &str) -> usize {
    let all = fs::read_to_string(dir.join(file)).expect("read");
    1 + all.lines().position(|line| line.contains(part)).unwrap_or_else(|| panic!("no {part} in {file}"))
}

#[test]
fn the_examples_have_budgets_and_keep_them() {
    for name in EXAMPLES {
        let config = fs::read_to_string(example(name).join("fanin.toml")).expect("read");
        assert!(config.contains("\nbudget = {"), "{name}");
        let (code, told) = told(&example(name), &[]);
        assert_eq!((code, &told["ok"]), (Some(0), &Value::Bool(true)), "{name}: {told}");
    }
}

/// Each with a call for each item where one call was enough: the error has the budget's line and names the line of the call and the loop.
#[test]
fn a_call_for_each_item_exceeds_the_budget_of_each_example() {
    let cases = [
        (
            "vacancies",
            "flows/vacancies.star",
            "    return vacancies.get(\"/vacancies\", query = {\"ids\": found[\"ids\"]}, returns = PAGE)\n",
            "    return [vacancies.get(\"/vacancies/{id}\", params = {\"id\": id}) for id in found[\"ids\"]]\n",
            "calls = 2,",
            "GET /vacancies: up to 1 + n calls, but its budget is 2; too many: vacancies.get \"/vacancies/{id}\" in flows/vacancies.star:LINE, \
             for each item of found[\"ids\"] (flows/vacancies.star:LINE)",
        ),
        (
            "orders",
            "flows/orders.star",
            "    items = db.items([order[\"id\"] for order in orders])\n",
            "    items = [item for order in orders for item in db.items([order[\"id\"]])]\n",
            "calls = 3,",
            "GET /orders: up to 2 + n calls, but its budget is 3; too many: db.items in flows/orders.star:LINE, for each item of orders \
             (flows/orders.star:LINE)",
        ),
        (
            "shop",
            "flows/products.star",
            "    offers = recommendations.offers(ids, optional = True)\n",
            "    offers = [recommendations.offers([id], optional = True) for id in ids][0]\n",
            "calls = 16,",
            "POST /products: up to 15 + n calls, but its budget is 16; too many: recommendations.offers in flows/products.star:LINE, for each \
             item of ids (flows/products.star:LINE)",
        ),
        (
            "antispam",
            "flows/check.star",
            "    score = BIAS\n",
            "    score = BIAS + len([words.infer([float(len(line))], optional = True) for line in req.text.split(\"\\n\")])\n",
            "calls = 10,",
            "POST /check: up to 10 + n calls, but its budget is 10; too many: words.infer in flows/check.star:LINE, for each item of \
             req.text.split(\"\\n\") (flows/check.star:LINE)",
        ),
    ];
    for (name, file, from, to, budget, expected) in cases {
        let dir = changed(name, file, from, to);
        let (code, told) = told(dir.path(), &[]);
        assert_eq!(code, Some(1), "{name}: {told}");
        let found: Vec<&Value> = told["diagnostics"].as_array().expect("a list").iter().collect();
        let [found] = found.as_slice() else { panic!("{name}: {told}") };
        let line = line_of(dir.path(), file, to.lines().next().expect("a line"));
        assert_eq!(found["message"], expected.replace("LINE", &line.to_string()).as_str(), "{name}");
        assert_eq!(found["line"], line_of(dir.path(), "fanin.toml", budget), "{name}: {found}");
        assert!(found["file"].as_str().is_some_and(|file| file.ends_with("fanin.toml")), "{found}");
        assert!(found["hint"].as_str().is_some_and(|hint| hint.contains("request all items in one call")), "{found}");
    }
}

#[test]
fn the_plan_of_a_route_above_its_budget_is_shown() {
    let dir = changed(
        "vacancies",
        "flows/vacancies.star",
        "    return vacancies.get(\"/vacancies\", query = {\"ids\": found[\"ids\"]}, returns = PAGE)\n",
        "    return [vacancies.get(\"/vacancies/{id}\", params = {\"id\": id}) for id in found[\"ids\"]]\n",
    );
    let (code, out, err) = run(&["check", "--plan", text(dir.path())]);
    assert_eq!(code, Some(1));
    assert!(out.contains("calls    at most 1 + 1 per item of L1"), "{out}");
    assert!(err.contains("1 error") && err.contains("up to 1 + n calls"), "{err}");
    // With another error in the flow there is no plan, and the budget cannot be judged.
    replace(dir.path(), "flows/vacancies.star", "def vacancy(req):", "def vacancy(req:");
    let (code, out, err) = run(&["check", "--plan", text(dir.path())]);
    assert_eq!((code, out.as_str()), (Some(1), ""));
    assert!(!err.contains("budget is"), "{err}");
}

#[test]
fn what_cannot_be_followed_cannot_be_proved() {
    let dir = changed(
        "vacancies",
        "flows/vacancies.star",
        "    return vacancies.get(\"/vacancies\", query = {\"ids\": found[\"ids\"]}, returns = PAGE)\n",
        "    return {\"a\": search_or_suggest, \"b\": vacancy}[found[\"how\"]](req)\n",
    );
    let (code, _, err) = run(&["check", text(dir.path())]);
    assert_eq!(code, Some(1));
    let line = line_of(dir.path(), "flows/vacancies.star", "found[\"how\"]");
    let why = format!(
        "GET /vacancies: the budget cannot be proved, because flows/vacancies.star:{line} calls a value that is not known before it runs"
    );
    assert!(err.contains(&why) && err.contains("or remove `budget`"), "{err}");
}

/// A service of which the flow calls nothing.
fn quiet() -> TempDir {
    let dir = tempfile::tempdir().expect("a folder");
    let toml = "[server]\nlisten = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\nreload = false\n\n\
                [upstreams.users]\nurl = \"http://127.0.0.1:1\"\n\n\
                [[routes]]\npath = \"/page\"\nflow = \"flow.star:page\"\nbudget = { calls = 0 }\n";
    fs::write(dir.path().join("fanin.toml"), toml).expect("written");
    fs::write(dir.path().join("flow.star"), "def page(req):\n    return {\"calls\": \"none\"}\n").expect("written");
    dir
}

const LOUD: &str = "load(\"@upstreams\", \"users\")\n\ndef page(req):\n    return users.get(\"/me\")\n";

#[test]
fn a_configuration_above_its_budget_is_not_served() {
    let dir = quiet();
    fs::write(dir.path().join("flow.star"), LOUD).expect("written");
    let (code, _, err) = run(&["serve", text(dir.path())]);
    assert_eq!(code, Some(1));
    assert!(err.contains("up to 1 call, but its budget is 0") && err.contains("fanin.toml:12:20"), "{err}");
}

#[cfg(unix)]
#[test]
fn a_reload_above_its_budget_keeps_the_old_configuration() {
    let dir = quiet();
    let serving = Serving::start(dir.path());
    assert!(serving.get("/page").contains("none"));
    fs::write(dir.path().join("flow.star"), LOUD).expect("written");
    serving.signal("-HUP");
    serving.logged("up to 1 call, but its budget is 0");
    assert!(serving.get("/page").contains("none"), "the old one keeps serving");
    replace(dir.path(), "fanin.toml", "calls = 0", "calls = 1");
    serving.signal("-HUP");
    serving.logged("reloaded");
    assert!(!serving.get("/page").contains("none"));
    serving.signal("-TERM");
    assert_eq!(serving.end().0, Some(0));
}

/// The shop before and after a change of several routes.
fn shops() -> (TempDir, TempDir) {
    let before = tempfile::tempdir().expect("a folder");
    copy_folder(&example("shop"), before.path());
    let after = changed(
        "shop",
        "flows/ways.star",
        "    offers = recommended(ids)\n    return {\n",
        "    offers = [recommended([id]) for id in ids][0]\n    return {\n",
    );
    replace(
        after.path(),
        "fanin.toml",
        "path = \"/products/{id}\"",
        "method = [\"GET\", \"POST\"]\npath = \"/products/{key}\"",
    );
    replace(after.path(), "flows/products.star", "req.params[\"id\"]", "req.params[\"key\"]");
    replace(after.path(), "fanin.toml", "path = \"/parts.js\"", "path = \"/client.js\"");
    // One round less.
    replace(
        after.path(),
        "flows/ways.star",
        "    attributes = called_mask(req.body[\"recommendation_mask\"])\n",
        "    attributes = []\n",
    );
    (before, after)
}

#[test]
fn a_change_is_shown_route_by_route() {
    let (before, after) = shops();
    let arguments = ["check", "--plan", "--against", text(before.path()), text(after.path())];
    let (code, out, err) = run(&arguments);
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    let line = line_of(after.path(), "flows/ways.star", "recommended([id])");
    for part in [
        "| **worse** | `POST /ways/parallel` | ",
        "→ **",
        "| added | `POST /products/{key}` | 2 | 5 | 0 |",
        "| added | `GET /client.js` | ",
        "| removed | `GET /parts.js` | ",
        "| better | `POST /ways/sequence` | ",
        "**Worse** `POST /ways/parallel`",
        "- added: `recommendations.get \"/recommendations\"` in `flows/ways.star:",
        &format!("for each item of `ids` (`flows/ways.star:{line}`), called by `parallel` in `flows/ways.star:{line}`"),
        "5 routes are as before.",
        "`n` is the number of items of a loop",
    ] {
        assert!(out.contains(part), "no {part} in\n{out}");
    }
    assert!(!out.contains("`GET /products/{key}`"), "its parameter is named otherwise, that is all:\n{out}");
    let summary = "fanin-plan: worse=1 better=1 changed=0 added=2 removed=1 same=5";
    assert_eq!(out.lines().last(), Some(format!("`{summary}`").as_str()));

    let (code, _, err) = run(&[&arguments[..], &["--deny-worse"]].concat());
    assert_eq!(code, Some(1));
    assert!(err.starts_with("error: the worst case of a route is worse than in "), "{err}");
    let back = ["check", "--plan", "--deny-worse", "--against", text(before.path()), text(before.path())];
    let (code, out, _) = run(&back);
    assert_eq!(code, Some(0));
    assert!(out.contains("No route does more or fewer calls than before."), "{out}");
    assert!(out.ends_with("`fanin-plan: worse=0 better=0 changed=0 added=0 removed=0 same=8`\n"), "{out}");
}

#[test]
fn programs_get_the_change_as_json() {
    let (before, after) = shops();
    let (code, told) = told(after.path(), &["--plan", "--deny-worse", "--against", text(before.path())]);
    assert_eq!((code, &told["ok"]), (Some(1), &Value::Bool(false)));
    assert_eq!(told["summary"]["worse"], 1);
    let routes = told["changes"].as_array().expect("a list");
    let route = |name: &str| routes.iter().find(|route| route["route"] == name).expect("the route");
    let worse = route("POST /ways/parallel");
    assert_eq!(worse["kind"], "worse");
    assert!(worse["before"]["calls"].is_u64(), "{worse}");
    assert!(worse["after"]["calls"].as_str().is_some_and(|calls| calls.ends_with(" + n")), "{worse}");
    assert_eq!(worse["added"][0]["call"], "recommendations.get \"/recommendations\"");
    let added = route("GET /client.js");
    assert_eq!((&added["kind"], &added["before"]), (&Value::from("added"), &Value::Null));
    assert_eq!(added["after"]["complete"], true);
}

/// The budget's error comes with the comparison, which shows why.
#[test]
fn a_change_above_the_budget_is_compared_too() {
    let dir = changed(
        "orders",
        "flows/orders.star",
        "    items = db.items([order[\"id\"] for order in orders])\n",
        "    items = [item for order in orders for item in db.items([order[\"id\"]])]\n",
    );
    let (code, out, err) = run(&["check", "--plan", "--against", text(&example("orders")), text(dir.path())]);
    assert_eq!(code, Some(1));
    assert!(err.contains("its budget is 3"), "{err}");
    assert!(out.contains("| **worse** | `GET /orders` | 3 | 3 → **2 + n** | 0 |"), "{out}");
    // And the other way round: the old folder may be above its budget.
    let (code, out, err) = run(&["check", "--plan", "--against", text(dir.path()), text(&example("orders"))]);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    assert!(out.contains("| better | `GET /orders` | 3 | 2 + n → **3** | 0 |"), "for many items:\n{out}");
}

#[test]
fn a_folder_that_cannot_be_compared_with_is_one_error() {
    let good = example("vacancies");
    let empty = tempfile::tempdir().expect("a folder");
    let broken = changed("vacancies", "flows/vacancies.star", "def vacancy(req):", "def vacancy(req:");
    replace(broken.path(), "fanin.toml", "timeout = \"250ms\"", "timeout = 250");
    for (old, parts) in [
        (Path::new("/nowhere/at/all"), ["/nowhere/at/all", "cannot be read"]),
        (empty.path(), ["fanin.toml", "cannot be read"]),
        (broken.path(), ["fanin.toml:6:11: upstreams.search.timeout", "and 1 more"]),
    ] {
        let (code, out, err) = run(&["check", "--plan", "--against", text(old), text(&good)]);
        assert_eq!((code, out.as_str()), (Some(1), ""), "{err}");
        assert!(err.ends_with("1 error\n") && err.contains("--against has no plan to compare with"), "{err}");
        parts.iter().for_each(|part| assert!(err.contains(part), "no {part} in {err}"));
    }
    // A new folder that is wrong is told as ever.
    let (code, out, err) = run(&["check", "--plan", "--against", text(&good), text(broken.path())]);
    assert_eq!((code, out.as_str()), (Some(1), ""));
    assert!(err.contains("2 errors") && !err.contains("--against"), "{err}");
    for arguments in [&["--against", "x"][..], &["--plan", "--deny-worse"]] {
        let output = fanin(&[&["check"], arguments].concat()).output().expect("the program runs");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    }
}

/// docs/how-to/review-changes.md: its service, the change that it shows, and what is told of it.
#[test]
fn the_guide_shows_what_is_told() {
    let page = fs::read_to_string(root().join("docs/how-to/review-changes.md")).expect("the page");
    let block = |start: &str| {
        let (_, after) = page.split_once(&format!("```{start}")).unwrap_or_else(|| panic!("no {start}"));
        after.split_once("```").expect("an end").0
    };
    let dir = tempfile::tempdir().expect("a folder");
    for folder in ["base/my-service", "my-service"] {
        fs::create_dir_all(dir.path().join(folder).join("flows")).expect("made");
        fs::write(dir.path().join(folder).join("fanin.toml"), block("toml\n")).expect("written");
        fs::write(dir.path().join(folder).join("flows/page.star"), block("python\n")).expect("written");
    }
    let told = |arguments: &[&str]| {
        let output = fanin(arguments).current_dir(dir.path()).output().expect("the program runs");
        let text = |bytes| String::from_utf8(bytes).expect("text");
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    assert_eq!(told(&["check", "my-service"]).0, Some(0));
    let diff = block("diff\n");
    let side = |sign: char| diff.lines().find_map(|line| line.strip_prefix(sign)).expect("a line");
    replace(dir.path(), "my-service/flows/page.star", side('-'), side('+'));
    let (code, _, err) = told(&["check", "my-service"]);
    assert_eq!((code, err.as_str()), (Some(1), block("text\n")), "{err}");
    let (code, out, _) = told(&["check", "--plan", "--against", "base/my-service", "my-service"]);
    assert_eq!((code, out.as_str()), (Some(1), block("markdown\n")), "{out}");
}
