//! Builtins and methods are charged by the size of what they do: whatever a program makes of them,
//! it is stopped at its limits, and soon.

use fanin_lang::{Instance, Kind, Limits, Machine, NoHost, Program, Run};

fn run(body: &str, limits: Limits) -> Run {
    let source = format!("def case():\n    {}\n", body.replace("; ", "\n    "));
    let program = Program::from_source("case.star", &source)
        .unwrap_or_else(|diagnostics| panic!("{body}: {}", diagnostics[0].message));
    let function = program.function("case.star", "case").expect("the case is defined");
    Instance::new(&program, function, Vec::new(), limits).expect("it takes no arguments").run(
        &mut Machine::new(),
        &mut NoHost,
        u64::MAX,
    )
}

const SMALL: Limits = Limits { steps: 20_000, memory: 1 << 20, depth: 64, fibers: 100, value: 1 << 20 };

#[test]
fn what_grows_is_stopped() {
    for body in [
        "x = \"ab\"; for i in range(60): x = x.replace(\"a\", \"aaaa\")",
        "x = \"ab\"; for i in range(60): x = x.replace(\"\", \"-\")",
        "x = \"ab\"; for i in range(60): x = x.join([x, x, x])",
        "x = \"ab\"; for i in range(60): x = \"{0}{0}{0}\".format(x)",
        "x = \"ab\"; for i in range(60): x = \"%s%r%s\" % (x, x, x)",
        "x = \"ab\"; for i in range(60): x = repr([x, x])",
        "x = \"ß\"; for i in range(60): x = (x + x).upper()",
        "x = [1]; for i in range(60): x.extend(x)",
        "x = [1]; for i in range(60): x = list(x + x)",
        "x = (1,); for i in range(60): x = tuple(x + x)",
        "x = [1]; for i in range(60): x = [x, x]; return json.encode(x)",
        "x = [1]; for i in range(60): x = [x, x]; return str(x)",
        "x = \"a,b\"; for i in range(60): x = \",\".join(x.split(\",\") * 2)",
        "x = \"a\"; for i in range(60): x = \"\".join(x.elems() * 2)",
        "return json.indent(\"[\" * 200 + \"]\" * 200, indent = \"i\" * 1000)",
    ] {
        stopped(body);
    }
}

#[test]
fn large_ranges_are_not_gone_through() {
    const HUGE: &str = "range(1, 1000000000000)";
    for call in [
        "list(R)",
        "tuple(R)",
        "set(R)",
        "sorted(R)",
        "reversed(R)",
        "enumerate(R)",
        "zip(R, R)",
        "dict(zip(R, R))",
        "json.encode(R)",
        "\",\".join([str(x) for x in R])",
        "[].extend(R)",
        "set([1]).union(R)",
        "set([1]).issubset(R)",
        "str(R) + str(list(R))",
        "sorted(R, key = lambda x: -x)",
        "max(*R)",
        "dict(**{\"a\": 1, \"b\": list(R)})",
        "max(R, key = lambda x: -x)",
    ] {
        stopped(&format!("return {}", call.replace('R', HUGE)));
    }
    // What ends early does.
    for call in ["any(R)", "all(R)", "min(R)", "max(R)", "zip(R, [1])", "len(R)", "str(R)", "R[7]", "5 in R", "bool(R)"]
    {
        let body = format!("return {}", call.replace('R', HUGE));
        match run(&body, SMALL) {
            Run::Done(_) => {}
            Run::Failed(failure) => panic!("{body}: {}", failure.message),
            Run::Waiting | Run::Yielded => panic!("{body} stopped"),
        }
    }
}

fn stopped(body: &str) {
    match run(body, SMALL) {
        Run::Failed(failure) => {
            assert_eq!(failure.kind, Kind::Limit, "{body}: {}", failure.message);
            assert!(failure.position.is_some(), "{body}: names its line");
        }
        Run::Done(value) => panic!("{body}: gave {value:?}"),
        Run::Waiting | Run::Yielded => panic!("{body} stopped"),
    }
}

