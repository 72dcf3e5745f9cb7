//! What `fanin check` says, word for word: each `.star` file below `tests/ui` is checked, and what is told stands in the file
//! beside it. `UPDATE_EXPECT=1` writes that anew.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The configuration of every case that has none of its own.
const TOML: &str = r#"[server]
listen = "127.0.0.1:0"

[upstreams.users]
url = "http://127.0.0.1:1"

[upstreams.catalog]
url = "http://127.0.0.1:2"

[upstreams.catalog.operations.product]
path = "/products/{id}"

[upstreams.orders]
url = "http://127.0.0.1:3"

[upstreams.orders.operations.place]
method = "POST"
path = "/orders"

[[routes]]
path = "/page"
flow = "flow.star:page"
"#;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ui")
}

/// What the program prints for a folder, errors first, and its exit status.
fn told(dir: &Path, arguments: &[&str]) -> (String, i32) {
    let output = Command::new(env!("CARGO_BIN_EXE_fanin"))
        .arg("check")
        .args(arguments)
        .current_dir(dir)
        .env("NO_COLOR", "1")
        .env_remove("RUST_LOG")
        .output()
        .expect("the program runs");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    let both = format!("{}{}", text(output.stderr), text(output.stdout));
    let lines: Vec<&str> = both.lines().map(str::trim_end).collect();
    (format!("{}\n", lines.join("\n")), output.status.code().expect("a status"))
}

/// A folder with one flow file and the common configuration.
fn service(flow: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::write(dir.path().join("fanin.toml"), TOML).expect("written");
    std::fs::write(dir.path().join("flow.star"), flow).expect("written");
    dir
}

fn compare(expected: &Path, got: &str, wrong: &mut Vec<String>) {
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(expected, got).expect("written");
        return;
    }
    let wanted = std::fs::read_to_string(expected).unwrap_or_default();
    if wanted != got {
        wrong.push(format!("{}:\n--- expected\n{wanted}--- got\n{got}", expected.display()));
    }
}

/// Checks every case of a folder: files with the common configuration, folders with their own.
fn cases(folder: &str, arguments: &[&str]) {
    let mut names: Vec<PathBuf> = std::fs::read_dir(root().join(folder))
        .expect("the folder")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.is_dir() || path.extension().is_some_and(|extension| extension == "star"))
        .collect();
    names.sort();
    assert!(!names.is_empty());
    let mut wrong = Vec::new();
    for path in names {
        let (dir, expected) = if path.is_dir() {
            let expected = path.with_extension("txt");
            let (text, status) = told(&path, arguments);
            compare(&expected, &format!("{text}exit status {status}\n"), &mut wrong);
            continue;
        } else {
            (service(&std::fs::read_to_string(&path).expect("a flow")), path.with_extension("txt"))
        };
        let (text, status) = told(dir.path(), arguments);
        compare(&expected, &format!("{text}exit status {status}\n"), &mut wrong);
    }
    assert!(wrong.is_empty(), "UPDATE_EXPECT=1 writes these anew:\n{}", wrong.join("\n"));
}

#[test]
fn checks_say_what_they_should() {
    cases("check", &[]);
}

#[test]
fn plans_are_as_they_were() {
    cases("plan", &["--plan"]);
}

#[test]
fn plans_of_the_examples_are_as_they_were() {
    let mut wrong = Vec::new();
    for example in ["vacancies", "shop"] {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(example);
        let (text, status) = told(&dir, &["--plan"]);
        assert_eq!(status, 0, "{text}");
        compare(&root().join(format!("{example}.plan")), &text, &mut wrong);
    }
    assert!(wrong.is_empty(), "UPDATE_EXPECT=1 writes these anew:\n{}", wrong.join("\n"));
}

#[test]
fn warnings_fail_only_if_denied() {
    let dir = service("def page(req):\n    x = 1\n    return {}\n");
    assert_eq!(told(dir.path(), &[]).1, 0);
    assert_eq!(told(dir.path(), &["--deny-warnings"]).1, 1);
    let silent = service("def page(req):\n    x = 1    # fanin: allow(unused-variable)\n    return {}\n");
    assert_eq!(told(silent.path(), &["--deny-warnings"]), (".  is all right\n".replace("  ", " "), 0));
}

#[test]
fn programs_get_all_of_it() {
    let dir = service("load(\"@upstreams\", \"users\")\ndef page(req):\n    return len(1, 2)\n");
    let (text, status) = told(dir.path(), &["--json"]);
    assert_eq!(status, 1);
    let told_json: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(told_json["ok"], false);
    let found = told_json["diagnostics"].as_array().expect("a list");
    assert_eq!(found.len(), 2, "{text}");
    assert_eq!(
        found[0],
        serde_json::json!({
            "severity": "warning", "file": "flow.star", "line": 1, "column": 20, "end_line": 1, "end_column": 27,
            "message": "users is loaded and never used", "hint": null, "lint": "unused-load",
        })
    );
    assert_eq!((&found[1]["line"], &found[1]["lint"]), (&Value::from(3), &Value::Null));

    let dir = service("load(\"@upstreams\", \"users\")\ndef page(req):\n    return users.get(\"/me\")\n");
    let (text, status) = told(dir.path(), &["--plan", "--json"]);
    assert_eq!(status, 0);
    let plan: Value = serde_json::from_str(&text).expect("JSON");
    let page = &plan["plan"][0];
    assert_eq!((&page["route"], &page["rounds"]["constant"]), (&Value::from("GET /page"), &Value::from(1)));
    assert_eq!(page["steps"][0]["upstreams"], serde_json::json!(["users"]));
    assert_eq!((&page["complete"], &page["effects"]), (&Value::from(true), &Value::from(0)));
}

/// The examples of docs/check.md: a flow, then what is told of it, or its plan.
#[test]
fn the_documentation_shows_what_is_told() {
    let page = root().join("../../../../docs/check.md");
    let text = std::fs::read_to_string(&page).expect("the page");
    let mut written = String::new();
    let mut rest = text.as_str();
    let mut shown = 0;
    while let Some((before, after)) = rest.split_once("```python\n") {
        let (flow, after) = after.split_once("```\n").expect("an end");
        let (kind, arguments): (_, &[&str]) =
            if after.starts_with("```plan\n") { ("plan", &["--plan"]) } else { ("text", &[]) };
        let (_, after) = after
            .split_once("```\n")
            .map_or_else(|| panic!("nothing told of\n{flow}"), |_| after.split_once('\n').expect("a line"));
        let (_, after) = after.split_once("```\n").expect("an end");
        let got = told(service(flow).path(), arguments).0;
        written.push_str(&format!("{before}```python\n{flow}```\n```{kind}\n{got}```\n"));
        shown += 1;
        rest = after;
    }
    written.push_str(rest);
    assert!(shown > 8);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&page, written).expect("written");
    } else {
        assert!(written == text, "docs/check.md is not up to date: run with UPDATE_DOCS=1");
    }
}
