//! What is told of tests that fail, and of folders that cannot be tested.

use crate::folder::{BOTH, Folder};

#[test]
fn a_failed_assertion_shows_the_line_and_the_calls() {
    let failed = Folder::new(
        "",
        BOTH,
        "def test_one():
    stub(a.get, answer = {'x': [1, {'y': 2}]}, delay = '20ms')
    stub(b.get, status = 500)
    page = get('/page/1')
    assert_equal(page.json['one'], {'x': [1, {'y': 3}]}, 'the first')
",
    )
    .fails();
    let failure = failed.failure.unwrap();
    assert_eq!(failure.message, "the first: [\"x\"][1][\"y\"] is 2; expected 3");
    assert_eq!(failure.place, "page_test.star:7");
    for part in ["assert_equal(page.json", "GET /page/1   200   20 ms   partial: b", "/one/1", "█", "page.star:3"] {
        assert!(failure.explanation.contains(part), "{part}: {}", failure.explanation);
    }
}

#[test]
fn a_call_without_a_stub_fails_the_test_even_if_it_is_optional() {
    let failed = Folder::new(
        "",
        BOTH,
        "def test_one():
    stub(a.get, answer = 1)
    assert_equal(get('/page/1').status, 200)
",
    )
    .fails();
    assert_eq!(failed.failure.unwrap().message, "there is no stub for b.get GET /two");
}

#[test]
fn a_stub_says_how_often_it_is_used() {
    let failed = Folder::new(
        "",
        BOTH,
        "def test_one():
    stub(a.get, answer = 1, times = 2)
    stub(b, answer = 1)
    get('/page/1')
",
    )
    .fails();
    assert_eq!(failed.failure.unwrap().message, "a.get was to be requested 2 times, and was 1");
}

#[test]
fn a_function_of_a_stub_that_fails_fails_the_test() {
    let failed = Folder::new(
        "",
        BOTH,
        "def test_one():
    stub(a.get, answer = lambda call: call.query['no'])
    stub(b, answer = 1)
    get('/page/1')
",
    )
    .fails();
    let message = failed.failure.unwrap().message;
    assert!(message.starts_with("the stub of a.get at page_test.star:4:") && message.contains("no"), "{message}");
}

#[test]
fn wrong_arguments_are_named() {
    for (line, message) in [
        ("stub(a.get)", "stub(): it needs answer, text, status, fail, answers or items"),
        ("stub(a.get, answer = 1, fail = 'timeout')", "stub(): a request that fails has no answer"),
        ("stub(a.get, fail = 'slow')", "stub(): \"slow\" is no failure of a stub"),
        ("stub(a.get, 'x', answer = 1)", "stub(): the path \"x\" does not start with a slash"),
        ("stub(7, answer = 1)", "stub() takes an upstream or a method of one, such as catalog.get, not int"),
        ("stub(a.get, answer = 1, delay = 'soon')", "stub(): \"soon\""),
        ("stub(a.get, status = 99)", "stub(): 99 is no status"),
        ("get('page')", "get(): the path \"page\" does not start with a slash"),
        ("advance('soon')", "advance(): time"),
        ("together([1])", "together() takes a list of request(...), each used once"),
        ("assert_true(1)", "assert_true() takes True or False, not int"),
        ("assert_fails(lambda: 1)", "the function did not fail"),
        ("a.get('/')", "a test does not call a itself"),
    ] {
        let failed = Folder::new("", BOTH, &format!("def test_one():\n    {line}\n")).fails();
        let told = failed.failure.unwrap().message;
        assert!(told.starts_with(message), "{line}: {told}");
    }
}

#[test]
fn what_cannot_be_loaded_is_told() {
    for (tests, expected) in [
        (
            "def test_one(x):\n    pass\n",
            "test_one needs a value for x: a test's parameters have cases, x = each(1, 2)",
        ),
        ("def setup(x):\n    pass\n", "setup() runs before each test, without arguments"),
        ("stub(a.get, answer = 1)\n", "stub() belongs into a test"),
        ("def test_one():\n    assert_equals(1, 1)\n", "assert_equals"),
        ("x = each()\n", "each(): it needs at least one case"),
    ] {
        let told = Folder::new("", BOTH, tests).refused();
        assert!(told.contains(expected), "{told}");
    }
    let told = Folder::new("", "load('@test', 'get')\ndef page(req):\n    return get('/')\n", "").refused();
    assert!(told.contains("@test is for tests"), "{told}");
    let folder = Folder::new("", BOTH, "");
    std::fs::write(folder.path("fanin.toml"), "[[routes]]\n").unwrap();
    assert!(folder.refused().contains("fanin.toml:1:1"), "{}", folder.refused());
}
