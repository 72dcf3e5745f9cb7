//! `fanin test` as a user runs it: the examples' own tests pass, and what fails is told.

mod common;

use common::{root, run};

fn example(name: &str) -> String {
    root().join("examples").join(name).display().to_string()
}

#[test]
fn tests_of_the_examples_pass() {
    for name in ["vacancies", "shop", "orders", "antispam"] {
        let (code, out, err) = run(&["test", &example(name)]);
        assert_eq!(code, Some(0), "{name}: {out}{err}");
        assert!(out.contains(" passed, 0 failed in "), "{out}");
    }
}

#[test]
fn failures_are_told_in_every_format() {
    let dir = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).expect("written");
    write("fanin.toml", "[upstreams.a]\nurl = 'http://a'\n[[routes]]\npath = '/'\nflow = 'page.star:page'\n");
    write("page.star", "load('@upstreams', 'a')\ndef page(req):\n    return a.get('/')\n");
    let folder = dir.path().to_str().expect("text");
    let (code, _, err) = run(&["test", folder]);
    assert_eq!(code, Some(1));
    assert!(err.contains("there are no tests: write functions test_...() into a file _test.star"), "{err}");
    write(
        "page_test.star",
        "load('@test', 'assert_equal', 'get', 'stub')\nload('@upstreams', 'a')\n\
         def test_good():\n    stub(a, answer = 1)\n    assert_equal(get('/').json, 1)\n\
         def test_bad():\n    stub(a, answer = 1)\n    assert_equal(get('/').json, 2)\n",
    );
    let (code, out, _) = run(&["test", folder]);
    assert_eq!(code, Some(1));
    assert!(out.contains("FAIL  test_bad") && out.contains("it is 1; expected 2"), "{out}");
    assert!(out.contains("page_test.star:8:5"), "{out}");
    let report = dir.path().join("report.xml");
    let junit = report.to_str().expect("text");
    let (code, out, _) = run(&["test", folder, "--format", "json", "--junit", junit]);
    assert_eq!(code, Some(1));
    let json: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!((&json["passed"], &json["failed"]), (&1.into(), &1.into()));
    assert!(std::fs::read_to_string(&report).expect("a report").contains("failures=\"1\""));
    assert_eq!(run(&["test", folder, "--filter", "good"]).0, Some(0));
    let (code, out, _) = run(&["test", folder, "--list"]);
    assert_eq!((code, out.as_str()), (Some(0), "page_test.star::test_good\npage_test.star::test_bad\n"));
    let (code, _, err) = run(&["test", folder, "--filter", "nothing"]);
    assert_eq!(code, Some(1));
    assert!(err.contains("no test's name contains \"nothing\""), "{err}");
    let to = dir.path().join("coverage");
    let to = to.to_str().expect("text");
    let coverage = ["--filter", "good", "--coverage", to, "--min-coverage", "100"];
    assert_eq!(run(&[&["test", folder][..], &coverage].concat()).0, Some(0));
    write("page_test.star", "def test_bad():\n    return 1 +\n");
    let (code, _, err) = run(&["test", folder]);
    assert_eq!(code, Some(1));
    assert!(err.contains("page_test.star:2:"), "{err}");
}

#[test]
fn a_flow_that_loads_the_module_of_tests_is_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::write(dir.path().join("fanin.toml"), "[[routes]]\npath = '/'\nflow = 'page.star:page'\n")
        .expect("written");
    std::fs::write(dir.path().join("page.star"), "load('@test', 'get')\ndef page(req):\n    return get('/')\n")
        .expect("written");
    let (code, _, err) = run(&["check", dir.path().to_str().expect("text")]);
    assert_eq!(code, Some(1));
    assert!(err.contains("@test is for tests: files that end in _test.star"), "{err}");
}
