//! Type annotations while a flow runs: passing a value must not wait, and what is passed is checked all the same.

use fanin_lang::testing::{Answer, TestHost, program, run};
use fanin_lang::{Failure, Kind, Limits, Program};

/// Every call is answered with its own path: `a.get("/7")` gives 7, anything else a text.
fn answer(_: &str, args: &str) -> Answer {
    let path = args.split(',').next().unwrap_or_default().trim_matches('"').trim_start_matches('/').to_owned();
    match path.as_str() {
        "fail" => Answer::Fail,
        number if number.parse::<i64>().is_ok() => Answer::Json(number.to_owned()),
        "list" => Answer::Json("[1, 2.5, null]".to_owned()),
        "ints" => Answer::Json("[1, 2]".to_owned()),
        "dict" => Answer::Json("{\"a\": 1, \"b\": \"x\"}".to_owned()),
        text => Answer::Json(format!("{text:?}")),
    }
}

fn load(text: &str) -> Program {
    program(text).unwrap_or_else(|found| panic!("{found:?}"))
}

/// The result, the same whenever the answers come; and the calls in the order they were sent if they come last first.
fn outcome(text: &str) -> (Result<String, Box<Failure>>, Vec<String>) {
    let program = load(text);
    let mut sent = Vec::new();
    let mut results = Vec::new();
    for order in 0..3 {
        let mut host = TestHost::new(&program, Box::new(answer), Box::new(move || order == 0));
        let mut pick = |open: usize| if order == 1 { 0 } else { open - 1 };
        results.push(run(&program, "main", vec![], Limits::default(), &mut host, &mut pick));
        sent = host.sent;
    }
    assert_eq!(results[0], results[1], "{text}");
    assert_eq!(results[0], results[2], "{text}");
    (results.remove(0), sent)
}

fn ok(text: &str) -> String {
    outcome(text).0.unwrap_or_else(|failure| panic!("{text}: {failure:?}"))
}

fn fails(text: &str) -> (String, u32) {
    match outcome(text).0 {
        Err(failure) => {
            assert_eq!(failure.kind, Kind::Type, "{failure:?}");
            // The file begins with the line that loads the services.
            (failure.message.clone(), failure.position.as_ref().map_or(0, |position| position.line - 1))
        }
        Ok(value) => panic!("{text} gives {value}"),
    }
}

#[test]
fn a_wrong_argument_fails_where_it_is_passed() {
    let (message, line) = fails("def f(x: int, y: str = \"\"):\n    return x\n\ndef main():\n    return f(\"7\")\n");
    assert_eq!((message.as_str(), line), ("the argument x of f() must be int, got str", 5));
    let (message, line) = fails("def f(x: int):\n    return x\n\ndef main():\n    return f(x = a.get(\"/x\"))\n");
    assert_eq!((message.as_str(), line), ("the argument x of f() must be int, got str", 5));
    assert_eq!(ok("def f(x: int):\n    return x\ndef main():\n    return f(a.get(\"/7\"))\n"), "7");
}

#[test]
fn passing_does_not_wait() {
    let text = "def f(x: int):\n    return [x, a.get(\"/2\")]\n\ndef main():\n    return f(a.get(\"/1\"))\n";
    let program = load(text);
    let mut host = TestHost::new(&program, Box::new(answer), Box::new(|| false));
    let mut open = 0;
    let result = run(&program, "main", vec![], Limits::default(), &mut host, &mut |number| {
        open = open.max(number);
        0
    });
    assert_eq!(result.expect("an answer"), "[1,2]");
    assert_eq!(open, 2, "the second call is sent while the checked argument of the first is not there");
}

#[test]
fn what_nobody_looks_at_is_checked() {
    let (message, line) = fails("def f(x: int):\n    return 1\n\ndef main():\n    return f(a.get(\"/x\"))\n");
    assert_eq!((message.as_str(), line), ("the argument x of f() must be int, got str", 5));
}

#[test]
fn elements_are_checked_when_they_are_there() {
    let f = "def f(x: list[int]):\n    return len(x)\n\n";
    assert_eq!(ok(&format!("{f}def main():\n    return f([1, a.get(\"/2\")])\n")), "2");
    let (message, _) = fails(&format!("{f}def main():\n    return f([1, a.get(\"/x\")])\n"));
    assert_eq!(message, "the argument x of f() must be list[int], but [1] is str");
    let (message, _) = fails(&format!("{f}def main():\n    return f(a.get(\"/list\"))\n"));
    assert_eq!(message, "the argument x of f() must be list[int], but [1] is float");
    assert_eq!(ok(&format!("{f}def main():\n    return f(a.get(\"/ints\"))\n")), "2");
    let (message, _) = fails("def f(x: dict[str, int]):\n    return 1\ndef main():\n    return f(a.get(\"/dict\"))\n");
    assert_eq!(message, "the argument x of f() must be dict[str, int], but [\"b\"] is str");
}

