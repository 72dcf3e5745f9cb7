//! Numbers, comparisons, builtin functions, JSON.

use super::values::{
    any, bound, dict, float, int, ints, iterable, key, list, number, scalar, short, small, text, texts,
};
use super::{Body, emits};
use crate::tape::Tape;

const ARITHMETIC: [&str; 11] = ["+", "-", "*", "//", "%", "&", "|", "^", "<<", ">>", "/"];

fn integer_expression(tape: &mut Tape<'_>) -> String {
    tape.nested(
        |tape| match tape.choose(9) {
            0 => int(tape),
            1 => format!("-({})", integer_expression(tape)),
            2 => format!("~({})", integer_expression(tape)),
            3 => format!("({} {} {})", int(tape), tape.of(&["<<", ">>"]), tape.number(-1, 70)),
            _ => {
                let op = tape.of(&ARITHMETIC[..8]);
                format!("({} {op} {})", integer_expression(tape), integer_expression(tape))
            }
        },
        int,
    )
}

pub fn integers(tape: &mut Tape<'_>) -> Body {
    Body::lines(emits(tape, 1, 5, |tape| match tape.choose(9) {
        0..=4 => integer_expression(tape),
        5 => format!("{} {} {}", int(tape), tape.of(&["<", "<=", "==", "!=", ">", ">="]), int(tape)),
        6 => {
            let digits =
                ["0", "12", "-7", "ff", "0xff", "0b101", "0o17", "z", "", "+5", " 5", "7fffffffffffffffff", "- 1"];
            let base = tape.of(&["", ", 10", ", 16", ", 2", ", 8", ", 36", ", 0", ", 1", ", 37"]);
            format!("int(\"{}\"{base})", tape.of(&digits))
        }
        7 => format!("{}({})", tape.of(&["abs", "str", "bool", "float", "int", "repr", "type"]), int(tape)),
        _ => format!("{} if {} else {}", int(tape), integer_expression(tape), int(tape)),
    }))
}

pub fn floats(tape: &mut Tape<'_>) -> Body {
    Body::lines(emits(tape, 1, 5, |tape| match tape.choose(8) {
        0..=3 => format!("{} {} {}", number(tape), tape.of(&["+", "-", "*", "/", "//", "%"]), number(tape)),
        4 => format!("{} {} {}", number(tape), tape.of(&["<", "<=", "==", "!=", ">", ">="]), number(tape)),
        5 => format!("int({})", float(tape)),
        6 => {
            let texts =
                ["1.5", "1e3", "-0.0", "inf", "-inf", "nan", "+inf", "1", "abc", "", ".5", "5.", "1e", "1_0", "0x1"];
            format!("float(\"{}\")", tape.of(&texts))
        }
        _ => format!("{}({})", tape.of(&["abs", "bool", "type", "float", "-", "+"]), float(tape)),
    }))
}

pub fn comparisons(tape: &mut Tape<'_>) -> Body {
    Body::lines(emits(tape, 1, 5, |tape| match tape.choose(6) {
        0 | 1 => format!("{} == {}", any(tape), any(tape)),
        2 => {
            let (a, b) = (any(tape), tape.of(&["<", "<=", ">", ">="]));
            format!("{a} {b} {}", any(tape))
        }
        3 => {
            let op = tape.of(&["<", "<=", ">", ">="]);
            format!("{} {op} {}", ints(tape), ints(tape))
        }
        4 => format!("{} {} {}", any(tape), tape.of(&["in", "not in"]), any(tape)),
        _ => format!("{} {} {}", any(tape), tape.of(&["and", "or"]), any(tape)),
    }))
}

