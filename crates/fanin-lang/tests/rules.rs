//! The rules of pending values, one test for each sentence that could be broken.
//!
//! Longer than 500 lines because the rules share one set-up, and a rule is found faster in one file.

use std::cell::RefCell;
use std::rc::Rc;

use fanin_lang::testing::{Answer, State, TestHost, program, run};
use fanin_lang::{Failure, Instance, Limits, Machine, Program, Run, Value};

/// The answer to every call: what was called, and some fields to inspect.
fn echo(name: &str, text: &str) -> Answer {
    if text.contains("fail") {
        return Answer::Fail;
    }
    let n = text.bytes().filter(u8::is_ascii_digit).fold(0_u64, |n, digit| n * 10 + u64::from(digit - b'0'));
    Answer::Json(format!(
        "{{\"call\": {:?}, \"n\": {n}, \"ok\": {}, \"none\": null, \"items\": [{{\"id\": {n}}}, {{\"id\": {}}}]}}",
        format!("{name}({text})"),
        n % 2 == 0,
        n + 1
    ))
}

struct Flow {
    program: Program,
    host: TestHost,
    machine: Machine,
    instance: Instance,
    done: Option<Value>,
}

impl Flow {
    /// Starts `main` of a program; nothing is answered until the test says so.
    fn start(text: &str) -> Self {
        let program = load(text);
        let host = TestHost::new(&program, Box::new(echo), Box::new(|| false));
        let main = program.function("test.star", "main").expect("main");
        let instance = Instance::new(&program, main, vec![], Limits::default()).expect("no arguments");
        Self { program, host, machine: Machine::new(), instance, done: None }
    }

    fn go(&mut self) -> Run {
        loop {
            let run = self.instance.run(&mut self.machine, &mut self.host, u64::MAX);
            self.host.send_ready();
            if let Run::Done(value) = &run {
                self.done.get_or_insert_with(|| value.clone());
            }
            if !(matches!(run, Run::Waiting) && self.instance.is_ready()) {
                return run;
            }
        }
    }

    /// Runs until nothing can; the calls sent so far.
    fn sent(&mut self) -> Vec<String> {
        let _ = self.go();
        self.host.sent.clone()
    }

    /// Answers the call that was sent as `text`.
    fn answer(&mut self, text: &str) {
        let at = self
            .host
            .calls
            .iter()
            .position(|call| call.state == State::Sent && format!("{}({})", call.name, call.text) == text)
            .unwrap_or_else(|| panic!("{text} is not on the way: {:?}", self.host.sent));
        self.host.settle(at);
        self.host.send_ready();
    }

    /// Answers everything; the result.
    fn result(&mut self) -> String {
        loop {
            let _ = self.go();
            match (self.host.open().first(), &self.done) {
                (Some(at), _) => {
                    self.host.settle(*at);
                    self.host.send_ready();
                }
                (None, Some(value)) => {
                    let mut text = String::new();
                    fanin_lang::testing::json(value, &mut text);
                    return text;
                }
                (None, None) => panic!("the flow is stuck"),
            }
        }
    }
}

