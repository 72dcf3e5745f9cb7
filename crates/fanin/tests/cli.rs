//! The program's commands, as a user runs them.

mod common;

use serde_json::Value;
use tempfile::TempDir;

use common::{Serving, run};

/// A folder with a route `/echo/{id}` that calls nothing, on free ports.
fn service() -> TempDir {
    let dir = tempfile::tempdir().expect("a folder");
    let toml = "[server]\nlisten = '127.0.0.1:0'\nadmin = '127.0.0.1:0'\nworkers = 1\n\
                [[routes]]\npath = '/echo/{id}'\nflow = 'echo.star:echo'\n";
    std::fs::write(dir.path().join("fanin.toml"), toml).expect("written");
    std::fs::write(dir.path().join("echo.star"), "def echo(req):\n    return {\"id\": req.params[\"id\"]}\n")
        .expect("written");
    dir
}

#[test]
fn the_schema_is_json() {
    let (code, out, err) = run(&["schema"]);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    let schema: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(schema["title"], "fanin.toml");
}

#[test]
fn the_version_and_help_are_told() {
    assert_eq!(run(&["--version"]).1.trim(), concat!("fanin ", env!("CARGO_PKG_VERSION")));
    let (code, out, _) = run(&["demo", "--help"]);
    assert_eq!(code, Some(0));
    assert!(out.contains("fanin demo shop"), "{out}");
    assert_eq!(run(&["serve", "--nothing"]).0, Some(2));
}

#[test]
fn the_examples_are_all_right() {
    for example in ["examples/vacancies", "examples/shop"] {
        let (code, out, err) = run(&["check", example]);
        assert_eq!((code, out.trim()), (Some(0), format!("{example} is all right").as_str()), "{err}");
    }
}

#[test]
fn check_tells_everything_with_its_place() {
    let dir = service();
    let file = dir.path().join("fanin.toml");
    std::fs::write(&file, "[server]\nlimits = 1\n[upstreams.a]\nurl = 'nonsense'\n").expect("written");
    let path = dir.path().to_str().expect("text");

    let (code, out, err) = run(&["check", path]);
    assert_eq!((code, out.as_str()), (Some(1), ""));
    assert!(err.contains("fanin.toml:2:1") && err.contains("did you mean `limit`?"), "{err}");
    assert!(err.contains("fanin.toml:4:7") && err.contains("2 errors"), "{err}");

    let (code, out, err) = run(&["check", "--json", path]);
    assert_eq!((code, err.as_str()), (Some(1), ""));
    let told: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(told["ok"], false);
    assert_eq!(told["diagnostics"][0]["line"], 2);
    assert_eq!(told["diagnostics"][1]["file"], file.to_str().expect("text"));

    let (code, _, err) = run(&["serve", path]);
    assert_eq!(code, Some(1));
    assert!(err.contains("fanin.toml:2:1"), "{err}");
    assert_eq!(run(&["check", "/nowhere"]).0, Some(1));
}

#[test]
fn check_finds_what_is_wrong_with_flows() {
    let dir = service();
    std::fs::write(dir.path().join("echo.star"), "def echo(req):\n    return req.params[\"id\" + \n").expect("written");
    let (code, _, err) = run(&["check", dir.path().to_str().expect("text")]);
    assert_eq!(code, Some(1));
    assert!(err.contains("echo.star:"), "{err}");
}

#[cfg(unix)]
#[test]
fn it_serves_until_sigterm() {
    let dir = service();
    let serving = Serving::start(dir.path());
    let answer = serving.get("/echo/seven");
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("seven"), "{answer}");
    assert!(serving.get("/nothing").starts_with("HTTP/1.1 404 "));
    serving.signal("-TERM");
    let (code, access) = serving.end();
    assert_eq!(code, Some(0));
    let lines: Vec<Value> = access.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines.len(), 2, "{access}");
    assert_eq!((&lines[0]["status"], &lines[1]["status"]), (&Value::from(200), &Value::from(404)));
}

#[cfg(unix)]
#[test]
fn sighup_loads_anew_and_refuses_what_is_wrong() {
    let dir = service();
    let file = dir.path().join("fanin.toml");
    let text = std::fs::read_to_string(&file).expect("read").replace("[server]", "[server]\nreload = false");
    std::fs::write(&file, &text).expect("written");
    let serving = Serving::start(dir.path());
    assert!(serving.get("/echo/a").starts_with("HTTP/1.1 200 "));

    let second = "[[routes]]\npath = '/second/{id}'\nflow = 'echo.star:echo'\n";
    std::fs::write(&file, format!("{text}{second}")).expect("written");
    serving.signal("-HUP");
    serving.logged("reloaded");
    assert!(serving.get("/second/b").starts_with("HTTP/1.1 200 "));
    std::fs::write(&file, format!("{text}wrong = 1\n")).expect("written");
    serving.signal("-HUP");
    serving.logged("unknown key `wrong` in routes[0]");
    assert!(serving.get("/second/b").starts_with("HTTP/1.1 200 "), "the old one keeps serving");
    serving.signal("-TERM");
    assert_eq!(serving.end().0, Some(0));
}

#[test]
fn both_demos_show_what_they_promise() {
    for (example, calls) in [("vacancies", 8), ("shop", 12)] {
        let (code, out, err) = run(&["demo", example, "--once"]);
        assert_eq!(code, Some(0), "{out}\n{err}");
        assert!(!out.contains("FAILED"), "{out}");
        let bars = out.lines().filter(|line| line.contains('█') && line.contains(".star:")).count();
        assert!(bars >= calls, "{bars} calls in\n{out}");
        assert!(out.contains("after "), "{out}");
    }
}
