//! The program's commands, as a user runs them.

mod common;

use serde_json::Value;
use tempfile::TempDir;

use common::{Serving, fanin, run};

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

#[test]
fn fmt_formats_files_in_place_and_check_names_them() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = |name: &str| dir.path().join(name);
    std::fs::create_dir_all(path("flows/.hidden")).expect("made");
    let (wrong, right) = ("x = f( 'a' )# why\n", "x = f(\"a\")  # why\n");
    for (name, text) in [("flows/a.star", wrong), ("b.star", right), ("flows/.hidden/c.star", wrong), ("d.txt", wrong)]
    {
        std::fs::write(path(name), text).expect("written");
    }
    let folder = dir.path().to_str().expect("text");
    let text = |name: &str| std::fs::read_to_string(path(name)).expect("text");

    let (code, out, err) = run(&["fmt", "--check", folder]);
    assert_eq!((code, out.trim(), err.as_str()), (Some(1), path("flows/a.star").to_str().expect("text"), ""));
    assert_eq!(text("flows/a.star"), wrong, "--check changes nothing");
    assert_eq!(run(&["fmt", folder]), (Some(0), String::new(), String::new()));
    assert_eq!((text("flows/a.star").as_str(), text("flows/.hidden/c.star").as_str()), (right, wrong));
    assert_eq!(run(&["fmt", "--check", folder]), (Some(0), String::new(), String::new()));

    std::fs::write(path("flows/a.star"), "x = (\n").expect("written");
    std::fs::write(path("b.star"), wrong).expect("written");
    let (code, _, err) = run(&["fmt", folder]);
    assert_eq!((code, text("flows/a.star").as_str(), text("b.star").as_str()), (Some(1), "x = (\n", right));
    assert!(err.contains("a.star:1:") && err.contains("1 error"), "{err}");
    assert_eq!(run(&["fmt", path("nothing.star").to_str().expect("text")]).0, Some(1));
}

#[test]
fn fmt_is_a_filter() {
    let formatted = |arguments: &[&str], text: &str| {
        let mut command = fanin(arguments);
        let mut child = command
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .expect("the program runs");
        // All of it fits into the pipe; the end closes it.
        std::io::Write::write_all(&mut child.stdin.take().expect("piped"), text.as_bytes()).expect("written");
        let output = child.wait_with_output().expect("it ends");
        (output.status.code(), String::from_utf8(output.stdout).expect("text"))
    };
    assert_eq!(formatted(&["fmt", "-"], "x=1"), (Some(0), "x = 1\n".to_owned()));
    assert_eq!(formatted(&["fmt", "-", "--check"], "x=1"), (Some(1), "-\n".to_owned()));
    assert_eq!(formatted(&["fmt", "-"], "x=="), (Some(1), String::new()));
}

#[test]
fn the_examples_are_formatted() {
    assert_eq!(run(&["fmt", "--check", "examples"]), (Some(0), String::new(), String::new()));
}
