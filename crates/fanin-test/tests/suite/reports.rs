//! Cases, filters, snapshots, coverage and reports.

use std::collections::BTreeMap;

use fanin_test::{RunOptions, report};

use crate::folder::{BOTH, Folder};

const TESTS: &str = "def setup():
    stub(a, answer = {'x': 1})
    stub(b, answer = 2)

def test_cases(one = each('p', 'q'), two = each(small = 1, large = 2), plain = 7):
    assert_equal(plain, 7)
    assert_true(two in [1, 2] and one in ['p', 'q'])

def test_wrong():
    assert_equal(get('/page/1').status, 201, '<&>')
";

#[test]
fn cases_are_all_combinations_in_order() {
    let run = Folder::new("", BOTH, TESTS).run();
    let names: Vec<&str> = run.outcomes.iter().map(|outcome| outcome.name.as_str()).collect();
    let cases = ["[\"p\", small]", "[\"p\", large]", "[\"q\", small]", "[\"q\", large]"];
    let expected: Vec<String> = cases.iter().map(|case| format!("test_cases{case}")).collect();
    assert_eq!(names[..4], expected);
    assert_eq!((names[4], run.failed()), ("test_wrong", 1));
}

#[test]
fn a_filter_chooses() {
    let options = RunOptions { filter: Some("[\"q\"".to_owned()), ..RunOptions::default() };
    let run = Folder::new("", BOTH, TESTS).run_with(&options);
    assert_eq!((run.outcomes.len(), run.filtered_out, run.failed()), (2, 3, 0));
}

#[test]
fn reports_say_the_same() {
    let run = Folder::new("", BOTH, TESTS).run();
    let text = report::text(&run, false);
    assert!(text.contains("FAIL  test_wrong") && text.contains("4 passed, 1 failed in "), "{text}");
    let tap = report::tap(&run);
    assert!(tap.starts_with("TAP version 14\n1..5\nok 1 - page_test.star::test_cases"), "{tap}");
    assert!(tap.contains("\nnot ok 5 - page_test.star::test_wrong\n# error: <&>: it is 200; expected 201"), "{tap}");
    let junit = report::junit(&run);
    assert!(junit.contains("<testsuites tests=\"5\" failures=\"1\""), "{junit}");
    assert!(junit.contains("<failure message=\"&lt;&amp;&gt;: it is 200; expected 201\">"), "{junit}");
    let json = report::json(&run);
    assert_eq!((&json["passed"], &json["failed"]), (&4.into(), &1.into()));
    assert_eq!(json["tests"][4]["place"], "page_test.star:12");
}

#[test]
fn snapshots_are_written_compared_and_removed() {
    let folder = Folder::new(
        "",
        BOTH,
        "def test_page():
    stub(a, answer = {'x': 1})
    stub(b, answer = 2)
    assert_snapshot(get('/page/1').json)
    assert_snapshot([1], 'list')
",
    );
    assert!(folder.fails().failure.unwrap().message.contains("run with --update to write it"));
    let update = RunOptions { update: true, ..RunOptions::default() };
    assert_eq!(folder.run_with(&update).written, ["page_test.snapshots.json"]);
    folder.passes();
    assert!(folder.run_with(&update).written.is_empty());
    let file = folder.path("page_test.snapshots.json");
    let mut stored: BTreeMap<String, serde_json::Value> =
        serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(stored["test_page: list"], serde_json::json!([1]));
    stored.insert("test_gone".to_owned(), 1.into());
    std::fs::write(&file, serde_json::to_vec(&stored).unwrap()).unwrap();
    assert_eq!(folder.run().unused_snapshots, ["page_test.star: test_gone"]);
    stored.insert("test_page".to_owned(), serde_json::json!({"one": {"x": 2}, "two": 2}));
    std::fs::write(&file, serde_json::to_vec(&stored).unwrap()).unwrap();
    let message = folder.fails().failure.unwrap().message;
    assert!(message.contains("[\"one\"][\"x\"] is 1; expected 2"), "{message}");
    assert_eq!(folder.run_with(&update).written.len(), 1);
    folder.passes();
}

#[test]
fn coverage_counts_lines_and_branches() {
    let folder = Folder::new(
        "",
        "def page(req):
    if req.params['id'] == '1':
        return 'one'
    elif req.params['id'] == '2':
        return 'two'
    other = [n
        for n in range(3)]
    return other

def unused(x):
    return x
",
        "def test_some(id = each('1', '3')):
    get('/page/' + id)
",
    );
    let run = folder.run_with(&RunOptions { coverage: true, ..RunOptions::default() });
    let coverage = run.coverage.unwrap();
    let (lines, branches) = coverage.total();
    assert_eq!((lines.hit, lines.all, branches.hit, branches.all), (5, 7, 3, 4), "{}", coverage.text());
    assert!(coverage.text().contains("6, 12"), "{}", coverage.text());
    let to = folder.path("out");
    coverage.write(folder.0.path(), &to).unwrap();
    let lcov = std::fs::read_to_string(to.join("lcov.info")).unwrap();
    for line in ["SF:page.star", "FN:3,page", "FNDA:0,unused", "DA:3,2", "DA:6,0", "BRDA:5,0,0,0", "LF:7\nLH:5"] {
        assert!(lcov.contains(line), "{line}: {lcov}");
    }
    let page = std::fs::read_to_string(to.join("index.html")).unwrap();
    assert!(
        page.contains("<span class=\"miss\"><span class=\"n\">0 6</span>        return &#39;two&#39;")
            || page.contains("<span class=\"n\">0 6</span>        return 'two'"),
        "{page}"
    );
}
