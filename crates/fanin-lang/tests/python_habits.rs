//! What people who know Python write first: `sum`, and names and statements that Starlark does not have.

use fanin_lang::testing::{Answer, TestHost, program, run};
use fanin_lang::{Diagnostic, Limits};

fn outcome(expression: &str) -> String {
    let program = program(&format!("def main():\n    return {expression}\n")).expect("it loads");
    let answer = |_: &str, args: &str| Answer::Json(if args.contains("n") { "3" } else { "[1, 2, 4]" }.to_owned());
    let mut results = [true, false].map(|at_once| {
        let mut host = TestHost::new(&program, Box::new(answer), Box::new(move || at_once));
        match run(&program, "main", vec![], Limits::default(), &mut host, &mut |open| open - 1) {
            Ok(value) => value,
            Err(failure) => program.explain(&failure, false),
        }
    });
    assert_eq!(results[0], results[1], "the same whether answers are there or pending");
    std::mem::take(&mut results[0])
}

#[test]
fn sum_adds_numbers() {
    for (expression, value) in [
        ("sum([1, 2, 3])", "6"),
        ("sum([])", "0"),
        ("sum([0.5, 1])", "1.5"),
        ("sum([1, 2], 10)", "13"),
        ("sum([1], start = 2.5)", "3.5"),
        ("sum(range(5))", "10"),
        ("sum({1: 'a', 2: 'b'})", "3"),
        ("sum([9223372036854775807, 1])", "9223372036854775808"),
        ("sum(a.get('/list'))", "7"),
        ("sum([a.get('/n'), 1, a.get('/n')])", "7"),
        ("sum([x * 2 for x in a.get('/list')])", "14"),
    ] {
        assert_eq!(outcome(expression), value, "{expression}");
    }
}

#[test]
fn sum_of_anything_else_says_what_to_write() {
    for (expression, message, hint) in [
        ("sum(['a', 'b'])", "not string", "\"\".join(parts)"),
        ("sum([[1], [2]])", "not list", "for part in parts"),
        ("sum([1], 'x')", "not string", "join"),
        ("sum([1, None])", "not NoneType", "x != None"),
        ("sum([True])", "not bool", "int(x)"),
        ("sum(3)", "int", ""),
    ] {
        let told = outcome(expression);
        assert!(told.contains(message) && told.contains(hint), "{expression}: {told}");
    }
}

fn errors(line: &str) -> Vec<Diagnostic> {
    program(&format!("def main():\n    {line}\n    return 1\n")).expect_err("it must not load")
}

#[test]
fn names_of_python_say_what_to_write_instead() {
    for (line, message, hint) in [
        ("x = isinstance(1, 2)", "the name isinstance is not defined", "write instead: type(x) == \"list\""),
        ("x = map(len, [])", "the name map is not defined", "[f(x) for x in items]"),
        ("x = null", "the name null is not defined", "write instead: None"),
    ] {
        let found = errors(line);
        let hint_found = found[0].hint.as_deref().unwrap_or_default();
        assert!(found[0].message.contains(message), "{line}: {found:?}");
        assert!(hint_found.contains(hint), "{line}: {found:?}");
    }
}

#[test]
fn statements_of_python_say_what_to_write_instead() {
    for (line, message, hint) in [
        ("while True: pass", "there is no `while` in Starlark", "every loop is bounded"),
        ("try: pass", "there is no `try` in Starlark", "optional = True"),
        ("import os", "there is no `import` in Starlark", "load("),
        ("x = await y", "there is no `await` in Starlark", "in parallel"),
        ("x = 1 is 2", "there is no `is` in Starlark", "=="),
        ("x = 2 ** 3", "'**'", "multiply"),
        ("x = any(y for y in [1])", "'for'", "[f(x) for x in items]"),
        ("x = {**y}", "'**'", "a | b"),
    ] {
        let found = errors(line);
        assert!(found[0].message.contains(message), "{line}: {found:?}");
        assert!(found[0].hint.as_deref().is_some_and(|found| found.contains(hint)), "{line}: {found:?}");
    }
}
