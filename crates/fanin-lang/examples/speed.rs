//! What evaluation costs: `cargo run --release -p fanin-lang --example speed [NAME [DIVISOR]]`; the
//! divisor makes for fewer rounds, under a profiler.

use std::hint::black_box;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use fanin_json::Doc;
use fanin_lang::testing::program;
use fanin_lang::{
    CallHandle, Failure, Host, HostCall, Instance, Limits, Machine, NoHost, Outcome, PendingValue, ProgramOrder, Run,
    Value,
};

#[global_allocator]
static ALLOCATOR: fanin_heap::Mimalloc = fanin_heap::Mimalloc;

const FLOWS: &str = "
def page(req):
    id = req['id']
    user = a.get('/users', query = {'id': id})
    cart = a.get('/carts', query = {'id': id})
    offers = b.get('/offers')
    news = b.get('/news')
    ads = c.get('/ads', query = {'id': id, 'kind': 'top'})
    return {'user': user, 'cart': cart, 'offers': offers, 'news': news, 'ads': ads}

def decide(req):
    user = a.get('/users', query = {'id': req['id']})
    cart = a.get('/carts')
    offers = b.get('/offers')
    if user['premium']:
        return {'user': user}
    return {'user': user, 'cart': cart, 'offers': offers}

def million(req):
    total = 0
    for i in range(1000000):
        total += i * 2 % 7
    return total

def items(req):
    return [b.get('/b') if a.get('/a')['n'] == 1 else None for i in range(20)]

def answer(req):
    return [{'id': i['id'], 'name': i['name'], 'total': i['price'] * 2} for i in req['items'] if i['price'] > 10]
";

struct Nothing;

impl CallHandle for Nothing {
    fn attribute(&self, _name: &str, _outcome: &Outcome) -> Result<Option<Value>, Failure> {
        Ok(None)
    }
    fn attributes(&self) -> &'static [&'static str] {
        &[]
    }
    fn describe(&self) -> String {
        String::new()
    }
}

struct Bare {
    source: Rc<dyn CallHandle>,
    doc: Doc,
    settle: bool,
    open: Vec<PendingValue>,
}

