//! Builtins and methods whose arguments are not there yet: whatever the order in which the values
//! come, the result is the one that they give when all are ready at the start; and a value that is
//! an answer is as good as one that the flow made itself.

use fanin_json::Doc;
use fanin_lang::{CallHandle, Failure, Instance, Limits, Machine, NoHost, Outcome, PendingValue, Program, Run, Value};
use std::rc::Rc;

struct Answer;

impl CallHandle for Answer {
    fn attribute(&self, name: &str, outcome: &Outcome) -> Result<Option<Value>, Failure> {
        Ok((name == "failed").then_some(Value::Bool(outcome.is_err())))
    }

    fn attributes(&self) -> &'static [&'static str] {
        &["failed"]
    }

    fn describe(&self) -> String {
        "answer of test".to_owned()
    }
}

fn json(text: &str) -> Value {
    Value::json(Doc::parse(text.to_owned().into(), 64).expect("a case's value is JSON"))
}

fn finish(run: Run) -> Option<String> {
    match run {
        Run::Done(value) => Some(value.as_str().expect("repr gives a string").to_owned()),
        Run::Failed(failure) => Some(format!("{:?}: {}", failure.kind, failure.message)),
        Run::Waiting => None,
        Run::Yielded => panic!("the budget is unbounded"),
    }
}

