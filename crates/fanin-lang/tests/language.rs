//! The language without calls: each program's result against what the specification says.

use fanin_lang::testing::{Answer, TestHost, program, run};
use fanin_lang::{Failure, Limits};

fn try_eval(text: &str) -> Result<String, Box<Failure>> {
    let program = program(text)
        .unwrap_or_else(|errors| panic!("{}", errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")));
    let mut host = TestHost::new(&program, Box::new(|_, _| Answer::Fail), Box::new(|| true));
    run(&program, "main", vec![], Limits::default(), &mut host, &mut |_| 0)
}

fn eval(text: &str) -> String {
    try_eval(text).unwrap_or_else(|failure| panic!("{failure:?} {:?}", failure.trace))
}

fn expr(text: &str) -> String {
    eval(&format!("def main():\n    return {text}\n"))
}

fn fails(text: &str) -> String {
    try_eval(text).expect_err("it must fail").message
}

#[test]
fn arithmetic() {
    assert_eq!(expr("1 + 2 * 3 - 4"), "3");
    assert_eq!(expr("7 // 2"), "3");
    assert_eq!(expr("-7 // 2"), "-4");
    assert_eq!(expr("-7 % 3"), "2");
    assert_eq!(expr("7 % -3"), "-2");
    assert_eq!(expr("7 / 2"), "3.5");
    assert_eq!(expr("9223372036854775807 + 1"), "9223372036854775808");
    assert_eq!(expr("-9223372036854775807 - 2"), "-9223372036854775809");
    assert_eq!(expr("9223372036854775808 - 1"), "9223372036854775807");
    assert_eq!(expr("(1 << 70) >> 69"), "2");
    assert_eq!(expr("5 & 3 | 8 ^ 1"), "9");
    assert_eq!(expr("~5"), "-6");
    assert_eq!(expr("1.5 + 1"), "2.5");
    assert_eq!(expr("3.0 // 2"), "1.0");
}

#[test]
fn division_of_long_integers_rounds_down() {
    let wrong = eval(
        "
def main():
    absolute = [1, 7, 9223372036854775807, 1 << 64, (1 << 64) + 1, (1 << 127) - 1, 3 * (1 << 130), 1 << 1000]
    numbers = [0] + [sign * number for number in absolute for sign in [1, -1]]
    wrong = []
    for x in numbers:
        for y in numbers[1:]:
            quotient, rest = x // y, x % y
            whole = quotient * y + rest == x
            signs = rest == 0 or (rest < 0) == (y < 0)
            small = (rest < y) if y > 0 else (rest > y)
            if not (whole and signs and small):
                wrong.append([x, y, quotient, rest])
    return wrong
",
    );
    assert_eq!(wrong, "[]");
    assert_eq!(
        expr("[x // y for x in [1 << 70, -(1 << 70)] for y in [3, -3]]"),
        "[393530540239137101141,-393530540239137101142,-393530540239137101142,393530540239137101141]"
    );
    assert_eq!(expr("[x % y for x in [1 << 70, -(1 << 70)] for y in [3, -3]]"), "[1,-2,2,-1]");
}

#[test]
fn comparison_and_logic() {
    assert_eq!(
        expr("[1 == 1.0, 2 > 1.5, 1 < 1.5, 'a' < 'b', [1, 2] < [1, 3], (1, 2) == (1, 2), [1] == (1,)]"),
        "[true,true,true,true,true,true,false]"
    );
    assert_eq!(expr("1 and 2"), "2");
    assert_eq!(expr("0 or 'x'"), "\"x\"");
    assert_eq!(expr("not []"), "true");
    assert_eq!(expr("1 if [] else 2"), "2");
    assert_eq!(
        expr("[2 in [1, 2], 'a' in {'a': 1}, 'bc' in 'abcd', 3 in range(0, 9, 3), 3 not in (1,)]"),
        "[true,true,true,true,true]"
    );
    assert_eq!(fails("def main():\n    return 1 < 'a'\n"), "int and string cannot be ordered");
    assert_eq!(fails("def main():\n    return 1 + 'a'\n"), "int + string is not possible");
}

#[test]
fn variables_read_while_they_are_assigned() {
    assert_eq!(
        eval(
            "def main():\n    x = 0\n    y = 5\n    x = y or x\n    x = (x and x) + 1\n    x = [x, x + 1]\n    x = x if x else 3\n    x, y = y, x\n    return [x, y]\n"
        ),
        "[5,[6,7]]"
    );
}

#[test]
fn containers() {
    assert_eq!(expr("{'a': 1, 'b': [1, (2, 3)], 1: None}"), "{\"a\":1,\"b\":[1,[2,3]],1:null}");
    assert_eq!(expr("[1, 2, 3][-1] + {'k': 4}['k']"), "7");
    assert_eq!(expr("'hello'[1:3] + 'hello'[::-1]"), "\"elolleh\"");
    assert_eq!(
        expr("[range(10)[2:8:2], [0, 1, 2, 3][::-2], (1, 2, 3)[1:], [1, 2][5:], [1, 2, 3][-2:]]"),
        "[[2,4,6],[3,1],[2,3],[],[2,3]]"
    );
    assert_eq!(expr("[1] + [2] * 2"), "[1,2,2]");
    assert_eq!(expr("{'a': 1} | {'b': 2, 'a': 3}"), "{\"a\":3,\"b\":2}");
    assert_eq!(
        eval(
            "def main():\n    d = {i: i * i for i in range(20)}\n    d.pop(3)\n    d[3] = 'x'\n    return [len(d), d[19], d[3], d.get(99), d.get(99, 7), 4 in d, d.keys()[-1]]\n"
        ),
        "[20,361,\"x\",null,7,true,3]"
    );
    assert_eq!(fails("def main():\n    return {'abc': 1}['abd']\n"), "the dict has no key \"abd\"");
    assert_eq!(fails("def main():\n    return [1][1]\n"), "index 1 is out of range: the list has 1");
    assert_eq!(fails("def main():\n    return {[]: 1}\n"), "list is not hashable, so it cannot be a key");
    assert_eq!(fails("def main():\n    k = 'a'\n    return {k: 1, 'a': 2}\n"), "the key \"a\" comes twice in one dict");
}

#[test]
fn assignment_in_place() {
    assert_eq!(
        eval("def main():\n    a = [1]\n    b = a\n    b += [2]\n    b[0] += 5\n    a.append(3)\n    return [a, b]\n"),
        "[[6,2,3],[6,2,3]]"
    );
    assert_eq!(
        eval(
            "def main():\n    a = 1\n    b = a\n    b += 2\n    d = {'x': [1]}\n    d['x'] += [2]\n    d['n'] = 0\n    d['n'] += 4\n    return [a, b, d]\n"
        ),
        "[1,3,{\"x\":[1,2],\"n\":4}]"
    );
}

#[test]
fn control_flow() {
    assert_eq!(
        eval(
            "def main():\n    out = []\n    for i in range(10):\n        if i == 2:\n            continue\n        elif i == 5:\n            break\n        else:\n            out.append(i)\n    for k, v in {'a': 1}.items():\n        out.append((k, v))\n    for _ in []:\n        pass\n    return out\n"
        ),
        "[0,1,3,4,[\"a\",1]]"
    );
    assert_eq!(
        eval(
            "def main():\n    for i in range(3):\n        for j in range(3):\n            if j == 1:\n                break\n            if i == 1:\n                return [i, j]\n    return None\n"
        ),
        "[1,0]"
    );
    assert_eq!(
        fails("def main():\n    l = [1, 2]\n    for x in l:\n        l.append(x)\n"),
        "this list cannot be changed while a loop runs over it"
    );
    assert_eq!(
        eval("def main():\n    l = [1, 2]\n    for x in l:\n        break\n    l.append(3)\n    return l\n"),
        "[1,2,3]"
    );
    assert_eq!(fails("def main():\n    a, b = [1, 2, 3]\n"), "3 values cannot be assigned to 2 targets");
    assert_eq!(eval("def main():\n    (a, [b, c]), d = (1, [2, 3]), 4\n    return [a, b, c, d]\n"), "[1,2,3,4]");
}

#[test]
fn functions() {
    assert_eq!(
        eval(
            "def f(a, b = 2, *args, c, d = 4, **kwargs):\n    return [a, b, args, c, d, kwargs]\ndef main():\n    return [f(1, c = 3), f(1, 5, 6, 7, c = 8, e = 9), f(*[1, 2, 3], **{'c': 4, 'z': 5})]\n"
        ),
        "[[1,2,[],3,4,{}],[1,5,[6,7],8,4,{\"e\":9}],[1,2,[3],4,4,{\"z\":5}]]"
    );
    assert_eq!(fails("def f(a, b):\n    pass\ndef main():\n    f(1)\n"), "f() needs the argument 'b'");
    assert_eq!(fails("def f(a):\n    pass\ndef main():\n    f(1, 2)\n"), "f() takes 1 argument by position, 2 given");
    assert_eq!(
        fails("def f(abc):\n    pass\ndef main():\n    f(abd = 1)\n"),
        "f() got an unexpected keyword argument 'abd'"
    );
    assert_eq!(fails("def f(a):\n    pass\ndef main():\n    f(1, a = 2)\n"), "f() got two values for the argument 'a'");
    assert_eq!(
        fails("def f(n):\n    return f(n - 1)\ndef main():\n    f(1)\n"),
        "f calls itself, directly or through others"
    );
    assert_eq!(
        fails("def f(g):\n    return g(g)\ndef main():\n    f(f)\n"),
        "f calls itself, directly or through others"
    );
}

#[test]
fn closures() {
    assert_eq!(
        eval(
            "def main():\n    def add(n):\n        return lambda x: x + n\n    fs = [add(i) for i in range(3)]\n    return [f(10) for f in fs]\n"
        ),
        "[10,11,12]"
    );
    // A variable that changes after the closure is made is seen as it is when the closure runs.
    assert_eq!(eval("def main():\n    x = 1\n    f = lambda: x\n    x = 2\n    return f()\n"), "2");
    assert_eq!(
        eval(
            "def main():\n    fs = []\n    for i in range(3):\n        fs.append(lambda: i)\n    return [f() for f in fs]\n"
        ),
        "[2,2,2]"
    );
    assert_eq!(eval("def main():\n    return [f() for f in [lambda: i for i in range(3)]]\n"), "[2,2,2]");
    assert_eq!(
        eval(
            "def outer(p):\n    def inner():\n        return helper(p)\n    def helper(q):\n        return q * 2\n    return inner()\ndef main():\n    return outer(21)\n"
        ),
        "42"
    );
    assert_eq!(
        eval(
            "def outer(p):\n    p = p + 1\n    def inner(p2 = p):\n        return [p, p2]\n    p = 10\n    return inner()\ndef main():\n    return outer(1)\n"
        ),
        "[10,2]"
    );
    assert_eq!(
        fails("def main():\n    def f():\n        return x\n    f()\n    x = 1\n"),
        "the variable x has no value yet"
    );
}

#[test]
fn comprehensions() {
    assert_eq!(expr("[x * y for x in range(1, 4) if x != 2 for y in [x, 10] if y > 1]"), "[10,9,30]");
    assert_eq!(expr("{k: [v for v in range(k)] for k in range(3)}"), "{0:[],1:[0],2:[0,1]}");
    assert_eq!(expr("[(a, b) for a, b in {'x': 1}.items()]"), "[[\"x\",1]]");
    assert_eq!(
        eval("def main():\n    x = 5\n    y = [x for x in range(2)]\n    return [x, y, [x for x in [x]]]\n"),
        "[5,[0,1],[5]]"
    );
}

#[test]
fn sorting_by_key() {
    assert_eq!(expr("sorted([3, 1, 2], key = lambda x: -x)"), "[3,2,1]");
    assert_eq!(expr("sorted(['bb', 'a', 'ccc'], key = len, reverse = True)"), "[\"ccc\",\"bb\",\"a\"]");
    assert_eq!(
        eval("def k(p):\n    return p['n']\ndef main():\n    return sorted([{'n': 2}, {'n': 1}], key = k)\n"),
        "[{\"n\":1},{\"n\":2}]"
    );
    assert_eq!(expr("sorted([2, 1], key = None)"), "[1,2]");
    // Stable in both directions.
    assert_eq!(
        expr("sorted([(1, 'a'), (0, 'b'), (1, 'c')], key = lambda p: p[0], reverse = True)"),
        "[[1,\"a\"],[1,\"c\"],[0,\"b\"]]"
    );
}

#[test]
fn strings() {
    assert_eq!(eval("def main():\n    x = 'w'\n    return f'a{x}b{[1, x]!r}{{}}'\n"), "\"awb[1, \\\"w\\\"]{}\"");
    assert_eq!(expr("'%s is %d%%' % ('x', 5)"), "\"x is 5%\"");
    assert_eq!(
        expr("', '.join([str(x) for x in [1, None, 2.0, 'q', [1], (1,), {'k': True}]])"),
        "\"1, None, 2.0, q, [1], (1,), {\\\"k\\\": True}\""
    );
}

#[test]
fn modules() {
    assert_eq!(
        eval(
            "N = [1, 2]\nD = {'a': N}\ndef f():\n    return N\nS = struct(x = 1, f = f)\nX = [f()[0] for _ in N]\ndef main():\n    return [N, D['a'], S.x, S.f(), X]\n"
        ),
        "[[1,2],[1,2],1,[1,2],[1,1]]"
    );
    assert_eq!(fails("N = [1]\ndef main():\n    N.append(2)\n"), "this list is frozen and cannot be changed");
    assert_eq!(fails("N = {}\ndef main():\n    N['a'] = 2\n"), "this dict is frozen and cannot be changed");
}

#[test]
fn assignment_in_place_does_not_copy_what_is_frozen() {
    for (start, change) in [("[1]", "+= [2]"), ("{1: 2}", "|= {3: 4}"), ("set([1])", "|= set([2])")] {
        let frozen = fails(&format!("X = {start}\ndef main():\n    x = X\n    x {change}\n"));
        assert!(frozen.contains("is frozen and cannot be changed"), "{frozen}");
    }
}

#[test]
fn limits() {
    assert!(fails("def main():\n    for i in range(1 << 40):\n        pass\n").contains("10000000 steps"));
    assert!(
        fails("def main():\n    s = 'x'\n    for i in range(60):\n        s = s + s\n")
            .contains("a single value of more than")
    );
    assert!(fails("def main():\n    return [0] * (1 << 40)\n").contains("bytes of memory"));
    assert!(fails("def main():\n    return 'x' * (1 << 62)\n").contains("bytes of memory"));
    assert!(fails("def main():\n    return [[x for y in range(100000)] for x in range(100000)]\n").contains("than"));
    assert!(fails("def main():\n    l = []\n    l.append(l)\n    return str(l)\n").contains("within itself"));
    assert!(
        fails("def main():\n    l = []\n    for _ in range(100000):\n        l = [l]\n    return l == [l]\n")
            .contains("nested deeper")
    );
}

#[test]
fn failures_name_their_place() {
    let failure = try_eval("def g(x):\n    return x + None\ndef main():\n    y = 1\n    return g(y)\n")
        .expect_err("it must fail");
    let position = failure.position.clone().expect("a place");
    assert_eq!((position.line, position.column), (3, 12));
    let trace: Vec<String> =
        failure.trace.iter().map(|frame| format!("{} {}", frame.function, frame.position.line)).collect();
    assert_eq!(trace, ["main 6", "g 3"]);
}

fn errors(text: &str) -> Vec<String> {
    program(text)
        .expect_err("it must not load")
        .iter()
        .map(|error| format!("{}:{} {}", error.position.line, error.position.column, error.message))
        .collect()
}

#[test]
fn load_reports_all_errors_at_once() {
    assert_eq!(
        errors("def main():\n    a.gte('/x')\n    return xx + yy\n"),
        ["3:7 a has no method gte", "4:12 the name xx is not defined", "4:17 the name yy is not defined"]
    );
    assert_eq!(errors("x = 1\nx = 2\n"), ["3:1 the module's variable x is assigned a second time"]);
    assert!(errors("def main(:\n")[0].starts_with("2:"));
    assert_eq!(errors("x = 1 // 0\n"), ["2:5 division by zero"]);
    assert!(errors("x = a.get('/')\n")[0].contains("only flows make calls"));
}

#[test]
fn nesting_is_bounded_before_parsing() {
    for deep in ["(", "[", "{1:", "f(", "-", "not ", "lambda: ", "[x for x in "] {
        let text = format!("x = {}", deep.repeat(100_000));
        assert!(program(&text).is_err());
    }
    let sum = format!("x = {}1\n", "1 + ".repeat(100_000));
    // What is allowed fits into the stack of a thread, 2 MB, without optimization too.
    let allowed = format!("def main():\n    return {}1{}\n", "[".repeat(95), "]".repeat(95));
    assert!(program(&allowed).is_ok());
    assert!(errors(&sum)[0].contains("nested deeper"));
    let dots = format!("def f(x):\n    return x{}\n", ".a".repeat(100_000));
    assert!(errors(&dots)[0].contains("nested deeper"));
    let calls = format!("def f(x):\n    return x{}\n", "()".repeat(100_000));
    assert!(errors(&calls)[0].contains("nested deeper"));
    // A long table is no deep one.
    let table = format!("x = [{}]\n", "{'a': 1 + 2, 'b': [1, 2]}, ".repeat(2000));
    assert!(program(&table).is_ok(), "{:?}", program(&table).err());
}

#[test]
fn a_source_of_ten_megabytes_is_refused_at_load() {
    let long = "x = 1 + 2  # and a word about it\n".repeat(320_000);
    assert!(long.len() > 10 << 20);
    for text in [
        long.clone(),
        format!("def main():\n    return \"{}\"\n", "x".repeat(10 << 20)),
        "(".repeat(10 << 20),
        format!("def main():\n    return [{}]\n", "1,".repeat(5 << 20)),
    ] {
        let errors = program(&text).expect_err("it is refused");
        assert_eq!(errors.len(), 1);
        assert_eq!(errors[0].to_string(), "test.star:1:1: the file is larger than 1048576 bytes");
    }
    // What is just not too large is a program.
    let lines: String = (0..20_000).map(|at| format!("x{at} = {at} + 2  # and a word about it\n")).collect();
    assert!(lines.len() > 600_000 && program(&lines).is_ok());
}
