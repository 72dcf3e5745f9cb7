//! Join points: what each operation waits for, as a table for the documentation.

use std::fmt::Write as _;

use crate::code::{Binary, Build, Comparison, Op};
use crate::native::{Awaits, Globals, NativeFn};
use crate::value::{FrozenValue, ValueKind};

/// What an operation decides on. Everything else in it is only moved.
fn decides(op: &Op) -> &'static str {
    match op {
        Op::Const { .. } | Op::Int { .. } | Op::None { .. } | Op::Bool { .. } | Op::NewCell { .. } => "nothing",
        Op::Move { .. }
        | Op::Global { .. }
        | Op::SetGlobal { .. }
        | Op::LoadCell { .. }
        | Op::StoreCell { .. }
        | Op::Check { .. }
        | Op::Forget { .. }
        | Op::Pass { .. }
        | Op::Jump { .. }
        | Op::Closure { .. }
        | Op::Begin { .. }
        | Op::Item { .. }
        | Op::Push { .. }
        | Op::End { .. } => "nothing",
        Op::List { .. } | Op::Tuple { .. } | Op::Record { .. } => "nothing",
        Op::Dict { .. } | Op::PushPair { .. } => "the keys",
        Op::Binary { .. } | Op::BinaryInt { .. } | Op::Compare { .. } => "both sides",
        Op::InPlace { .. } => "both sides; of a list only itself and which elements are added, not the elements",
        Op::Equal { .. } => "both sides and what is inside them, as far as they are compared",
        Op::In { .. } => "both sides; of a list or tuple the elements up to the one that is found",
        Op::Not { .. } | Op::Negate { .. } | Op::Plus { .. } | Op::Invert { .. } => "the value",
        Op::JumpIf { .. } | Op::JumpIfNot { .. } => "the condition",
        Op::Key { .. } | Op::Index { .. } => {
            "the key; of an answer, or of a result that is not there yet, nothing else: the part comes when the whole does"
        }
        Op::SetIndex { .. } => "the container and the key, not the value",
        Op::Slice { .. } => "the value and the bounds",
        Op::Attribute { .. } => "the value; of a call's answer the call",
        Op::Format { .. } => "each value and what is inside it",
        Op::Call { .. } => "what is called; of the arguments what the function decides on",
        Op::Return { .. } => "nothing",
        Op::TypeNow { .. } | Op::TypeWait { .. } => "nothing: a value that is not there is checked when it comes",
        Op::Await { .. } => "the call's success",
        Op::Iter { .. } => "what is looped over, not its elements",
        Op::Next { .. } => "nothing",
        Op::Unpack { .. } => "the value, not its elements",
    }
}

/// Constructs of the language and the operation that each becomes.
const CONSTRUCTS: [(&str, Op); 30] = [
    ("`x = y`, passing an argument, `return x`", Op::Return { src: 0 }),
    ("`[x, y]`, `(x, y)`, `{\"a\": x}`", Op::List { dst: 0, base: 0, count: 0 }),
    ("`{x: y}`", Op::Dict { dst: 0, base: 0, pairs: 0 }),
    ("`def`, `lambda`", Op::Closure { dst: 0, closure: 0 }),
    ("`f(x)`", Op::Call { dst: 0, call: 0 }),
    ("`upstream.get(...)` as a statement of its own", Op::Await { src: 0 }),
    ("`x[\"key\"]`", Op::Key { dst: 0, of: 0, key: 0 }),
    ("`x[y]`", Op::Index { dst: 0, of: 0, key: 0 }),
    ("`x[a:b]`", Op::Slice { dst: 0, of: 0, base: 0 }),
    ("`x[y] = z`", Op::SetIndex { of: 0, key: 0, value: 0 }),
    ("`x.name`", Op::Attribute { dst: 0, of: 0, key: 0 }),
    ("`x + y`, `x - y`, `x * y`, `x / y`, `x // y`, `x % y`", Op::Binary { op: Binary::Add, dst: 0, a: 0, b: 0 }),
    ("`x & y`, `x | y`, `x ^ y`, `x << y`, `x >> y`", Op::Binary { op: Binary::And, dst: 0, a: 0, b: 0 }),
    ("`x += y` and its like", Op::InPlace { op: Binary::Add, dst: 0, a: 0, b: 0 }),
    ("`x == y`, `x != y`", Op::Equal { dst: 0, a: 0, b: 0, not: false }),
    ("`x < y` and its like", Op::Compare { op: Comparison::Less, dst: 0, a: 0, b: 0 }),
    ("`x in y`, `x not in y`", Op::In { dst: 0, a: 0, b: 0, not: false }),
    ("`not x`", Op::Not { dst: 0, src: 0 }),
    ("`-x`", Op::Negate { dst: 0, src: 0 }),
    ("`+x`", Op::Plus { dst: 0, src: 0 }),
    ("`~x`", Op::Invert { dst: 0, src: 0 }),
    ("`if x`, `x and y`, `x or y`, `a if x else b`", Op::JumpIf { cond: 0, to: 0 }),
    ("`for x in y`", Op::Iter { dst: 0, src: 0 }),
    ("the next element of a loop", Op::Next { iter: 0, dst: 0, to: 0 }),
    ("`x, y = z`", Op::Unpack { src: 0, base: 0, count: 0 }),
    ("`[... for ...]`: an element", Op::Push { acc: 0, value: 0 }),
    ("`{...: ... for ...}`: an element", Op::PushPair { acc: 0, key: 0, value: 0 }),
    ("a comprehension's result", Op::End { dst: 0, acc: 0, build: Build::List }),
    ("`f\"{x}\"`", Op::Format { dst: 0, format: 0, base: 0 }),
    ("a literal", Op::Const { dst: 0, k: 0 }),
];