/// All orders of 0, 1, 2.
const ORDERS: [[usize; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

/// Runs `body`, whose last part is an expression, with `a`, `b` and `c` as given; gives its result.
fn check(body: &str, values: [&str; 3]) -> String {
    let (statements, expression) = match body.rsplit_once("; ") {
        Some((statements, expression)) => (statements.replace("; ", "\n    "), expression),
        None => ("pass".to_owned(), body),
    };
    let source = format!("def case(a, b, c):\n    {statements}\n    return repr({expression})\n");
    let program = Program::from_source("case.star", &source)
        .unwrap_or_else(|diagnostics| panic!("{body}: {}", diagnostics[0].message));
    let function = program.function("case.star", "case").expect("the case is defined");
    let start = |args: Vec<Value>| {
        Instance::new(&program, function, args, Limits::default()).expect("it takes three arguments")
    };
    let mut machine = Machine::new();

    let there = finish(start(values.map(json).to_vec()).run(&mut machine, &mut NoHost, u64::MAX));
    let there = there.unwrap_or_else(|| panic!("{body}: waits for values that are there"));
    for order in ORDERS {
        let slots: Vec<PendingValue> = values.iter().map(|_| PendingValue::call(Rc::new(Answer))).collect();
        let mut flow = start(slots.iter().cloned().map(Value::Pending).collect());
        let mut result = finish(flow.run(&mut machine, &mut NoHost, u64::MAX));
        for next in order {
            slots[next].settle(Ok(json(values[next])));
            if result.is_none() {
                result = finish(flow.run(&mut machine, &mut NoHost, u64::MAX));
            }
        }
        assert_eq!(result.as_ref(), Some(&there), "{body} with answers in the order {order:?}");
    }
    there
}

const NUMBERS: [&str; 3] = ["3", "1", "2"];
const TEXTS: [&str; 3] = [r#""two words""#, r#""wo""#, r#"" ""#];
const LISTS: [&str; 3] = ["[3, 1, 2]", "[1, [2]]", "[]"];
const DICTS: [&str; 3] = [r#"{"k": 1, "l": [2]}"#, r#"{"k": 3}"#, "{}"];
const PAIRS: [&str; 3] = [r#"[["k", 1], ["l", 2]]"#, r#"["k", 5]"#, r#"[1]"#];

#[test]
fn strings() {
    for body in [
        "a.split(c)",
        "a.split()",
        "a.rsplit(c, 1)",
        "a.replace(b, c)",
        "a.startswith((c, a))",
        "a.startswith(b)",
        "a.endswith([b])",
        "a.find(b)",
        "a.index(c)",
        "a.rindex(\"none\")",
        "a.count(b, 1)",
        "a.join([b, c])",
        "b.join(a)",
        "\", \".join([a, b, c])",
        "\",\".join((a, 1, b))",
        "a.upper()",
        "a.strip(b)",
        "a.partition(c)",
        "a.title() + b",
        "a.elems()",
        "a.removeprefix(b)",
        "a.splitlines()",
        "\"x\".startswith(a)",
        "len(a)",
        "\"%s %r\" % (a, b)",
        "\"%s\" % a",
        "\"%(x)s\" % {\"x\": a}",
        "\"%d\" % a",
        "\"{} {}\".format(a, b)",
        "\"{x!r}\".format(a, x = c)",
        "\"{}\".format(1, a)",
        "str(a)",
        "repr([a, {b: c}])",
        "int(a)",
        "float(b)",
        "bool(a)",
        "ord(c)",
        "ord(a)",
        "hash(a)",
        "type(a)",
        "bytes(a)",
        "hasattr(a, \"upper\")",
        "hasattr(a, b)",
        "getattr(a, \"upper\")()",
        "getattr(a, b, c)",
        "struct(f = a).f",
        "str(struct(f = a, g = [b]))",
        "fail(a, b)",
        "fail(a, sep = b)",
        "a.get(b)",
        "sorted(a)",
        "list(a)",
    ] {
        check(body, TEXTS);
    }
}

#[test]
fn numbers() {
    for body in [
        "range(b, a)",
        "range(a)[b]",
        "list(range(a, 10, c))",
        "range(0, 5, a - 3)",
        "abs(a)",
        "chr(a + 62)",
        "float(a)",
        "int(\"11\", a)",
        "int(\"11\", base = c)",
        "max(a, b, c)",
        "min([a, b, c])",
        "max([a, b, c], key = lambda v: -v)",
        "min(a, b, key = lambda v: -v)",
        "sorted([a, b, c])",
        "sorted([a, b, c], reverse = True)",
        "sorted([a, \"x\", b])",
        "sorted([1, 2, 3], key = lambda v: v * a % 2)",
        "any([a, b])",
        "all([a, b, 0])",
        "set([a, b, a])",
        "tuple([a, b])",
        "enumerate([a, b], start = c)",
        "zip([a, b], (c,))",
        "reversed([a, b])",
        "bytes([a, b])",
        "bytes([a, 300])",
        "[5, 6, 7, 8].index(a + 4)",
        "[a, b, c].index(c)",
        "[a, b, c].index(9)",
        "x = [b]; x.append(a); x",
        "x = [1]; x.insert(a, b); x",
        "x = [1, 2, 3, 4]; [x.pop(a), x.pop(b), x]",
        "x = [b, a]; x.remove(3); x",
        "x = [b]; x.remove(a); x",
        "x = [0]; x.extend([a, b]); x",
        "{a: b, c: a}",
        "{}.get(a, b)",
        "{1: a}.get(b, c)",
        "x = {1: 1}; [x.pop(b), x.pop(a, c), x]",
        "{}.pop(a)",
        "x = {}; [x.setdefault(a, b), x]",
        "x = {}; x.update([(\"k\", a), (b, c)]); x",
        "x = {}; x.update(k = a); x",
        "dict([(a, b), (b, c)])",
        "dict(k = a, l = b)",
        "x = set([b]); x.add(a); x.discard(b); x.remove(c); x",
        "set([a, b]).union([c, a])",
        "set([a]).issubset([b, a])",
        "x = set([a, b]); x.update([c]); x.pop(); x",
        "json.encode({\"x\": [a, b], \"y\": (c,)})",
        "json.encode({a: b})",
        "json.encode_indent([a], indent = \" \")",
        "\"%d of %x\" % (a, b)",
        "\"%s\" % (a, b)",
        "len(a)",
    ] {
        check(body, NUMBERS);
    }
}

#[test]
fn lists() {
    for body in [
        "len(a)",
        "sorted(a)",
        "sorted(b)",
        "max(a)",
        "max(c)",
        "min(a, key = lambda v: -v)",
        "list(a)",
        "tuple(b)",
        "set(a)",
        "set(b)",
        "reversed(a)",
        "enumerate(a)",
        "zip(a, b)",
        "zip(a, c)",
        "any(c)",
        "all(a)",
        "bool(c)",
        "a.index(2)",
        "a.index(b[1][0])",
        "a.append(1)",
        "x = list(a); x.append(b); x",
        "x = [0]; x.extend(a); x.extend(b); x",
        "x = [b, a]; x.remove(a); x",
        "x = []; x.extend(c); x.clear(); x.pop()",
        "str(a)",
        "json.encode(a)",
        "json.encode([a, {\"x\": b}, c])",
        "\"%s %s\" % (a, c)",
        "set(a).union(c, [7])",
        "set(a).intersection(b)",
        "dict(zip([\"x\", \"y\"], a))",
        "dict(a)",
        "dict(b)",
        "[a, b, c].index(c)",
        "{}.get(a)",
        "type(a)",
    ] {
        check(body, LISTS);
    }
    for body in [
        "dict(a)",
        "dict([b])",
        "x = {\"l\": 0}; x.update(a); x",
        "x = {\"k\": 0}; x.update([b, a]); x",
        "x = {\"k\": 0}; x.update([b, c]); x",
    ] {
        check(body, PAIRS);
    }
}

#[test]
fn dicts() {
    for body in [
        "len(a)",
        "a.get(\"k\")",
        "a.get(\"x\", b)",
        "a.get(\"x\")",
        "a.keys()",
        "a.values()",
        "a.items()",
        "list(a)",
        "sorted(a)",
        "dict(a)",
        "x = dict(a); x.update(b); x",
        "x = dict(a); x.update(b, m = c); x",
        "dict(a, k = b)",
        "x = dict(a); [x.pop(\"k\"), x.popitem(), x]",
        "a.pop(\"k\")",
        "a.update(b)",
        "a.setdefault(\"k\", 1)",
        "x = dict(a); x.setdefault(\"z\", b); x",
        "x = dict(a); x.clear(); x",
        "c.popitem()",
        "bool(c)",
        "str(a)",
        "json.encode({\"in\": a, \"b\": b})",
        "json.decode(json.encode(a)) == a",
        "\"%(k)s\" % a",
        "\"%(x)s\" % a",
        "max(a.values(), key = str)",
        "zip(a, b)",
        "a.get([])",
        "type(b)",
    ] {
        check(body, DICTS);
    }
}

#[test]
fn answers_are_encoded_as_they_came() {
    let values = [r#"{"n": 1.50, "t": "\u00e9"}"#, "1e2", r#""\/""#];
    for (body, expected) in [
        ("json.encode(a)", values[0]),
        ("json.encode(a[\"n\"])", "1.50"),
        ("json.encode([b, {\"c\": c}])", r#"[1e2,{"c":"\/"}]"#),
        ("json.encode(struct(x = a[\"t\"]))", r#"{"x":"\u00e9"}"#),
    ] {
        let quoted = format!("\"{}\"", expected.replace('\\', "\\\\").replace('"', "\\\""));
        assert_eq!(check(body, values), quoted, "{body}");
    }
}

#[test]
fn what_a_builtin_is_charged_does_not_depend_on_timing() {
    const MANY: usize = 400;
    for body in ["sorted(a)", "set(a)", "\",\".join(a)", "dict([(x, x) for x in a])", "max(a)"] {
        let source = format!("def case(a):\n    x = {body}\n    return len(a)\n");
        let program = Program::from_source("case.star", &source)
            .unwrap_or_else(|diagnostics| panic!("{body}: {}", diagnostics[0].message));
        let function = program.function("case.star", "case").expect("the case is defined");
        let slots: Vec<PendingValue> = (0..MANY).map(|_| PendingValue::call(Rc::new(Answer))).collect();
        let list = Value::list(slots.iter().cloned().map(Value::Pending).collect());
        // Enough for one run with some to spare, not for two of them.
        let limits = Limits { memory: 400_000, ..Limits::default() };
        let mut flow = Instance::new(&program, function, vec![list], limits).expect("it takes one argument");
        let mut machine = Machine::new();
        let mut run = flow.run(&mut machine, &mut NoHost, u64::MAX);
        for pending in slots {
            assert!(matches!(run, Run::Waiting), "{body} waits for the next element");
            pending.settle(Ok(json("\"text\"")));
            run = flow.run(&mut machine, &mut NoHost, u64::MAX);
        }
        match run {
            Run::Done(_) => {}
            Run::Failed(failure) => panic!("{body}: {}", failure.message),
            Run::Waiting | Run::Yielded => panic!("{body} does not end"),
        }
    }
}
