//! Python that the language does not have: errors say what to write instead.

use fanin_lang::Program;

/// Message and hint of the first error.
fn error(text: &str) -> String {
    let Err(found) = Program::from_source("t.star", text) else { panic!("{text} is accepted") };
    format!("{} | {}", found[0].message, found[0].hint.as_deref().unwrap_or("-"))
}

#[test]
fn unknown_names_have_a_replacement() {
    for (name, instead) in [
        ("map", "[f(x) for x in items]"),
        ("filter", "[x for x in items if f(x)]"),
        ("isinstance", "type(x)"),
        ("round", "int(x + 0.5)"),
        ("open", "an upstream"),
        ("null", "None"),
        ("true", "True"),
    ] {
        let found = error(&format!("def main():\n    return {name}(1)\n"));
        assert!(found.starts_with(&format!("the name {name} is not defined | write instead: {instead}")), "{found}");
    }
    assert!(error("def main():\n    return lenn(1)\n").ends_with("did you mean len?"));
}

#[test]
fn syntax_has_a_replacement() {
    let mut wrong = Vec::new();
    for (code, instead) in [
        ("while x:\n        pass", "for i in range(n)"),
        ("try:\n        pass\n    except:\n        pass", "optional = True"),
        ("raise x", "fail(message)"),
        ("import os", "load("),
        ("with x:\n        pass", "nothing needs closing"),
        ("await x", "leave it out"),
        ("async def f():\n        pass", "leave it out"),
        ("yield x", "return a list"),
        ("global x", "pass the value"),
        ("del x", "d.pop(key)"),
        ("assert x", "if not x"),
        ("class A:\n        pass", "struct(a = 1)"),
        ("y = x is None", "=="),
        ("y = x ** 2", "multiply"),
        ("y = 1 < x < 3", "a < b and b < c"),
        ("if (y := x):\n        pass", "assign on a line of its own"),
        ("y = x && x", "and"),
        ("y = x || x", "or"),
        ("y = !x", "not x"),
        ("if x = 1:\n        pass", "== compares"),
        ("if x:\n        pass\n    else if x:\n        pass", "elif"),
        ("print \"x\"", "print(x)"),
        ("match x:\n        pass", "if, elif, else"),
        ("@f\n    def g():\n        pass", "call the function"),
    ] {
        let found = error(&format!("def main(x):\n    {code}\n"));
        if !found.contains(&format!("write instead: {instead}")) {
            wrong.push(format!("{code}: {found}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn replacements_work() {
    for code in [
        "type(len)",
        "(7 // 2, 7 % 2)",
        "int(2.5 + 0.5)",
        "[x for x in [1] if x]",
        "\"%x %o %d\" % (1, 1, 1)",
        "str(b\"a\")",
        "bytes(\"a\")",
        "\" \" * (3 - len(\"a\")) + \"a\"",
        "\"{a}\".format(**{\"a\": 1})",
        "(1,) + (2,)",
        "1 << 10",
        "getattr(struct(a = 1), \"b\", 2)",
    ] {
        let text = format!("X = {code}\n");
        assert!(Program::from_source("t.star", &text).is_ok(), "{code}: {}", error(&text));
    }
}