#[test]
fn values_within_themselves_are_no_endless_loop() {
    for body in [
        "x = []; x.append(x); return json.encode(x)",
        "x = []; x.append(x); return str(x)",
        "x = {}; x.update(a = x); return json.encode(x)",
        "x = {}; x.setdefault(\"a\", x); return repr(x)",
        "x = []; x.extend([x]); y = []; y.extend([y]); return x.index(y)",
        "x = []; x.insert(0, x); y = []; y.insert(0, y); return sorted([x, y])",
    ] {
        stopped(body);
    }
}

/// Natives that give the worker back in the middle continue where they were, and end when the steps do.
#[test]
fn what_works_in_pieces_ends() {
    let source = "
TEXT = \"[\" + \",\".join([\"[1,{\\\"a\\\":null}]\"] * 2000) + \"]\"
def decode():
    return len(json.decode(TEXT))
def sort():
    return sorted([i * 7919 % 5003 for i in range(2000)])[7]
";
    let program = Program::from_source("case.star", source).expect("it loads");
    for (name, wanted) in [("decode", 2000), ("sort", 21)] {
        let function = program.function("case.star", name).expect("it is there");
        for steps in [2_000, 10_000, 1_000_000] {
            let limits = Limits { steps, ..Limits::default() };
            let mut instance = Instance::new(&program, function, Vec::new(), limits).expect("no arguments");
            let mut machine = Machine::new();
            let mut turns = 0;
            let end = loop {
                match instance.run(&mut machine, &mut NoHost, 500) {
                    Run::Yielded => turns += 1,
                    other => break other,
                }
                assert!(turns < 10_000, "{name} does not end");
            };
            match end {
                Run::Done(value) => assert_eq!((steps > 2_000, value.as_int()), (true, Some(wanted))),
                Run::Failed(failure) => assert_eq!((steps < 1_000_000, failure.kind), (true, Kind::Limit)),
                other => panic!("{other:?}"),
            }
            assert!(steps < 1_000_000 || turns > 2, "{name} has one turn");
        }
    }
}