impl Host for Bare {
    fn call(&mut self, call: HostCall<'_>) -> Result<Value, Failure> {
        for value in call.args.named {
            black_box(call.capture(value)?);
        }
        let pending = PendingValue::call(self.source.clone());
        if self.settle {
            pending.settle(Ok(Value::json(self.doc.clone())));
        } else {
            self.open.push(pending.clone());
        }
        Ok(Value::Pending(pending))
    }
    fn barrier(&mut self, _order: &ProgramOrder) -> Option<PendingValue> {
        None
    }
    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

/// Time on a processor, so that a busy machine does not change the figures; wall time where the system
/// does not tell.
fn clock(start: Instant) -> Duration {
    let spent = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    match spent.and_then(|text| text.split(' ').next()?.parse().ok()) {
        Some(nanos) => Duration::from_nanos(nanos),
        None => start.elapsed(),
    }
}

fn main() {
    let begin = Instant::now();
    let only = std::env::args().nth(1);
    let divisor = std::env::args().nth(2).and_then(|number| number.parse().ok()).unwrap_or(1);
    let wanted = |name: &str| only.as_ref().is_none_or(|only| only == name);
    let program = program(FLOWS).expect("the flows load");
    let doc = Doc::parse(Bytes::from_static(b"{\"n\": 1, \"premium\": false}"), 16).expect("JSON");
    let mut host = Bare { source: Rc::new(Nothing), doc: doc.clone(), settle: true, open: Vec::new() };
    let mut machine = Machine::new();
    let req = Value::json(Doc::parse(Bytes::from_static(b"{\"id\": 77}"), 16).expect("JSON"));
    let rows: Vec<String> = (0..1000)
        .map(|i| format!("{{\"id\": {i}, \"name\": \"n{i}\", \"price\": {}, \"more\": [1, 2]}}", i % 30))
        .collect();
    let table = Value::json(Doc::parse(Bytes::from(format!("{{\"items\": [{}]}}", rows.join(","))), 16).expect("JSON"));

    let mut time = |name: &str, arg: &Value, count: u32| {
        if !wanted(name) {
            return;
        }
        let count = count.div_ceil(divisor);
        let function = program.function("test.star", name).expect("it is there");
        let mut best = f64::INFINITY;
        for _ in 0..7 {
            let start = clock(begin);
            for _ in 0..count {
                let limits = Limits { steps: u64::MAX / 4, memory: u64::MAX, ..Limits::default() };
                let mut flow = Instance::new(&program, function, vec![arg.clone()], limits).expect("one argument");
                match flow.run(&mut machine, &mut host, u64::MAX) {
                    Run::Done(value) => drop(black_box(value)),
                    other => panic!("{other:?}"),
                }
            }
            best = best.min((clock(begin) - start).as_secs_f64() / f64::from(count));
        }
        println!("{name:10} {:12.3} us", best * 1e6);
    };
    time("page", &req, 100_000);
    time("decide", &req, 100_000);
    time("items", &req, 10_000);
    time("answer", &table, 300);
    time("million", &req, 1);

    // The programs of `bench/run eval`.
    for (name, count) in [("reshape", 50), ("strings", 100), ("sort", 60), ("dicts", 500), ("loop", 1000)] {
        if !wanted(name) {
            continue;
        }
        let count: u32 = u32::div_ceil(count, divisor);
        let file = format!("{}/../../bench/eval/{name}.star", env!("CARGO_MANIFEST_DIR"));
        let program = fanin_lang::testing::program(&std::fs::read_to_string(&file).expect("it is in the checkout"))
            .expect("it loads");
        let function = program.function("test.star", "run").expect("it is there");
        let mut best = f64::INFINITY;
        for _ in 0..7 {
            let start = clock(begin);
            for _ in 0..count {
                let size = vec![Value::Int(1000)];
                let mut flow = Instance::new(&program, function, size, Limits::default()).expect("one argument");
                match flow.run(&mut machine, &mut NoHost, u64::MAX) {
                    Run::Done(value) => drop(black_box(value)),
                    other => panic!("{other:?}"),
                }
            }
            best = best.min((clock(begin) - start).as_secs_f64() / f64::from(count));
        }
        println!("{name:10} {:12.3} us", best * 1e6);
    }

    if !wanted("park") {
        return;
    }
    // Suspended flows: all three calls of each on the way.
    host.settle = false;
    let function = program.function("test.star", "decide").expect("it is there");
    let count = 100_000;
    let mut best = (f64::INFINITY, f64::INFINITY, 0);
    for _ in 0..3 {
        let start = clock(begin);
        let mut flows = Vec::with_capacity(count);
        for _ in 0..count {
            let mut flow =
                Instance::new(&program, function, vec![req.clone()], Limits::default()).expect("one argument");
            assert!(matches!(flow.run(&mut machine, &mut host, u64::MAX), Run::Waiting));
            flows.push(flow);
        }
        let parked = (clock(begin) - start).as_secs_f64() / count as f64;
        let size = flows[0].memory() + 3 * PendingValue::SIZE;
        let start = clock(begin);
        for pending in host.open.drain(..) {
            pending.settle(Ok(Value::json(doc.clone())));
        }
        for flow in &mut flows {
            assert!(matches!(flow.run(&mut machine, &mut host, u64::MAX), Run::Done(_)));
        }
        drop(flows);
        let resumed = (clock(begin) - start).as_secs_f64() / count as f64;
        best = (best.0.min(parked), best.1.min(resumed), size);
    }
    println!(
        "start and park {:.3} us, resume to the end {:.3} us, suspended {} bytes",
        best.0 * 1e6,
        best.1 * 1e6,
        best.2
    );
}
