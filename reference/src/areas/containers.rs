//! Lists, dicts, sets, slices.

use super::values::{any, bound, dict, int, ints, iterable, key, list, scalar, set, short, small, text, tuple};
use super::{Body, data, emits};
use crate::tape::Tape;

/// A container in `x`, changed step by step.
fn changed(tape: &mut Tape<'_>, start: String, mut step: impl FnMut(&mut Tape<'_>) -> String) -> Body {
    let mut lines = vec![format!("x = {start}"), "y = x".to_owned()];
    let count = 1 + tape.choose(7);
    for _ in 0..count {
        lines.push(step(tape));
    }
    lines.push("emit(x, y)".to_owned());
    Body::lines(lines)
}

pub fn lists(tape: &mut Tape<'_>) -> Body {
    let start = if tape.choose(2) == 0 { ints(tape) } else { list(tape) };
    changed(tape, start, |tape| match tape.choose(16) {
        0 => format!("x.append({})", scalar(tape)),
        1 => format!("x.extend({})", iterable(tape)),
        2 => format!("x.insert({}, {})", tape.number(-4, 6), scalar(tape)),
        3 => format!("emit(x.pop({}))", tape.of(&["", "0", "1", "5", "2"])),
        4 => format!("x.remove({})", small(tape)),
        5 => format!("emit(x.index({}{}))", small(tape), tape.of(&["", ", 1", ", 0, 3", ", 5"])),
        6 => format!("x[{}] = {}", tape.number(-3, 4), scalar(tape)),
        7 => format!("x += {}", iterable(tape)),
        8 => format!("x = x + {}", list(tape)),
        9 => format!("x = x * {}", tape.number(-1, 3)),
        10 => format!("emit({} in x)", small(tape)),
        11 => "x.clear()".to_owned(),
        12 => format!("x[{}] += {}", tape.number(-2, 3), small(tape)),
        13 => format!("emit(x[{}])", tape.number(-4, 5)),
        14 => format!("emit(x == {}, len(x))", list(tape)),
        _ => "emit(list(x), x)".to_owned(),
    })
}

pub fn dicts(tape: &mut Tape<'_>) -> Body {
    let start = dict(tape);
    changed(tape, start, |tape| match tape.choose(17) {
        0 | 1 => format!("x[{}] = {}", key(tape), scalar(tape)),
        2 => format!("emit(x.get({}{}))", key(tape), tape.of(&["", ", 7", ", None"])),
        3 => format!("emit(x.pop({}{}))", key(tape), tape.of(&["", ", 7"])),
        4 => "emit(x.popitem())".to_owned(),
        5 => format!("emit(x.setdefault({}, {}))", key(tape), scalar(tape)),
        6 => format!("x.update({})", dict(tape)),
        7 => format!("x.update([({}, {})], {} = 1)", key(tape), scalar(tape), tape.of(&["a", "k"])),
        8 => format!("emit(x.{}())", tape.of(&["keys", "values", "items"])),
        9 => "x.clear()".to_owned(),
        10 => format!("emit({} in x)", key(tape)),
        11 => format!("emit(x[{}])", key(tape)),
        12 => format!("x |= {}", dict(tape)),
        13 => format!("emit(x | {})", dict(tape)),
        14 => format!("emit(x == {}, len(x))", dict(tape)),
        15 => format!("x[{}] += {}", key(tape), small(tape)),
        _ => format!("x[{}] = {}", tape.of(&["[]", "{}", "set()", "([],)", "len", "range(2)"]), small(tape)),
    })
}

pub fn sets(tape: &mut Tape<'_>) -> Body {
    let start = set(tape);
    changed(tape, start, |tape| match tape.choose(13) {
        0 | 1 => format!("x.add({})", key(tape)),
        2 => format!("x.{}({})", tape.of(&["remove", "discard"]), key(tape)),
        3 => format!(
            "emit(x.{}({}))",
            tape.of(&["union", "intersection", "difference", "symmetric_difference"]),
            iterable(tape)
        ),
        4 => format!("emit(x.{}({}))", tape.of(&["issubset", "issuperset"]), set(tape)),
        5 => format!("x.update({})", tape.nested(set, ints)),
        6 => format!("emit(x {} {})", tape.of(&["|", "&", "-", "^"]), set(tape)),
        7 => format!("emit({} in x, len(x))", key(tape)),
        8 => "x.clear()".to_owned(),
        9 => format!("emit(x == {})", set(tape)),
        10 => format!("x.add({})", tape.of(&["[]", "{}", "set()", "(1, 2)", "None"])),
        11 => "emit([y for y in x], bool(x))".to_owned(),
        _ => format!("emit(set({}))", iterable(tape)),
    })
}

pub fn slices(tape: &mut Tape<'_>) -> Body {
    Body::lines(emits(tape, 1, 6, |tape| {
        let of = match tape.choose(5) {
            0 => ints(tape),
            1 => tuple(tape),
            2 => text(tape),
            3 => format!("range({}, {}, {})", small(tape), int(tape).len(), tape.of(&["1", "2", "-1"])),
            _ => list(tape),
        };
        match tape.choose(6) {
            0 => format!("{of}[{}]", tape.number(-6, 6)),
            1 => format!("{of}[{}:{}]", bound(tape), bound(tape)),
            2 => format!("len({of}[{}:{}:{}])", bound(tape), bound(tape), tape.of(&["1", "-1", "2"])),
            3 => data::indexed(tape),
            4 => format!("{of}[{}]", tape.nested(short, any)),
            _ => format!("{of}[{}:{}:{}]", bound(tape), bound(tape), tape.of(&["", "1", "2", "-1", "-2", "3", "0"])),
        }
    }))
}
