//! `fanin new`: the project that it writes is formatted, checks, tests and serves.

mod common;

use common::{Serving, run};

#[test]
fn a_new_project_checks_tests_and_serves() {
    let dir = tempfile::tempdir().expect("a folder");
    let project = dir.path().join("my-shop");
    let path = project.to_str().expect("text");
    let (code, out, err) = run(&["new", path]);
    assert_eq!(code, Some(0), "{err}");
    assert!(out.contains("fanin serve"), "{out}");
    assert!(std::fs::read_to_string(project.join("README.md")).expect("a file").starts_with("# my-shop\n"));
    for command in [&["fmt", "--check", path][..], &["check", "--deny-warnings", path], &["test", path]] {
        let (code, out, err) = run(command);
        assert_eq!(code, Some(0), "{command:?}: {out}{err}");
    }
    let serving = Serving::with(&project, &[("LISTEN", "127.0.0.1:0"), ("ADMIN", "127.0.0.1:0")]);
    for (path, status, body) in [
        ("/products/1", "200", r#"{"product":{ "name": "Lamp", "price": 19.90 },"available":12}"#),
        ("/products/2", "200", r#"{"product":{ "name": "Desk", "price": 240.00 },"available":0}"#),
        ("/products/3", "404", "there is no such product"),
    ] {
        let answer = serving.get(path);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")) && answer.contains(body), "{answer}");
    }
}

#[test]
fn nothing_is_written_over() {
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::write(dir.path().join("mine"), "").expect("written");
    let (code, _, err) = run(&["new", dir.path().to_str().expect("text")]);
    assert_eq!(code, Some(1));
    assert!(err.contains("is there already and is not empty"), "{err}");
    assert_eq!(std::fs::read_dir(dir.path()).expect("a folder").count(), 1);
}

#[test]
fn shells_complete_commands() {
    for shell in ["bash", "zsh", "fish"] {
        let (code, out, _) = run(&["completions", shell]);
        assert!(code == Some(0) && out.contains("explain"), "{shell}: {out}");
    }
}
