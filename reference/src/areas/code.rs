//! Comprehensions, control flow, assignments.

use super::values::{any, condition, dict, ints, iterable, list, scalar, short, small, texts};
use super::{Body, emits};
use crate::tape::Tape;

fn element(tape: &mut Tape<'_>, names: &[&str]) -> String {
    let name = tape.of(names);
    match tape.choose(6) {
        0 | 1 => name.to_owned(),
        2 => format!("{name} * 2"),
        3 => format!("({name}, {})", tape.of(names)),
        4 => format!("{name} + {}", small(tape)),
        _ => format!("[{name} for q in range(2)]"),
    }
}

pub fn comprehensions(tape: &mut Tape<'_>) -> Body {
    let mut lines = vec!["x = 100".to_owned()];
    lines.extend(emits(tape, 1, 4, |tape| match tape.choose(9) {
        0 => format!("[{} for x in {}]", element(tape, &["x"]), ints(tape)),
        1 => format!("[{} for x in {} if {}]", element(tape, &["x"]), ints(tape), condition(tape, "x")),
        2 => format!(
            "[{} for x in {} for y in {} if {}]",
            element(tape, &["x", "y"]),
            ints(tape),
            ints(tape),
            condition(tape, "y")
        ),
        3 => format!("{{x: {} for x in {}}}", element(tape, &["x"]), ints(tape)),
        4 => format!(
            "[{} for (x, y) in [({}, {}), ({}, {})]]",
            element(tape, &["x", "y"]),
            small(tape),
            small(tape),
            small(tape),
            small(tape)
        ),
        5 => format!("[(k, v) for k, v in {}.items()]", dict(tape)),
        6 => format!("[x for x in {}]", iterable(tape)),
        7 => format!("[[x * y for y in range(x)] for x in {} if {}]", ints(tape), condition(tape, "x")),
        _ => format!("[x for x in {} if x for x in [x, {}]]", ints(tape), small(tape)),
    }));
    lines.push("emit(x)".to_owned());
    Body::lines(lines)
}

fn block(tape: &mut Tape<'_>, depth: usize, looping: bool, lines: &mut Vec<String>) {
    let pad = "    ".repeat(depth);
    let count = 1 + tape.choose(4);
    for _ in 0..count {
        match tape.choose(if depth > 3 { 4 } else { 9 }) {
            0 => lines.push(format!("{pad}n += {}", small(tape))),
            1 => lines.push(format!("{pad}emit(n)")),
            2 => lines.push(format!("{pad}m = n * {}", small(tape))),
            3 if looping => {
                lines.push(format!("{pad}if n > {}:", tape.number(-3, 12)));
                lines.push(format!("{pad}    {}", tape.of(&["break", "continue", "pass"])));
            }
            3 => lines.push(format!("{pad}pass")),
            4 | 5 => {
                let name = tape.name("i");
                lines.push(format!("{pad}for {name} in {}:", iterable(tape)));
                lines.push(format!("{pad}    n += 1"));
                block(tape, depth + 1, true, lines);
            }
            6 => {
                lines.push(format!("{pad}if {}:", condition(tape, "n")));
                block(tape, depth + 1, looping, lines);
                if tape.choose(2) == 1 {
                    lines.push(format!("{pad}elif {}:", condition(tape, "n")));
                    block(tape, depth + 1, looping, lines);
                }
                if tape.choose(2) == 1 {
                    lines.push(format!("{pad}else:"));
                    block(tape, depth + 1, looping, lines);
                }
            }
            7 => lines.push(format!("{pad}emit(m)")),
            _ => {
                lines.push(format!("{pad}if {}:", condition(tape, "n")));
                lines.push(format!(
                    "{pad}    {}",
                    tape.of(&["return n", "return emit(n)", "fail(\"stop\", n)", "m = 1"])
                ));
            }
        }
    }
}

pub fn control(tape: &mut Tape<'_>) -> Body {
    let mut lines = vec!["n = 0".to_owned()];
    if tape.choose(4) != 3 {
        lines.push("m = 0".to_owned());
    }
    block(tape, 0, false, &mut lines);
    lines.push("emit(n)".to_owned());
    Body::lines(lines)
}

pub fn assignments(tape: &mut Tape<'_>) -> Body {
    let mut lines = vec!["a, b, l, d = 1, 2, [0, 1, 2], {\"k\": 3}".to_owned()];
    let count = 1 + tape.choose(6);
    for _ in 0..count {
        lines.push(match tape.choose(15) {
            0 => format!("a = {}", any(tape)),
            1 => format!("a, b = {}", iterable(tape)),
            2 => "a, b = b, a".to_owned(),
            3 => format!("(a, [b, c]) = ({}, [{}])", scalar(tape), tape.several(1, 3, small)),
            4 => format!("l[{}] = {}", tape.number(-4, 3), scalar(tape)),
            5 => format!("d[{}] = {}", short(tape), any(tape)),
            6 => format!("a {}= {}", tape.of(&["+", "-", "*", "//", "%", "|", "&", "^", "<<", ">>"]), scalar(tape)),
            7 => format!("l += {}", list(tape)),
            8 => format!("l[{}] {}= {}", tape.number(-1, 3), tape.of(&["+", "-", "*"]), small(tape)),
            9 => format!("d[\"k\"] += {}", small(tape)),
            10 => format!(
                "for a, b in [{}]:\n    emit(a, b)",
                tape.several(0, 3, |tape| format!("({}, {})", small(tape), short(tape)))
            ),
            11 => format!("l[0], a = {}, l[0]", small(tape)),
            12 => format!("a = {} if {} else {}", any(tape), any(tape), any(tape)),
            13 => format!("for l[1] in {}:\n    emit(l)", texts(tape)),
            _ => "emit(a, b, l, d)".to_owned(),
        });
    }
    lines.push("emit(a, b, l, d)".to_owned());
    Body::lines(lines)
}
