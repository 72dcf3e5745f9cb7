//! Parameters and arguments, closures, recursion.

use super::Body;
use super::values::{any, ints, scalar, small};
use crate::tape::Tape;

pub fn arguments(tape: &mut Tape<'_>) -> Body {
    let mut params = Vec::new();
    let plain = tape.choose(4);
    params.extend(["a", "b", "c"][..plain].iter().map(|name| (*name).to_owned()));
    let defaults = tape.choose(3);
    params.extend(["d", "e"][..defaults].iter().map(|name| format!("{name} = {}", small(tape))));
    let mut shown = [&["a", "b", "c"][..plain], &["d", "e"][..defaults]].concat();
    match tape.choose(4) {
        0 => {}
        1 => {
            params.push("*args".to_owned());
            shown.push("args");
        }
        _ => {
            params.push("*".to_owned());
            params.push(tape.of(&["f", "f = 9"]).to_owned());
            shown.push("f");
        }
    }
    if tape.choose(2) == 1 {
        params.push("**kwargs".to_owned());
        shown.push("kwargs");
    }
    let shown = if shown.is_empty() { "0".to_owned() } else { shown.join(", ") };
    let mut body = Body::default();
    body.top.push(format!("def g({}):\n    return [{shown}]", params.join(", ")));
    let count = 1 + tape.choose(3);
    for _ in 0..count {
        let mut arguments = Vec::new();
        let positional = tape.choose(6);
        arguments.extend((0..positional).map(|_| scalar(tape)));
        for name in ["a", "c", "d", "f", "z"] {
            if tape.choose(4) == 3 {
                arguments.push(format!("{name} = {}", small(tape)));
            }
        }
        match tape.choose(6) {
            4 => arguments.push(format!("*{}", tape.of(&["[1]", "(1, 2)", "[]", "5", "{\"a\": 1}"]))),
            5 => arguments
                .push(format!("**{}", tape.of(&["{\"f\": 1}", "{}", "{\"z\": 1}", "[1]", "{1: 2}", "{\"a\": 5}"]))),
            _ => {}
        }
        body.main.push(format!("emit(g({}))", arguments.join(", ")));
    }
    body
}

pub fn closures(tape: &mut Tape<'_>) -> Body {
    let mut body = Body::default();
    body.top.push("def apply(f, x):\n    return f(x)".to_owned());
    body.top.push("def again(n):\n    return again(n - 1) if n else 0".to_owned());
    body.top.push("def ping(n):\n    return pong(n)\ndef pong(n):\n    return ping(n) if n else 1".to_owned());
    body.main.push("n = 1".to_owned());
    let count = 1 + tape.choose(5);
    for _ in 0..count {
        let line = match tape.choose(12) {
            0 => format!("f = lambda x: x + {}\nemit(f({}), apply(f, n))", small(tape), small(tape)),
            1 => {
                let inner = tape.name("inner");
                format!(
                    "def {inner}(y, k = n):\n    return [y, n, k]\nn += {}\nemit({inner}({}))",
                    small(tape),
                    scalar(tape)
                )
            }
            2 => format!("fs = [lambda: i for i in {}]\nemit([f() for f in fs])", ints(tape)),
            3 => format!("fs = [lambda i = i: i for i in {}]\nemit([f() for f in fs])", ints(tape)),
            4 => {
                let inner = tape.name("make");
                format!(
                    "def {inner}():\n    total = [0]\n    def add(k):\n        total[0] += k\n        return total[0]\n    return add\nadd = {inner}()\nemit(add({}), add({}))",
                    small(tape),
                    small(tape)
                )
            }
            5 => format!("emit(again({}))", tape.number(0, 2)),
            6 => format!("emit(ping({}))", tape.number(0, 1)),
            7 => format!(
                "emit(apply({}, {}))",
                tape.of(&["len", "str", "bool", "lambda x: [x]", "type", "None", "5"]),
                any(tape)
            ),
            8 => {
                let inner = tape.name("inner");
                format!(
                    "def {inner}():\n    {}\n    return n\nemit({inner}())",
                    tape.of(&["pass", "n = 5", "m = n", "[n for n in [1]]"])
                )
            }
            9 => format!("emit(sorted({}, key = lambda x: (x % 2, -x)))", ints(tape)),
            10 => {
                let inner = tape.name("late");
                format!("def {inner}():\n    return v\nv = {}\nemit({inner}())", scalar(tape))
            }
            _ => format!("emit((lambda x, *a, **k: [x, a, k])({}))", tape.several(0, 3, small)),
        };
        body.main.push(line);
    }
    body
}