/// Natives that decide on elements of what they are given, too; all others leave them as they are.
const INSIDE: [(&str, &str); 37] = [
    ("all", "the elements up to the first that is false"),
    ("any", "the elements up to the first that is true"),
    ("max", "the elements, or their keys"),
    ("min", "the elements, or their keys"),
    ("sorted", "the elements, or their keys"),
    ("set", "the elements"),
    ("sum", "the elements"),
    ("dict", "the pairs and their keys"),
    ("bytes", "the elements"),
    ("hash", "nothing else"),
    ("json.encode", "everything inside"),
    ("json.encode_indent", "everything inside"),
    ("format", "the arguments that the format names, and what is inside them"),
    ("join", "the elements"),
    ("index", "the elements up to the one that is found"),
    ("remove", "the elements up to the one that is found"),
    ("count", "nothing else"),
    ("update", "the pairs and their keys, or the elements"),
    ("union", "the elements"),
    ("intersection", "the elements"),
    ("difference", "the elements"),
    ("symmetric_difference", "the elements"),
    ("intersection_update", "the elements"),
    ("difference_update", "the elements"),
    ("symmetric_difference_update", "the elements"),
    ("isdisjoint", "the elements"),
    ("issubset", "the elements"),
    ("issuperset", "the elements"),
    ("add", "what is inside a tuple"),
    ("discard", "what is inside a tuple"),
    ("get", "what is inside a tuple that is the key"),
    ("pop", "what is inside a tuple that is the key"),
    ("setdefault", "what is inside a tuple that is the key"),
    ("getattr", "the value"),
    ("hasattr", "the value"),
    ("dir", "the value"),
    ("startswith", "the elements of a tuple"),
];

/// Whether the table says that a native decides on elements of its arguments.
#[cfg(test)]
fn inside(name: &str) -> Option<&'static str> {
    INSIDE
        .iter()
        .find(|(native, _)| *native == name)
        .map(|(_, words)| *words)
        .filter(|words| !["nothing else", "the value"].contains(words))
}

fn words(native: &NativeFn, method: bool) -> String {
    let mut words = match native.awaits {
        Awaits::All => "all arguments".to_owned(),
        Awaits::Deep => return "all arguments and everything inside them".to_owned(),
        Awaits::These(0) => String::new(),
        Awaits::These(bits) => {
            let numbered = (0..32).filter(|at| bits & 1 << at != 0).map(|at| match (at, method) {
                (0, true) => "the object".to_owned(),
                (at, _) => format!("argument {}", at + u32::from(!method)),
            });
            numbered.collect::<Vec<_>>().join(" and ")
        }
    };
    let short = native.name;
    if let Some((_, more)) = INSIDE.iter().find(|(name, more)| *name == short && *more != "nothing else") {
        if !words.is_empty() {
            words.push_str("; ");
        }
        words.push_str(more);
    }
    if words.is_empty() { "nothing".to_owned() } else { words }
}