#[test]
fn a_failed_call_is_of_every_type() {
    let text = "def f(x: int):\n    return x.failed\n\ndef main():\n    return f(a.get(\"/fail\"))\n";
    assert_eq!(ok(text), "true");
    let text =
        "def f(x: int):\n    return {\"x\": x}\n\ndef main():\n    return f(a.get(\"/fail\", optional = True))\n";
    assert_eq!(ok(text), "{\"x\":null}");
}

#[test]
fn returns_and_variables_are_checked() {
    let (message, line) = fails("def f() -> int:\n    return a.get(\"/x\")\n\ndef main():\n    return f()\n");
    assert_eq!((message.as_str(), line), ("what f() returns must be int, got str", 2));
    let (message, _) = fails("def f(x) -> int:\n    if x:\n        return 1\n\ndef main():\n    return f(0)\n");
    assert_eq!(message, "what f() returns must be int, got None");
    let (message, line) = fails("def main():\n    x: int = a.get(\"/x\")\n    return 1\n");
    assert_eq!((message.as_str(), line), ("the variable x must be int, got str", 2));
    assert_eq!(ok("def main():\n    x: int | None = a.get(\"/7\")\n    return x\n"), "7");
}

#[test]
fn rows_of_arguments_are_checked() {
    let f = "def f(*args: int, k: str = \"\", **kwargs: bool):\n    return [args, k, kwargs]\n\n";
    assert_eq!(ok(&format!("{f}def main():\n    return f(1, 2, k = \"x\", b = True)\n")), "[[1,2],\"x\",{\"b\":true}]");
    let (message, _) = fails(&format!("{f}def main():\n    return f(1, \"2\")\n"));
    assert_eq!(message, "*args of f() must be tuple[int, ...], but [1] is str");
    let (message, _) = fails(&format!("{f}def main():\n    return f(b = 1)\n"));
    assert_eq!(message, "**kwargs of f() must be dict[str, bool], but [\"b\"] is int");
    let (message, _) = fails(&format!("{f}def main():\n    return f(k = 1)\n"));
    assert_eq!(message, "the argument k of f() must be str, got int");
}

#[test]
fn the_earliest_failure_is_told() {
    let text =
        "def f(x: int):\n    return 1\n\ndef main():\n    y = f(a.get(\"/x\"))\n    return [y, a.get(\"/text\") + 1]\n";
    assert_eq!(fails(text).0, "the argument x of f() must be int, got str");
}

#[test]
fn an_effect_below_waits_for_the_check() {
    let text = "def f(x: int):\n    return 1\n\ndef main():\n    f(a.get(\"/x\"))\n    return b.post(\"/write\")\n";
    let (result, sent) = outcome(text);
    assert!(result.is_err());
    assert_eq!(sent, ["a.get(\"/x\")"], "the write was never sent");
}

#[test]
fn closures_and_tuples_and_functions() {
    let text = "def main():\n    n = 2\n    def f(x: tuple[int, str], g: typing.Callable, s: set[int]) -> list[typing.Any]:\n        \
                return [x[0] * n, g(x[1]), len(s)]\n    return f((1, \"a\"), lambda y: y + \"!\", set([1]))\n";
    assert_eq!(ok(text), "[2,\"a!\",1]");
    let (message, _) = fails("def f(x: tuple[int, str]):\n    return 1\ndef main():\n    return f((1, \"a\", 2))\n");
    assert_eq!(message, "the argument x of f() must be tuple[int, str], got a tuple of 3");
}

#[test]
fn types_that_are_none_are_refused() {
    for (annotation, message) in [
        ("strin", "there is no type strin"),
        ("list[int, str]", "list takes one type in brackets, 2 given"),
        ("dict[int]", "dict takes two types in brackets, 1 given"),
        ("typing.Dict", "this is not a type"),
        ("a", "there is no type a"),
    ] {
        let found = program(&format!("def main(x: {annotation}):\n    return x\n")).expect_err(annotation);
        assert_eq!(found[0].message, message, "{annotation}");
    }
}
