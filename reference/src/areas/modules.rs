//! Freezing, change during a loop, `load`.

use super::Body;
use super::values::{any, dict, ints, scalar, set, small};
use crate::tape::Tape;

const CHANGES: [&str; 18] = [
    "x.append(1)",
    "x.clear()",
    "x[0] = 5",
    "x.pop()",
    "x.extend([1])",
    "x.insert(0, 1)",
    "x += [7]",
    "x.remove(1)",
    "x[\"k\"] = 2",
    "x.update({\"k\": 1})",
    "x.setdefault(\"k\", 1)",
    "x.popitem()",
    "x.pop(\"k\")",
    "x |= {\"z\": 1}",
    "x.add(3)",
    "x.discard(3)",
    "x[0] += 1",
    "x.pop(\"nope\", None)",
];

pub fn freezing(tape: &mut Tape<'_>) -> Body {
    let mut body = Body::default();
    let value = match tape.choose(4) {
        0 => ints(tape),
        1 => dict(tape),
        2 => set(tape),
        _ => "[1, [2, 3], {\"k\": [4]}]".to_owned(),
    };
    match tape.choose(5) {
        0 => {
            body.top.push(format!("G = {value}"));
            body.main.push(format!("x = G{}", tape.of(&["", "", "", "[1]", "[2]"])));
        }
        1 => {
            body.top.push(format!("def g(x = {value}):\n    x.append(1)\n    return x"));
            body.main.push("emit(g())".to_owned());
            body.main.push(format!("x = {value}"));
        }
        _ => body.main.push(format!("x = {value}")),
    }
    let change = tape.of(&CHANGES);
    body.main.push(match tape.choose(6) {
        0 => change.to_owned(),
        1 => format!("for y in x:\n    emit(y)\n    {change}"),
        2 => format!(
            "for y in {}(x):\n    emit(y)\n    {change}",
            tape.of(&["list", "tuple", "enumerate", "sorted", "reversed"])
        ),
        3 => format!("emit([x.append({}) for y in x])", scalar(tape)),
        4 => format!("for y in x:\n    for z in x:\n        emit(y, z)\n    emit(len(x))\n{change}"),
        _ => format!("for y in x:\n    break\n{change}"),
    });
    body.main.push("emit(x)".to_owned());
    body
}

pub fn load(tape: &mut Tape<'_>) -> Body {
    let mut body = Body::default();
    let mut first = vec![format!("a = {}", any(tape)), format!("b = {}", ints(tape)), "_hidden = 1".to_owned()];
    first.push(format!("def f(x, y = b):\n    return [x, y, {}]", tape.of(&["a", "b", "c", "len(b)"])));
    first.push(format!("c = {}", tape.of(&["f(1)", "5", "[f(0) for i in range(2)]", "{\"k\": b}", "lambda x: x"])));
    body.files.push(("one.star".to_owned(), first.join("\n") + "\n"));
    let second = tape.choose(3);
    if second > 0 {
        body.files.push((
            "two.star".to_owned(),
            format!(
                "load(\"one.star\", \"f\", bb = \"b\")\nd = {}\ndef h():\n    return [bb, d, f({})]\n",
                tape.of(&["f(2)", "len(bb)", "bb"]),
                small(tape)
            ),
        ));
        body.top.push(format!(
            "load(\"two.star\", {})",
            tape.of(&["\"d\", \"h\"", "\"h\", \"d\"", "d = \"d\", h = \"h\"", "\"bb\"", "\"nope\""])
        ));
    }
    body.top.push(format!(
        "load(\"one.star\", {})",
        tape.of(&[
            "\"a\", \"b\", \"c\", \"f\"",
            "\"a\", b = \"a\", c = \"b\", f = \"f\"",
            "\"_hidden\", \"f\"",
            "\"a\""
        ])
    ));
    let count = 1 + tape.choose(4);
    for _ in 0..count {
        body.main.push(
            match tape.choose(8) {
                0 => "emit(a)",
                1 => "emit(b)",
                2 => "emit(c)",
                3 => "emit(f(3))",
                4 => "emit(f(3, y = 4))",
                5 => "b.append(1)",
                6 if second > 0 => "emit(h(), d)",
                _ => "emit(type(c))",
            }
            .to_owned(),
        );
    }
    body
}