/// The table, in Markdown.
#[must_use]
pub fn table() -> String {
    let mut out = String::from("| | waits for |\n|---|---|\n");
    for (construct, op) in &CONSTRUCTS {
        let construct = construct.replace('|', "\\|");
        let _ = writeln!(out, "| {construct} | {} |", decides(op));
    }
    let globals = Globals::standard();
    let mut rows: Vec<(String, String)> = Vec::new();
    for (name, value) in &globals.names {
        match value {
            FrozenValue::Native(native) => rows.push((format!("`{name}()`"), words(native, false))),
            FrozenValue::Frozen(frozen) => {
                if let crate::value::Frozen::Struct(fields) = &**frozen {
                    for (_, value) in fields {
                        if let FrozenValue::Native(native) = value {
                            rows.push((format!("`{}()`", native.name), words(native, false)));
                        }
                    }
                }
            }
            _ => {}
        }
    }
    for module in crate::modules::NAMES {
        for native in crate::modules::functions(module).unwrap_or_default() {
            rows.push((format!("`{}()`", native.name), words(native, false)));
        }
    }
    rows.sort();
    let kinds = [ValueKind::Str, ValueKind::Bytes, ValueKind::List, ValueKind::Dict, ValueKind::Set];
    for kind in kinds {
        let mut names: Vec<&str> = globals.method_names(kind).collect();
        names.sort_unstable();
        for name in names {
            if let Some(native) = globals.method(kind, name) {
                rows.push((format!("`{}.{name}()`", kind.name()), words(native, true)));
            }
        }
    }
    // One row for all that wait for the same.
    let mut grouped: Vec<(String, Vec<String>)> = Vec::new();
    for (name, words) in rows {
        match grouped.iter_mut().find(|(other, _)| *other == words) {
            Some((_, names)) => names.push(name),
            None => grouped.push((words, vec![name])),
        }
    }
    for (words, names) in grouped {
        let _ = writeln!(out, "| {} | {words} |", names.join(", "));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Answer, TestHost, program};
    use crate::{Instance, Limits, Machine, Run};

    /// Whether `call` waits with `p`, an answer that is not there.
    fn waits(call: &str) -> Option<bool> {
        let source = format!("def main():\n    p = a.get('/x')\n    x = {call}\n    return 1\n");
        let program = program(&source).ok()?;
        let main = program.function("test.star", "main")?;
        let mut host = TestHost::new(&program, Box::new(|_, _| Answer::Json("1".to_owned())), Box::new(|| false));
        let mut instance = Instance::new(&program, main, vec![], Limits::default()).ok()?;
        match instance.run(&mut Machine::new(), &mut host, 10_000) {
            Run::Waiting => Some(true),
            Run::Done(_) => Some(false),
            // It does not take such arguments.
            Run::Failed(_) | Run::Yielded => None,
        }
    }

    #[test]
    fn functions_wait_for_elements_only_where_the_table_says_so() {
        let globals = Globals::standard();
        let mut tried = 0;
        for (name, value) in &globals.names {
            if let FrozenValue::Native(native) = value
                && let Some(waited) = waits(&format!("{name}([p, p])"))
            {
                tried += 1;
                let said = native.awaits == Awaits::Deep || inside(native.name).is_some();
                assert_eq!(waited, said, "{name} of a list of pending elements");
            }
        }
        for kind in ["[p, p]", "{'k': p}"] {
            for method in [
                "append(p)",
                "insert(0, p)",
                "extend([p])",
                "setdefault('z', p)",
                "items()",
                "values()",
                "keys()",
                "copy()",
            ] {
                if let Some(waited) = waits(&format!("{kind}.{method}")) {
                    tried += 1;
                    assert!(!waited, "{kind}.{method}");
                }
            }
        }
        assert!(tried > 15, "{tried}");
    }

    #[test]
    fn constructs_wait_as_the_table_says() {
        for (construct, waited) in [
            ("[p, p]", false),
            ("(p, p)", false),
            ("{'a': p}", false),
            ("{p: 1}", true),
            ("p['k']", false),
            ("[1, 2][p]", true),
            ("p + 1", true),
            ("p == 1", true),
            ("[p] == [1]", true),
            ("1 in [1, p]", false),
            ("1 in [p, 1]", true),
            ("not p", true),
            ("-p", true),
            ("1 if p else 2", true),
            ("p and 1", true),
            ("[y for y in [p, p]]", false),
            ("f'{p}'", true),
            ("f'{[p]}'", true),
            ("(lambda v: v)(p)", false),
            ("(lambda v: 1)(p)", false),
            ("[p, p][0:1]", false),
            ("p.status", true),
            ("[1] + [p]", false),
        ] {
            assert_eq!(waits(construct), Some(waited), "{construct}");
        }
    }
}
