//! The builtins and methods, case by case: most cases are the examples of the public specification
//! of Starlark. Each line of `tests/spec/*.txt` is a case: statements and last an expression,
//! separated by `; `, then `=>` and what `repr` gives, or `!!` and the kind and message of the error.

use fanin_lang::{Instance, Limits, Machine, NoHost, Program, Run};

fn run(case: &str) -> String {
    let (statements, expression) = match case.rsplit_once("; ") {
        Some((statements, expression)) => (statements.replace("; ", "\n    "), expression),
        None => ("pass".to_owned(), case),
    };
    let source = format!("def case():\n    {statements}\n    return repr({expression})\n");
    let program = match Program::from_source("case.star", &source) {
        Ok(program) => program,
        Err(diagnostics) => return format!("!!  Load: {}", diagnostics[0].message),
    };
    let function = program.function("case.star", "case").expect("the case is defined");
    let mut flow = Instance::new(&program, function, Vec::new(), Limits::default()).expect("it takes no arguments");
    match flow.run(&mut Machine::new(), &mut NoHost, u64::MAX) {
        Run::Done(value) => format!("=>  {}", value.as_str().expect("repr gives a string")),
        Run::Failed(failure) => format!("!!  {:?}: {}", failure.kind, failure.message),
        Run::Waiting | Run::Yielded => "it stopped".to_owned(),
    }
}

fn check(table: &str) {
    let mut wrong = Vec::new();
    let mut cases = 0;
    for line in table.lines().filter(|line| !line.is_empty()) {
        let at = line.rfind("  =>  ").or_else(|| line.rfind("  !!  ")).expect("a case has a result");
        let (case, expected) = (&line[..at], &line[at + 2..]);
        let got = run(case);
        cases += 1;
        if got != expected {
            wrong.push(format!("{case}\n    expected {expected}\n    got      {got}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {cases} cases:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn dicts() {
    check(include_str!("spec/dicts.txt"));
}

#[test]
fn format() {
    check(include_str!("spec/format.txt"));
}

#[test]
fn json() {
    check(include_str!("spec/json.txt"));
}

#[test]
fn lists() {
    check(include_str!("spec/lists.txt"));
}

#[test]
fn reflect() {
    check(include_str!("spec/reflect.txt"));
}

#[test]
fn scalars() {
    check(include_str!("spec/scalars.txt"));
}

#[test]
fn sequences() {
    check(include_str!("spec/sequences.txt"));
}

#[test]
fn sets() {
    check(include_str!("spec/sets.txt"));
}

#[test]
fn strings() {
    check(include_str!("spec/strings.txt"));
}