fn load(text: &str) -> Program {
    program(text)
        .unwrap_or_else(|errors| panic!("{}", errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")))
}

/// Runs `main` in many orders of arrival, and with all values there at once; all must agree.
fn every_order(text: &str) -> (Result<String, Box<Failure>>, Vec<String>) {
    let program = load(text);
    let mut host = TestHost::new(&program, Box::new(echo), Box::new(|| true));
    let expected = run(&program, "main", vec![], Limits::default(), &mut host, &mut |_| 0);
    let writes = writes_of(&host);
    for seed in 0..40_u64 {
        let state = Rc::new(RefCell::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1));
        let random = {
            let state = state.clone();
            move || {
                let mut x = state.borrow_mut();
                *x ^= *x << 13;
                *x ^= *x >> 7;
                *x ^= *x << 17;
                *x
            }
        };
        let coin = random.clone();
        let at_once = Box::new(move || seed % 4 == 3 && coin() % 2 == 0);
        let mut host = TestHost::new(&program, Box::new(echo), at_once);
        let mut pick: Box<dyn FnMut(usize) -> usize> = match seed {
            0 => Box::new(|_| 0),
            1 => Box::new(|open| open - 1),
            _ => {
                let random = random.clone();
                Box::new(move |open| (random() % open as u64) as usize)
            }
        };
        let result = run(&program, "main", vec![], Limits::default(), &mut host, &mut pick);
        assert_eq!(result, expected, "seed {seed}");
        if expected.is_ok() {
            assert_eq!(writes_of(&host), writes, "seed {seed}");
        }
    }
    (expected, writes)
}

fn writes_of(host: &TestHost) -> Vec<String> {
    host.sent.iter().filter(|sent| sent.contains(".post")).cloned().collect()
}

fn value(text: &str) -> String {
    every_order(text).0.unwrap_or_else(|failure| panic!("{failure:?} {:?}", failure.trace))
}

fn failure(text: &str) -> String {
    let failure = every_order(text).0.expect_err("it must fail");
    let line = failure.position.as_ref().map_or(0, |position| position.line);
    format!("{line}: {}", failure.message)
}

// Rule 1: moving does not wait.

#[test]
fn moving_does_not_wait() {
    let mut flow = Flow::start(
        "def pass_on(x):\n    return x\ndef main():\n    x = a.get('/1')\n    l = [x, {'k': x}, (x, struct(f = x))]\n    l.append(x)\n    d = {}\n    d['y'] = pass_on(x)\n    p = x['items'][0]['id']\n    l[0] = p\n    b.get('/2', query = {'p': p}, optional = True) if False else None\n    y = c.get('/3')\n    return [l, d, p, y]\n",
    );
    assert_eq!(flow.sent(), ["a.get(\"/1\")", "c.get(\"/3\")"]);
    assert!(matches!(flow.go(), Run::Done(_) | Run::Waiting));
}

#[test]
fn arguments_are_captured_when_the_call_is_made() {
    let text = "def main():\n    first = a.get('/1')\n    ids = [first['n'], 2]\n    q = {'ids': ids}\n    second = b.get('/2', query = q)\n    ids.append(3)\n    ids[0] = 'changed'\n    q['more'] = 1\n    return second['call']\n";
    let mut flow = Flow::start(text);
    assert_eq!(flow.sent(), ["a.get(\"/1\")"]);
    flow.answer("a.get(\"/1\")");
    assert_eq!(flow.sent()[1], "b.get(\"/2\",{\"ids\":[1,2]})");
    assert_eq!(value(text), "\"b.get(\\\"/2\\\",{\\\"ids\\\":[1,2]})\"");
}

#[test]
fn a_functions_result_is_captured_as_it_was_at_the_call() {
    // The list comes from a function that waits, and is changed right after the call.
    let text = "def make():\n    n = a.get('/1')['n'] + 1\n    return [n]\ndef main():\n    l = make()\n    r = b.get('/2', query = {'l': l, 'first': l[0]})\n    l.append(9)\n    l[0] = 'changed'\n    return [r['call'], l]\n";
    assert_eq!(value(text), "[\"b.get(\\\"/2\\\",{\\\"l\\\":[2],\\\"first\\\":2})\",[\"changed\",9]]");
}

#[test]
fn an_unused_typo_on_an_answer_is_no_error() {
    assert_eq!(
        value(
            "def main():\n    x = a.get('/1')\n    typo = x['itmes'][0]['nope']\n    y = x['none']['deep']\n    return x['n']\n"
        ),
        "1"
    );
}

#[test]
fn a_typo_that_is_decided_on_names_the_answer_the_path_and_the_line() {
    let message = failure(
        "def main():\n    x = a.get('/1')\n    typo = x['items'][0]['di']\n    y = 1\n    return 'yes' if typo else 'no'\n",
    );
    assert_eq!(message, "6: the answer of a.get has no key \"di\" in .items[0]");
    let message =
        failure("def main():\n    x = a.get('/1')\n    if x['n']:\n        pass\n    return [x['none']['id'] == 5]\n");
    assert_eq!(message, "6: the answer of a.get has null where key \"id\" is expected in .none");
}

#[test]
fn a_missing_part_that_is_returned_fails() {
    assert!(failure("def main():\n    return a.get('/1')['nope']\n").contains("has no key \"nope\""));
}

// Rule 2: deciding waits.

#[test]
fn calls_above_an_if_run_side_by_side() {
    let mut flow = Flow::start(
        "def main():\n    x = a.get('/1')\n    y = b.get('/2')\n    if x['ok']:\n        return c.get('/3')\n    return y\n",
    );
    assert_eq!(flow.sent(), ["a.get(\"/1\")", "b.get(\"/2\")"]);
    flow.answer("a.get(\"/1\")");
    assert_eq!(flow.sent().len(), 2);
    assert!(flow.result().contains("b.get"));
}

#[test]
fn every_way_to_decide_waits() {
    let decisions = [
        ("x['n'] == 5", "false"),
        ("5 == x['n']", "false"),
        ("x['n'] in [1, 2]", "true"),
        ("1 in [x['n']]", "true"),
        ("'n' in x", "true"),
        ("x['n'] + 1", "2"),
        ("-x['n']", "-1"),
        ("not x['ok']", "true"),
        ("x['n'] < 2", "true"),
        ("len(x['items'])", "2"),
        ("[i['id'] for i in x['items']]", "[1,2]"),
        ("{x['n']: 1}", "{1:1}"),
        ("'%s' % x['n']", "\"1\""),
        ("f\"{x['n']}\"", "\"1\""),
        ("str([x['n']])", "\"[1]\""),
        ("[0, 7][x['n']]", "7"),
        ("{1: 'one'}[x['n']]", "\"one\""),
        ("'abc'[x['n']:]", "\"bc\""),
        ("sorted([x['items'][1]['id'], x['n']])", "[1,2]"),
        ("x.get('nope', 4)", "4"),
        ("x.get('n')", "1"),
        ("x.keys()[1]", "\"n\""),
        ("x['n'] or 9", "1"),
        ("x['ok'] and 9", "false"),
        ("x.status", "200"),
        ("x.failed", "false"),
        ("x['items'] == [{'id': 1}, {'id': 2}]", "true"),
        ("x['none'] == None", "true"),
        ("type(x['none'])", "\"NoneType\""),
        ("dict(x)['n']", "1"),
        ("[1, 2, 3] == [x['n'], x['n'] + 1, 3]", "true"),
        ("range(x['n'])", "[0]"),
    ];
    for (decision, expected) in decisions {
        assert_eq!(
            value(&format!("def main():\n    x = a.get('/1')\n    return {decision}\n")),
            expected,
            "{decision}"
        );
    }
    assert_eq!(
        value("def main():\n    x = a.get('/1')\n    p, q = x['items']\n    return [q['id'], p['id']]\n"),
        "[2,1]"
    );
    assert_eq!(
        value(
            "def main():\n    x = a.get('/1')\n    n = 0\n    for i in x['items']:\n        n += i['id']\n    return n\n"
        ),
        "3"
    );
    assert_eq!(
        value("def main():\n    x = a.get('/1')\n    s = 'v='\n    s += str(x['n'])\n    return s\n"),
        "\"v=1\""
    );
}

// Rule 3: pipelining.

#[test]
fn a_call_starts_when_its_arguments_come() {
    let mut flow =
        Flow::start("def main():\n    found = a.get('/1')\n    return b.get('/2', query = {'ids': found['items']})\n");
    assert_eq!(flow.sent(), ["a.get(\"/1\")"]);
    assert!(matches!(flow.go(), Run::Done(_) | Run::Waiting), "the flow never suspends");
    flow.answer("a.get(\"/1\")");
    assert_eq!(flow.host.sent[1], "b.get(\"/2\",{\"ids\":[{\"id\":1},{\"id\":2}]})");
}

// Rule 4: a function that must wait is itself moved.

#[test]
fn functions_that_decide_run_side_by_side() {
    let mut flow = Flow::start(
        "def user():\n    x = a.get('/1')\n    if x['n'] == 1:\n        return b.get('/2')['n']\n    return 0\ndef cart():\n    x = a.get('/3')\n    if x['n'] == 3:\n        return b.get('/4')['n']\n    return 0\ndef main():\n    return {'user': user(), 'cart': cart()}\n",
    );
    assert_eq!(flow.sent(), ["a.get(\"/1\")", "a.get(\"/3\")"]);
    flow.answer("a.get(\"/3\")");
    assert_eq!(flow.sent()[2], "b.get(\"/4\")");
    flow.answer("a.get(\"/1\")");
    assert_eq!(flow.sent()[3], "b.get(\"/2\")");
    assert_eq!(flow.result(), "{\"user\":2,\"cart\":4}");
}

#[test]
fn items_of_a_comprehension_run_side_by_side() {
    let mut flow = Flow::start(
        "def main():\n    return [b.get('/1%d' % i)['n'] if a.get('/%d' % i)['n'] == i else 0 for i in range(20)]\n",
    );
    assert_eq!(flow.sent().len(), 20);
    for i in (0..20).rev() {
        flow.answer(&format!("a.get(\"/{i}\")"));
    }
    assert_eq!(flow.sent().len(), 40);
    assert!(flow.result().starts_with("[10,11,12"));
}

#[test]
fn a_comprehension_whose_filters_passed_knows_its_length() {
    let mut flow = Flow::start(
        "def main():\n    x = [a.get('/%d' % i)['n'] + 1 for i in range(3) if i != 1]\n    y = [b.get('/%d' % len(x), query = {'v': v}) for v in x]\n    c.get('/9%d' % len(y), optional = True) if len(y) == 2 else None\n    return [v['n'] for v in y]\n",
    );
    // The statement at the end is not a lone call, so nothing waits for it.
    let sent = flow.sent();
    assert_eq!(sent, ["a.get(\"/0\")", "a.get(\"/2\")", "c.get(\"/92\")"]);
}

#[test]
fn a_filter_that_waits_keeps_order_and_lets_others_go_on() {
    let text = "def main():\n    kept = [i for i in range(6) if a.get('/%d' % i)['ok']]\n    flat = [x['id'] for i in range(3) for x in b.get('/%d' % i)['items'] if x['id'] != 2]\n    pairs = {a.get('/7%d' % i)['n']: i for i in [2, 1, 2]}\n    return [kept, flat, len(kept), pairs]\n";
    let mut flow = Flow::start(text);
    assert_eq!(flow.sent().len(), 12);
    assert_eq!(value(text), "[[0,2,4],[0,1,1,3],3,{72:2,71:1}]");
}

#[test]
fn nested_comprehensions_and_helpers_agree_in_every_order() {
    let text = "def detail(i):\n    x = a.get('/%d' % i)\n    if x['ok']:\n        return {'id': x['n'], 'more': [b.get('/%d' % y['id'])['n'] + 1 for y in x['items'] if y['id'] > 1]}\n    return None\ndef main():\n    ds = [detail(i) for i in range(5)]\n    return [d for d in ds if d]\n";
    assert_eq!(value(text), "[{\"id\":0,\"more\":[]},{\"id\":2,\"more\":[3,4]},{\"id\":4,\"more\":[5,6]}]");
}

#[test]
fn a_function_runs_to_its_end_though_nobody_looks() {
    let text = "def check():\n    x = a.get('/1')\n    if not x['ok']:\n        fail('not ok', x['n'])\n    return 1\ndef main():\n    unused = check()\n    return 'done'\n";
    assert_eq!(failure(text), "5: not ok 1");
}

#[test]
fn a_statement_that_is_a_call_is_awaited() {
    let mut flow = Flow::start(
        "def check():\n    if not a.get('/2')['ok']:\n        fail('no')\ndef main():\n    check()\n    a.get('/4')\n    return b.get('/3')\n",
    );
    assert_eq!(flow.sent(), ["a.get(\"/2\")"]);
    flow.answer("a.get(\"/2\")");
    assert_eq!(flow.sent(), ["a.get(\"/2\")", "a.get(\"/4\")"]);
    flow.answer("a.get(\"/4\")");
    assert_eq!(flow.sent().len(), 3);
    assert_eq!(failure("def main():\n    a.get('/fail')\n    fail('later')\n"), "3: a.get(\"/fail\") failed");
}

#[test]
fn the_length_of_a_helpers_list_waits_for_the_helper() {
    let text = "def build():\n    out = []\n    for i in range(3):\n        x = a.get('/%d' % i)\n        if x['ok']:\n            out.append(x['n'])\n    return out\ndef main():\n    l = build()\n    n = len(l)\n    l.append(7)\n    return [n, l]\n";
    assert_eq!(value(text), "[2,[0,2,7]]");
}

// Rule 5: what changes something is where it is written.

#[test]
fn a_change_waits_for_a_fiber_that_can_see_the_container() {
    // `total` waits, and must see the list as it was when it was called.
    let text = "def total(l):\n    x = a.get('/1')\n    if x['n'] == 1:\n        return len(l)\n    return 0\ndef main():\n    l = [1]\n    n = total(l)\n    l.append(2)\n    m = total(l)\n    l += [3]\n    l[0] = 9\n    return [n, m, l]\n";
    assert_eq!(value(text), "[1,2,[9,2,3]]");
}

#[test]
fn a_change_waits_for_a_fiber_that_sees_the_container_through_another_ones_result() {
    let text = "def make():\n    n = a.get('/1')['n'] + 1\n    return {'l': [n]}\ndef look(d):\n    x = b.get('/2')\n    y = d['l']\n    if x['n'] == 2:\n        return [len(y), len(d)]\n    return 0\ndef main():\n    d = make()\n    seen = look(d)\n    d['more'] = 1\n    d['l'].append(5)\n    return [seen, d]\n";
    assert_eq!(value(text), "[[1,1],{\"l\":[2,5],\"more\":1}]");
}

#[test]
fn a_fresh_list_of_the_caller_is_not_held_back() {
    let mut flow = Flow::start(
        "def detail(i):\n    return a.get('/%d' % i)['n'] + 1\ndef main():\n    out = []\n    for i in range(4):\n        out.append(detail(i))\n    return out\n",
    );
    assert_eq!(flow.sent().len(), 4);
}

#[test]
fn items_that_change_something_run_one_after_another() {
    let text = "def main():\n    seen = []\n    r = [seen.append(i) for i in range(3) if a.get('/%d' % i)['n'] == i]\n    return [seen, r]\n";
    assert_eq!(value(text), "[[0,1,2],[null,null,null]]");
    let mut flow = Flow::start(text);
    assert_eq!(flow.sent().len(), 1);
}

#[test]
fn a_write_starts_when_everything_above_has_succeeded_and_ends_before_what_is_below() {
    let text = "def main():\n    x = a.get('/1')\n    b.post('/2', json = {'v': 1})\n    return c.get('/3')\n";
    let mut flow = Flow::start(text);
    assert_eq!(flow.sent(), ["a.get(\"/1\")"]);
    flow.answer("a.get(\"/1\")");
    assert_eq!(flow.sent(), ["a.get(\"/1\")", "b.post(\"/2\",{\"v\":1})"]);
    flow.answer("b.post(\"/2\",{\"v\":1})");
    assert_eq!(flow.sent().len(), 3);
}

#[test]
fn a_write_is_not_sent_after_a_failure_above_it() {
    let (result, writes) = every_order("def main():\n    x = a.get('/fail')\n    b.post('/2')\n    return 1\n");
    assert_eq!(result.expect_err("it must fail").message, "a.get(\"/fail\") failed");
    assert!(writes.is_empty());
    let (result, writes) = every_order(
        "def check():\n    if a.get('/1')['n'] == 1:\n        fail('guard')\ndef main():\n    g = check()\n    b.post('/2')\n    return g\n",
    );
    assert_eq!(result.expect_err("it must fail").message, "guard");
    assert!(writes.is_empty());
}

#[test]
fn reads_of_later_items_do_not_overtake_an_earlier_items_write() {
    let text = "def step(i):\n    x = a.get('/%d' % i)\n    if x['n'] == i:\n        b.post('/%d' % i)\n    return b.get('/1%d' % i)['n']\ndef main():\n    return [step(i) for i in range(3)]\n";
    let (result, writes) = every_order(text);
    assert_eq!(result.expect("a list"), "[10,11,12]");
    assert_eq!(writes, ["b.post(\"/0\")", "b.post(\"/1\")", "b.post(\"/2\")"]);
    let mut flow = Flow::start(text);
    assert_eq!(flow.sent(), ["a.get(\"/0\")"]);
    flow.answer("a.get(\"/0\")");
    flow.answer_next();
    assert_eq!(flow.sent()[2], "b.get(\"/10\")");
}

impl Flow {
    fn answer_next(&mut self) {
        let _ = self.go();
        let at = self.host.open()[0];
        self.host.settle(at);
        self.host.send_ready();
    }
}

#[test]
fn safe_and_unordered_writes_run_as_reads() {
    let mut flow = Flow::start(
        "def main():\n    x = a.get('/1')\n    y = b.post('/2', safe = True)\n    z = b.post('/3', unordered = True)\n    return [x, y, z]\n",
    );
    assert_eq!(flow.sent().len(), 3);
}

#[test]
fn a_write_through_an_unknown_receiver_is_ordered_too() {
    let text = "def save(u, i):\n    x = a.get('/%d' % i)\n    u.post('/%d' % i, json = {'n': x['n']})\n    return i\ndef main():\n    return [save(b, i) for i in range(3)]\n";
    let (result, writes) = every_order(text);
    assert_eq!(result.expect("a list"), "[0,1,2]");
    assert_eq!(writes.len(), 3);
}

#[test]
fn calls_through_unknown_values_run_in_order() {
    let text = "def inc(i):\n    return a.get('/%d' % i)['n'] + 1\ndef apply(f, i):\n    return f(i)\ndef main():\n    return [apply(inc, i) for i in range(3)]\n";
    assert_eq!(value(text), "[1,2,3]");
    let program = load(text);
    let pure = |name| program.purity(program.function("test.star", name).expect("it is there")).0;
    assert!(pure("inc"));
    assert!(!pure("apply"));
}

#[test]
fn the_analysis_of_what_is_pure() {
    let text = "G = []\ndef own_list():\n    l = []\n    l.append(1)\n    l += [2]\n    return l\ndef argument(l):\n    l.append(1)\ndef alias(l):\n    m = l\n    m.append(1)\ndef element(l):\n    l[0] = 1\ndef inner(x):\n    d = {'l': x}\n    d['l'].append(1)\ndef adds(n):\n    n += 1\n    return n\ndef adds_unknown(n, m):\n    n += m\n    return n\ndef reads(x):\n    return a.get('/1')['n'] + len(x.keys())\ndef writes():\n    b.post('/1')\ndef calls_writes():\n    return writes()\ndef safe_write():\n    return b.post('/1', safe = True)\ndef ping(n):\n    return pong(n) if n else 0\ndef pong(n):\n    return ping(n)\ndef local(n):\n    def f(x):\n        return x + n\n    return f(1)\ndef rebound(n):\n    if n:\n        g = lambda: n\n    else:\n        g = lambda: 0\n    return g()\ndef changing():\n    x = 1\n    f = lambda: x\n    x = 2\n    return f()\ndef param_call(f):\n    return f()\ndef either(p, q):\n    l = p or q\n    l.append(1)\ndef loop(xs):\n    for l in xs:\n        l.append(1)\n";
    let program = load(text);
    let pure: Vec<&str> = [
        "own_list",
        "argument",
        "alias",
        "element",
        "inner",
        "adds",
        "adds_unknown",
        "reads",
        "writes",
        "calls_writes",
        "safe_write",
        "ping",
        "pong",
        "local",
        "rebound",
        "changing",
        "param_call",
        "either",
        "loop",
    ]
    .into_iter()
    .filter(|name| program.purity(program.function("test.star", name).expect("it is there")).0)
    .collect();
    assert_eq!(pure, ["own_list", "adds", "reads", "safe_write", "local"]);
    let writes = |name| program.writes(program.function("test.star", name).expect("it is there"));
    assert!(writes("calls_writes") && !writes("reads"));
}

// Rule 8: failure.

#[test]
fn of_two_failures_the_earlier_in_program_order_is_reported() {
    assert_eq!(
        failure(
            "def main():\n    x = a.get('/fail1')\n    y = b.get('/fail2')\n    if y['n']:\n        pass\n    return x['n'] + 1\n"
        ),
        "4: b.get(\"/fail2\") failed"
    );
    let two = "def f(i):\n    if a.get('/%d' % i)['n'] == i:\n        fail('f', i)\n    return 1\ndef main():\n    x = f(1)\n    y = f(2)\n    return [x, y]\n";
    assert_eq!(failure(two), "4: f 1");
    let items =
        "def main():\n    return [fail('item', i) if a.get('/%d' % i)['n'] in [3, 5] else i for i in range(8)]\n";
    assert_eq!(failure(items), "3: item 3");
    let nested = "def inner(i):\n    if a.get('/%d' % i)['n'] > 5:\n        fail('inner', i)\n    return i\ndef outer(i):\n    x = [inner(10 * i + j) for j in range(3)]\n    if b.get('/%d' % i)['n'] == 0:\n        fail('outer', i)\n    return x\ndef main():\n    x = outer(0)\n    y = outer(1)\n    fail('main')\n";
    assert_eq!(failure(nested), "9: outer 0");
}

#[test]
fn a_missing_part_of_a_functions_result_fails_where_it_is_taken() {
    let text = "def make():\n    n = a.get('/1')['n'] + 1\n    return [n]\ndef main():\n    l = make()\n    unused = l[5]\n    return 'done'\n";
    assert_eq!(failure(text), "7: index 5 is out of range: the list has 1");
    let text = "def make():\n    n = a.get('/1')['n'] + 1\n    return [n, {'x': [n]}]\ndef main():\n    l = make()\n    p = l[1]['x'][0]\n    l[1]['x'][0] = 'changed'\n    return [p, l]\n";
    assert_eq!(value(text), "[2,[2,{\"x\":[\"changed\"]}]]");
}

#[test]
fn a_failed_call_can_be_asked() {
    assert_eq!(
        value("def main():\n    x = a.get('/fail')\n    return [x.failed, x.error] if x.failed else 0\n"),
        "[true,\"a.get(\\\"/fail\\\") failed\"]"
    );
    assert_eq!(failure("def main():\n    x = a.get('/fail')\n    return x.status\n"), "3: a.get(\"/fail\") failed");
}

#[test]
fn a_list_that_a_waiting_function_loops_over_is_changed_after_its_end() {
    // Found by the pending programs: the change failed as if the loop were its own.
    let text = "def main():\n    l = [1, 2]\n    x = count(l)\n    l.append(3)\n    d = {'k': 1}\n    y = count(d)\n    d['l'] = 2\n    s = set([1])\n    z = count(s)\n    s.add(2)\n    return [x, y, z, l, d, list(s)]\ndef count(of):\n    n = 0\n    for i in of:\n        if a.get('/2')['ok']:\n            n += 1\n    return n\n";
    assert_eq!(value(text), r#"[2,1,1,[1,2,3],{"k":1,"l":2},[1,2]]"#);
    // A loop of its own is over only when it is.
    let text = "def main():\n    l = [1, 2]\n    x = count(l)\n    for i in l:\n        l.append(3)\n    return x\ndef count(of):\n    n = 0\n    for i in of:\n        if a.get('/2')['ok']:\n            n += 1\n    return n\n";
    assert!(failure(text).contains("while a loop runs over it"), "{}", failure(text));
}

#[test]
fn a_write_does_not_wait_for_optional_calls() {
    let mut flow = Flow::start(
        "def main():\n    x = a.get('/1', optional = True)\n    y = a.get('/2')\n    b.post('/3')\n    return [x, y]\n",
    );
    assert_eq!(flow.sent(), ["a.get(\"/1\")", "a.get(\"/2\")"]);
    flow.answer("a.get(\"/2\")");
    assert_eq!(flow.sent().last().map(String::as_str), Some("b.post(\"/3\")"));
}

#[test]
fn an_optional_failure_is_contagious_through_a_chain_of_calls() {
    let text = "def main():\n    x = a.get('/fail', optional = True)\n    y = b.get('/1', query = {'id': x['items'][0]['id']}, optional = True)\n    z = c.get('/2', query = {'id': y['n']})\n    return [x, x['items']['deep'], z, z == None, bool(z), z or 'nothing', x.failed, z.failed, x.get('k', 1)]\n";
    assert_eq!(value(text), "[null,null,null,true,false,\"nothing\",true,true,null]");
    let program = load(text);
    let mut host = TestHost::new(&program, Box::new(echo), Box::new(|| false));
    let _ = run(&program, "main", vec![], Limits::default(), &mut host, &mut |_| 0);
    assert_eq!(host.sent, ["a.get(\"/fail\",)".replace(",)", ")")], "what needs an absent value is not sent");
}

#[test]
fn answers_are_frozen_and_dict_makes_one_to_change() {
    assert!(failure("def main():\n    x = a.get('/1')\n    x['n'] = 2\n").contains("frozen"));
    assert_eq!(
        value("def main():\n    x = dict(a.get('/1'))\n    x['n'] = 2\n    return [x['n'], x['ok']]\n"),
        "[2,false]"
    );
}

// Guards.

#[test]
fn fibers_are_bounded() {
    let program = load("def main():\n    return [1 if a.get('/%d' % i)['ok'] else 2 for i in range(100)]\n");
    let mut host = TestHost::new(&program, Box::new(echo), Box::new(|| false));
    let limits = Limits { fibers: 50, ..Limits::default() };
    let failure = run(&program, "main", vec![], limits, &mut host, &mut |_| 0).expect_err("it must fail");
    assert!(failure.message.contains("more than 50 functions and items wait"));
}

#[test]
fn depth_counts_through_functions_that_stepped_aside() {
    let mut text = String::from("def f0():\n    return a.get('/1')['n'] + 1\n");
    for i in 1..70 {
        text.push_str(&format!("def f{i}():\n    return f{}() if a.get('/{i}')['n'] else 0\n", i - 1));
    }
    text.push_str("def main():\n    return f69()\n");
    assert!(failure(&text).contains("nested deeper than 64"));
}

#[test]
fn a_run_yields_when_its_budget_is_used_up() {
    let program = load("def main():\n    n = 0\n    for i in range(1000):\n        n += i\n    return n\n");
    let main = program.function("test.star", "main").expect("main");
    let mut host = TestHost::new(&program, Box::new(echo), Box::new(|| false));
    let mut machine = Machine::new();
    let mut instance = Instance::new(&program, main, vec![], Limits::default()).expect("no arguments");
    let mut yields = 0;
    loop {
        match instance.run(&mut machine, &mut host, 100) {
            Run::Yielded => yields += 1,
            Run::Done(value) => {
                assert!(matches!(value, Value::Int(499_500)));
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    assert!((30..60).contains(&yields), "{yields}");
}

#[test]
fn a_suspended_flow_is_small() {
    let mut flow = Flow::start(
        "def main():\n    user = a.get('/1')\n    cart = a.get('/2')\n    ads = b.get('/3')\n    if user['ok']:\n        return 1\n    return {'user': user, 'cart': cart, 'ads': ads}\n",
    );
    let _ = flow.go();
    assert!(flow.instance.memory() < 1000, "{}", flow.instance.memory());
    drop(flow.program);
}

#[test]
fn what_holds_itself_is_freed() {
    use std::rc::Rc as Count;
    #[derive(Debug)]
    struct Guard(#[allow(dead_code, reason = "its count is what is looked at")] Count<()>);
    impl fanin_lang::value::Object for Guard {
        fn type_name(&self) -> &'static str {
            "guard"
        }
        fn attribute(&self, _name: &str) -> Result<Option<Value>, fanin_lang::Stop> {
            Ok(None)
        }
        fn names(&self) -> Vec<&str> {
            Vec::new()
        }
    }
    let count = Count::new(());
    let program = load(
        "def main(g):\n    l = [g]\n    l.append(l)\n    d = {'g': g}\n    d['t'] = (d, l)\n    def f():\n        return [g, h]\n    h = [f, g]\n    x = a.get('/1')\n    def stuck():\n        return [x['ok'], g]\n    y = stuck()\n    z = [1 for _ in [1, 2] if a.get('/2')['ok'] and g]\n    return z[0]\n",
    );
    let main = program.function("test.star", "main").expect("main");
    for answered in [0, 1, 2, 5] {
        let mut host = TestHost::new(&program, Box::new(echo), Box::new(|| false));
        let guard = Value::object(Guard(count.clone()));
        let mut instance = Instance::new(&program, main, vec![guard], Limits::default()).expect("one argument");
        let mut machine = Machine::new();
        for _ in 0..answered {
            let _ = instance.run(&mut machine, &mut host, u64::MAX);
            if let Some(at) = host.open().first() {
                host.settle(*at);
            }
        }
        drop(instance);
        drop(host);
        assert_eq!(Count::strong_count(&count), 1, "after {answered} answers");
    }
}
