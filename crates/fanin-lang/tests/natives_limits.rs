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
        "max(R)",
        "min(R)",
        "all(R)",
        "zip(R, R)",
        "dict(zip(R, R))",
        "json.encode(R)",
        "\",\".join([str(x) for x in R])",
        "[].extend(R)",
        "set([1]).union(R)",
        "set([1]).issubset(R)",
        "str(R) + str(list(R))",
        "sorted(R, key = lambda x: -x)",
        "max(R, key = lambda x: -x)",
    ] {
        stopped(&format!("return {}", call.replace('R', HUGE)));
    }
    // What ends early does.
    for call in ["any(R)", "zip(R, [1])", "len(R)", "str(R)", "R[7]", "5 in R", "bool(R)"] {
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

/// Natives that give the worker back in the middle go on where they were, and end when the steps do.
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