/// A long text is not searched before anything is made of it: that could not stop half-way.
#[test]
fn a_text_that_is_no_json_is_found_out_in_pieces() {
    let source = "
TEXT = \"[\" + \",\".join([\"[1,{\\\"a\\\":null}]\"] * 2000)
def case():
    return json.decode(TEXT, default = \"none\")
";
    let program = Program::from_source("case.star", source).expect("it loads");
    let function = program.function("case.star", "case").expect("it is there");
    let mut instance = Instance::new(&program, function, Vec::new(), Limits::default()).expect("no arguments");
    let (mut machine, mut slices) = (Machine::new(), 0);
    let value = loop {
        match instance.run(&mut machine, &mut NoHost, 500) {
            Run::Yielded => slices += 1,
            Run::Done(value) => break value,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(value.as_str(), Some("none"));
    // The brackets, the keys and the values count a step each: ten thousand, besides the bytes.
    assert!(slices >= 20, "{slices} slices");
}

#[test]
fn one_operation_is_bounded_by_the_size_of_a_value_and_not_by_all_steps() {
    let usual = |body: &str| run(body, Limits::default());
    for call in ["set(R)", "zip(R, R)", "max(*R)", "set([1]).union(R)", "f(*R)"] {
        let body = format!("f = lambda *x: x; return {}", call.replace('R', "range(1, 1000000000)"));
        match usual(&body) {
            Run::Failed(failure) => {
                assert_eq!(failure.message, "a single value of more than 1048576 bytes", "{body}");
            }
            other => panic!("{body}: {other:?}"),
        }
    }
    // A key that holds the same long text many times, and lists of texts that are equal and not the same.
    for body in [
        "return {(\"x\" * 1000000,) * 60000: 1}",
        "x = \"x\" * 500000; return [x + \"y\"] * 60000 == [x + \"y\"] * 60000",
        "x = \"x\" * 500000; return (x + \"y\",) * 60000 < (x + \"y\",) * 60000",
    ] {
        match usual(body) {
            Run::Failed(failure) => assert!(failure.message.starts_with("one operation compared more"), "{failure:?}"),
            other => panic!("{body}: {other:?}"),
        }
    }
}

#[test]
fn long_texts_cost_steps_wherever_they_are_looked_at() {
    let limits = Limits { steps: 100_000, ..Limits::default() };
    for body in [
        "x = \"x\" * 1000000; d = {x: 1}; n = 0; for i in range(10000): n += d[x]",
        "x = \"x\" * 1000000; d = {x: 1}; for i in range(10000): d[x] = i",
        "x = \"x\" * 1000000; d = {x: 1}; for i in range(10000): d.get(x)",
        "x = \"x\" * 1000000; d = {x: 1}; n = [x in d for i in range(10000)]",
        "x = \"x\" * 1000000; n = [x[7] for i in range(10000)]",
        "x = \"x\" * 1000000; y = x + \"\"; n = [x == y for i in range(10000)]",
        "x = \"x\" * 1000000; n = [x.startswith(\"a\", 9, 10) for i in range(10000)]",
        "x = tuple(range(10000)); d = {}; n = [d.get(x) for i in range(10000)]",
    ] {
        match run(body, limits) {
            Run::Failed(failure) => {
                assert_eq!(failure.message, "the flow took more than 100000 steps", "{body}");
            }
            other => panic!("{body}: {other:?}"),
        }
    }
}

#[test]
fn what_works_in_pieces_gives_the_same_in_slices_of_any_size() {
    let source = r#"
def case():
    text = "ab cd\tef\n gh\r\n" * 50
    items = [{"id": i, "tags": [i, (i, None), {"x": 1.5}], "ü": struct(a = "q\"")} for i in range(60)]
    encoded = json.encode(items)
    return repr([
        text.split(), text.split(None, 3), text.rsplit(), text.rsplit(None, 3), text.split("d"), text.rsplit("d", 4),
        text.split("b c", 2), text.splitlines(), text.splitlines(True), "".split(), "".split(","), "".splitlines(),
        encoded, json.decode(encoded), json.encode_indent(items[:3]), json.encode([set([1, 2]), range(3), {}, [], ()]),
        sorted([i * 7919 % 101 for i in range(300)]), sorted(range(100), key = lambda x: x % 7, reverse = True),
    ])
"#;
    let program = Program::from_source("case.star", source).expect("it loads");
    let function = program.function("case.star", "case").expect("the case is defined");
    let run = |budget: u64| {
        let mut machine = Machine::new();
        let mut instance = Instance::new(&program, function, Vec::new(), Limits::default()).expect("no arguments");
        let mut slices = 1;
        loop {
            match instance.run(&mut machine, &mut NoHost, budget) {
                Run::Done(value) => return (value.as_str().expect("a text").to_owned(), instance.usage(), slices),
                Run::Yielded => slices += 1,
                other => panic!("{other:?}"),
            }
        }
    };
    let whole = run(u64::MAX);
    for budget in [3, 10, 100] {
        let sliced = run(budget);
        assert_eq!(sliced.0, whole.0, "in slices of {budget}");
        assert_eq!(sliced.1.memory, whole.1.memory, "in slices of {budget}");
        assert!(sliced.2 > 50, "{} slices of {budget}", sliced.2);
    }
}

#[test]
fn an_integer_that_is_too_long_is_not_computed_first() {
    let of = |body: &str| run(body, Limits::default());
    for (fits, product) in [
        (true, "(1 << 32768) * (1 << 32767)"),
        (true, "((1 << 32768) - 1) * (1 - (1 << 32768))"),
        (true, "(1 << 65535) * 0"),
        (false, "(1 << 32768) * (1 << 32768)"),
        (false, "-(1 << 65535) * 3"),
    ] {
        match of(&format!("return {product}")) {
            Run::Done(_) => assert!(fits, "{product}"),
            Run::Failed(failure) => {
                assert!(!fits, "{product}: {}", failure.message);
                assert_eq!(failure.message, "an integer of more than 65536 bits", "{product}");
            }
            Run::Waiting | Run::Yielded => panic!("{product} stopped"),
        }
    }
}
