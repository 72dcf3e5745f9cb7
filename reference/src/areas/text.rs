//! Strings: methods and formats.

use super::values::{any, bound, float, int, list, scalar, short, small, text, texts};
use super::{Body, emits};
use crate::tape::Tape;

fn limits(tape: &mut Tape<'_>) -> String {
    match tape.choose(3) {
        0 => String::new(),
        1 => format!(", {}", tape.number(0, 3)),
        _ => format!(", {}, {}", tape.number(0, 3), tape.number(0, 5)),
    }
}

pub fn strings(tape: &mut Tape<'_>) -> Body {
    Body::lines(emits(tape, 1, 6, |tape| {
        let subject = text(tape);
        match tape.choose(19) {
            0 => format!(
                "{subject}.{}({}{})",
                tape.of(&["split", "rsplit"]),
                tape.of(&["\",\"", "\"a\"", "\"ab\"", "\" \""]),
                tape.of(&["", ", 0", ", 1", ", 2", ", -1"])
            ),
            1 => format!("{subject}.{}()", tape.of(&["split", "rsplit", "splitlines"])),
            2 => format!("{subject}.splitlines({})", tape.of(&["True", "False"])),
            3 => format!("{subject}.replace({}, {}{})", short(tape), short(tape), tape.of(&["", ", 0", ", 1", ", 2"])),
            4 => format!("{subject}.{}({}{})", tape.of(&["find", "rfind", "count"]), short(tape), limits(tape)),
            5 => format!("{subject}.{}({}{})", tape.of(&["index", "rindex"]), short(tape), limits(tape)),
            6 => format!(
                "{subject}.{}({})",
                tape.of(&["strip", "lstrip", "rstrip"]),
                tape.of(&["", "\"a\"", "\" a\"", "\"-,\"", "\"\""])
            ),
            7 => format!("{subject}.{}()", tape.of(&["upper", "lower", "title", "capitalize"])),
            8 => format!(
                "{subject}.{}()",
                tape.of(&["istitle", "isupper", "islower", "isalpha", "isalnum", "isdigit", "isspace"])
            ),
            9 => format!("{subject}.{}({})", tape.of(&["partition", "rpartition"]), short(tape)),
            10 => format!(
                "{subject}.{}({})",
                tape.of(&["startswith", "endswith"]),
                tape.of(&["\"a\"", "(\"a\", \"b\")", "()", "\"\"", "1", "(1,)"])
            ),
            11 => format!("{subject}.join({})", texts(tape)),
            12 => format!("{subject}.join({})", list(tape)),
            13 => format!("{subject}.{}({})", tape.of(&["removeprefix", "removesuffix"]), short(tape)),
            14 => format!("{subject} * {}", small(tape)),
            15 => format!("{subject} + {}", tape.nested(text, scalar)),
            16 => format!("[x for x in {subject}.elems()]"),
            17 => format!("{subject}[{}]", tape.number(-4, 6)),
            _ => {
                format!("{subject}[{}:{}{}]", bound(tape), bound(tape), tape.of(&["", ":1", ":2", ":-1", ":-2", ":0"]))
            }
        }
    }))
}

/// Arguments that both sides show alike.
fn plain(tape: &mut Tape<'_>) -> String {
    match tape.choose(5) {
        0 => small(tape),
        1 => short(tape),
        2 => int(tape),
        3 => tape.of(&["None", "True", "[1, \"a\"]", "(1,)", "{\"a\": 1}", "1.5", "()"]).to_owned(),
        _ => format!("[{}]", tape.several(0, 3, small)),
    }
}

pub fn formats(tape: &mut Tape<'_>) -> Body {
    Body::lines(emits(tape, 1, 5, |tape| match tape.choose(10) {
        0..=2 => {
            let pieces = ["%s", "%r", "a", "%%", "%d", "%s", "%x", "%o", "%X"];
            let count = 1 + tape.choose(4);
            let format: String = (0..count).map(|_| tape.of(&pieces)).collect();
            let arguments = tape.several(1, 3, plain);
            format!("\"{format}\" % ({arguments},)")
        }
        3 => format!("\"%s\" % {}", plain(tape)),
        4 => {
            format!("\"%{}\" % {}", tape.of(&["d", "x", "o", "s", "r", "e", "f", "g", "q", ""]), tape.nested(int, any))
        }
        5 => format!("\"%{}\" % {}", tape.of(&["e", "f", "g", "d"]), float(tape)),
        6 | 7 => {
            let pieces = ["{}", "{0}", "{1}", "{!r}", "{{", "}}", "x", "{a}", "{a!r}", "{", "}", "{!s}"];
            let count = 1 + tape.choose(4);
            let format: String = (0..count).map(|_| tape.of(&pieces)).collect();
            let named = tape.of(&["", ", a = 1", ", a = \"x\""]);
            format!("\"{format}\".format({}{named})", tape.several(1, 3, plain))
        }
        8 => format!(
            "[f\"{}\" for x in [{}]][0]",
            tape.of(&["{x}", "a{x}b", "{x!r}", "{{}}{x}", "{x}{x}", "{x!s}"]),
            plain(tape)
        ),
        _ => format!("{}({})", tape.of(&["str", "repr"]), plain(tape)),
    }))
}