pub fn builtins(tape: &mut Tape<'_>) -> Body {
    Body::lines(emits(tape, 1, 5, |tape| match tape.choose(20) {
        0 => format!("{}({})", tape.of(&["any", "all", "len", "bool", "type"]), any(tape)),
        1 => format!("{}({})", tape.of(&["list", "tuple", "reversed", "set", "dict"]), iterable(tape)),
        2 => format!("sorted({}, reverse = {})", tape.nested(ints, texts), tape.of(&["True", "False"])),
        3 => format!("sorted({}, key = {})", texts(tape), tape.of(&["len", "lambda x: x", "lambda x: -len(x)", "str"])),
        4 => format!("{}({})", tape.of(&["min", "max"]), iterable(tape)),
        5 => format!(
            "{}({}, key = {})",
            tape.of(&["min", "max"]),
            ints(tape),
            tape.of(&["abs", "lambda x: x % 3", "str"])
        ),
        6 => format!("{}({}, {})", tape.of(&["min", "max"]), small(tape), small(tape)),
        7 => format!("enumerate({}, {})", iterable(tape), small(tape)),
        8 => format!("zip({})", tape.several(0, 3, iterable)),
        9 => format!("range({})", tape.several(0, 4, small)),
        10 => format!("dict({}, {} = {})", dict(tape), tape.of(&["a", "k", "x"]), scalar(tape)),
        11 => format!("hash({})", short(tape)),
        12 => {
            format!("{}({}, \"{}\")", tape.of(&["hasattr", "getattr"]), any(tape), tape.of(&["append", "keys", "nope"]))
        }
        13 => format!("struct(a = {}, b = {}).{}", any(tape), small(tape), tape.of(&["a", "b", "c"])),
        14 => format!("struct(a = {}) == struct(a = {})", scalar(tape), scalar(tape)),
        15 => format!("{}({})", tape.of(&["str", "repr"]), tape.nested(ints, texts)),
        16 => format!(
            "{}({})",
            tape.of(&["chr", "ord"]),
            tape.of(&["65", "\"a\"", "\"\"", "128512", "\"ab\"", "-1", "1114112"])
        ),
        17 => format!("[x for x in enumerate({})]", iterable(tape)),
        18 => format!("sorted({}, key = {})", list(tape), tape.of(&["type", "lambda x: str(type(x))", "bool"])),
        _ => format!("sorted([{}])", tape.several(0, 4, |tape| format!("({}, {})", small(tape), short(tape)))),
    }))
}

/// Values that JSON has, with keys in order: the crate sorts them.
fn jsonable(tape: &mut Tape<'_>) -> String {
    tape.nested(
        |tape| match tape.choose(6) {
            0 => small(tape),
            1 => text(tape),
            2 => tape.of(&["None", "True", "False", "1.5", "-2.25"]).to_owned(),
            3 => format!("[{}]", tape.several(0, 4, jsonable)),
            4 => format!("({},)", tape.several(1, 3, jsonable)),
            _ => format!("{{\"a\": {}, \"b\": {}}}", jsonable(tape), jsonable(tape)),
        },
        small,
    )
}

pub fn json(tape: &mut Tape<'_>) -> Body {
    Body::lines(emits(tape, 1, 4, |tape| match tape.choose(7) {
        0 | 1 => format!("json.encode({})", jsonable(tape)),
        2 | 3 => format!("json.decode(json.encode({}))", jsonable(tape)),
        4 => format!(
            "json.encode({})",
            tape.of(&["len", "struct(a = 1)", "struct(b = [1], a = \"x\")", "{\"a\": len}", "lambda: 1"])
        ),
        _ => {
            let texts = [
                "1",
                "[1, 2",
                "{\\\"a\\\": 1}",
                "nul",
                "null",
                "\\\"x\\\"",
                "[true, false]",
                "1.5",
                "-0",
                "01",
                "[1,]",
                "",
                "{\\\"a\\\": {\\\"b\\\": []}}",
                "\\\"\\\\u0041\\\"",
                "1 2",
                "'a'",
                "{1: 2}",
                " [ ] ",
            ];
            format!("json.decode(\"{}\")", tape.of(&texts))
        }
    }))
}

/// Used by other areas.
pub fn indexed(tape: &mut Tape<'_>) -> String {
    match tape.choose(4) {
        0 => format!("{}[{}]", list(tape), tape.number(-4, 4)),
        1 => format!("{}[{}]", dict(tape), key(tape)),
        2 => format!("{}[{}]", text(tape), tape.number(-4, 4)),
        _ => format!("{}[{}:{}]", ints(tape), bound(tape), bound(tape)),
    }
}
