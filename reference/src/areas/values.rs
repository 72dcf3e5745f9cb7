//! Literals and expressions of each type.

use crate::tape::Tape;

/// A small integer.
pub fn small(tape: &mut Tape<'_>) -> String {
    tape.of(&["0", "1", "2", "3", "-1", "-2", "5", "7", "10", "-7"]).to_owned()
}

/// An integer of any size.
pub fn int(tape: &mut Tape<'_>) -> String {
    match tape.choose(8) {
        0..=3 => small(tape),
        4 => tape.number(-2000, 2000).to_string(),
        5 => tape
            .of(&["2147483647", "2147483648", "-2147483648", "-2147483649", "4294967296", "9007199254740993"])
            .to_owned(),
        6 => tape
            .of(&["9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809"])
            .to_owned(),
        _ => tape
            .of(&[
                "100000000000000000000",
                "-340282366920938463463374607431768211456",
                "123456789012345678901234567890",
            ])
            .to_owned(),
    }
}

/// A float whose text is short.
pub fn float(tape: &mut Tape<'_>) -> String {
    tape.of(&["0.0", "1.5", "-2.25", "1.0", "0.5", "100.0", "-3.0", "1e10", "2.5e-3", "1e300", "-0.0", "123456.789"])
        .to_owned()
}

/// A number.
pub fn number(tape: &mut Tape<'_>) -> String {
    if tape.choose(3) == 2 { float(tape) } else { int(tape) }
}

/// A string literal of the characters that matter to methods.
pub fn text(tape: &mut Tape<'_>) -> String {
    let pieces = ["a", "b", " ", ",", "-", "ab", "\\n", "\\t", "A", "1", "z", "aa", "Bc", "\\r", "x y", "_", "é", "0"];
    let count = tape.choose(7);
    let inner: String = (0..count).map(|_| tape.of(&pieces)).collect();
    format!("\"{inner}\"")
}

/// A short one.
pub fn short(tape: &mut Tape<'_>) -> String {
    tape.of(&["\"a\"", "\"\"", "\"ab\"", "\" \"", "\",\"", "\"b\"", "\"-\"", "\"A\"", "\"1\"", "\"aa\"", "\"k\""])
        .to_owned()
}

/// A value that can be a key.
pub fn key(tape: &mut Tape<'_>) -> String {
    match tape.choose(8) {
        0..=2 => short(tape),
        3 | 4 => small(tape),
        5 => float(tape),
        6 => tape.of(&["True", "False", "None"]).to_owned(),
        _ => format!("({}, {})", small(tape), short(tape)),
    }
}

/// A scalar.
pub fn scalar(tape: &mut Tape<'_>) -> String {
    match tape.choose(6) {
        0 | 1 => small(tape),
        2 => text(tape),
        3 => float(tape),
        4 => tape.of(&["None", "True", "False"]).to_owned(),
        _ => int(tape),
    }
}

/// Anything.
pub fn any(tape: &mut Tape<'_>) -> String {
    match tape.choose(9) {
        0..=3 => scalar(tape),
        4 => list(tape),
        5 => tuple(tape),
        6 => dict(tape),
        7 => tape.of(&["range(3)", "range(0)", "range(2, 9, 3)", "range(5, 0, -2)"]).to_owned(),
        _ => set(tape),
    }
}

/// A list of anything.
pub fn list(tape: &mut Tape<'_>) -> String {
    tape.nested(|tape| format!("[{}]", tape.several(0, 4, any)), |_| "[1]".to_owned())
}

/// A list of small integers.
pub fn ints(tape: &mut Tape<'_>) -> String {
    format!("[{}]", tape.several(0, 7, small))
}

/// A list of strings.
pub fn texts(tape: &mut Tape<'_>) -> String {
    format!("[{}]", tape.several(0, 6, short))
}

/// A tuple.
pub fn tuple(tape: &mut Tape<'_>) -> String {
    tape.nested(
        |tape| match tape.choose(4) {
            0 => "()".to_owned(),
            1 => format!("({},)", any(tape)),
            _ => format!("({})", tape.several(2, 4, any)),
        },
        |_| "(1, 2)".to_owned(),
    )
}

/// A dict, made by a call so that keys may come twice.
pub fn dict(tape: &mut Tape<'_>) -> String {
    tape.nested(
        |tape| {
            let pairs = tape.several(0, 4, |tape| format!("({}, {})", key(tape), any(tape)));
            format!("dict([{pairs}])")
        },
        |_| "{\"k\": 1}".to_owned(),
    )
}

/// A set.
pub fn set(tape: &mut Tape<'_>) -> String {
    format!("set([{}])", tape.several(0, 5, key))
}

/// Something that can be looped over.
pub fn iterable(tape: &mut Tape<'_>) -> String {
    match tape.choose(7) {
        0 | 1 => ints(tape),
        2 => list(tape),
        3 => tuple(tape),
        4 => dict(tape),
        5 => format!("range({}, {}, {})", small(tape), small(tape), tape.of(&["1", "2", "-1", "3", "-2"])),
        _ => texts(tape),
    }
}

/// An index or bound, or nothing.
pub fn bound(tape: &mut Tape<'_>) -> String {
    match tape.choose(4) {
        0 => String::new(),
        _ => tape.number(-5, 6).to_string(),
    }
}

/// A condition on the number `x`.
pub fn condition(tape: &mut Tape<'_>, x: &str) -> String {
    match tape.choose(5) {
        0 => format!("{x} > {}", small(tape)),
        1 => format!("{x} % 2 == {}", tape.choose(2)),
        2 => format!("{x} in {}", ints(tape)),
        3 => format!("not {x}"),
        _ => format!("{x} != {} and {x} < 5", small(tape)),
    }
}
