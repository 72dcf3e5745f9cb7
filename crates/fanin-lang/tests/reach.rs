//! An operation on values of wrong types is an error only where it certainly runs.

use std::sync::Arc;

use fanin_lang::testing::Files;
use fanin_lang::{Globals, Program, Severity};

/// Severity and lint of the first finding about types.
fn found(body: &str) -> Option<(Severity, Option<&'static str>)> {
    let files = Files(vec![("t.star", format!("def main(x):\n    {body}\n"))]);
    let checked = Program::check(Arc::new(Globals::standard()), &files, &["t.star"]);
    let about_types = |message: &str| {
        ["no elements", "cannot be ordered", "not possible", "has no .", "looped over", "cannot be called"]
            .iter()
            .any(|words| message.contains(words))
    };
    let first = checked.found.iter().find(|one| about_types(&one.message))?;
    Some((first.severity, first.lint))
}

#[test]
fn an_operation_that_certainly_runs_is_an_error() {
    for body in [
        "return None[0]",
        "y = None[0]\n    return y",
        "return 1 + \"a\"",
        "return [y for y in 3]",
        "return \"a\".foo",
        "if True:\n        return None[0]",
        "return None[0] if True else 1",
        "f = lambda: None[0]\n    return f",
        "if None[0]:\n        pass",
        "for y in x:\n        for z in y:\n            break\n    return None[0]",
    ] {
        assert_eq!(found(body), Some((Severity::Error, None)), "{body}");
    }
}

#[test]
fn an_operation_that_may_not_run_is_a_warning() {
    for body in [
        "if x:\n        return None[0]\n    return 1",
        "if x:\n        return 1\n    return None[0]",
        "if False:\n        return None[0]\n    return 1",
        "return 1\n    return None[0]",
        "fail(\"a\")\n    return None[0]",
        "return x and None[0]",
        "return True or None[0]",
        "return None[0] if x else 1",
        "return [None[0] for y in x]",
        "for y in x:\n        print(None[0])",
        "for y in x:\n        if y:\n            return 1\n    return 1 + \"a\"",
    ] {
        assert_eq!(found(body), Some((Severity::Warning, Some("type-mismatch"))), "{body}");
    }
}

#[test]
fn a_warning_can_be_silenced() {
    assert_eq!(found("return 1 if x else None[0]    # fanin: allow(type-mismatch)"), None);
}
