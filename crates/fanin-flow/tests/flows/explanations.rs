//! Explanations against the truth: what a longer or shorter call is said to change is what it changes when the flow really runs so.

use std::fmt::Write;
use std::time::Duration;

use fanin_flow::{Reply, explain, replay};
use fanin_trace::{CallTrace, Sharing};
use fanin_upstream::Request;

use crate::common::{Script, after, paused, setup_toml};

const UPSTREAMS: &str = r#"
[upstreams.a]
url = "http://127.0.0.1:1"
[upstreams.b]
url = "http://127.0.0.1:1"
[upstreams.u]
url = "http://127.0.0.1:1"
query_lists = "comma"
[upstreams.u.operations.many]
path = "/many"
batch = { key = "ids", max_keys = 50, linger = "3ms" }
"#;

const STEP: Duration = Duration::from_millis(3);
/// Explanations have all the time they need.
const AMPLE: Duration = Duration::from_secs(600);

/// How many generated flows are tried: more with `FANIN_FLOWS=10000`.
fn flows() -> u64 {
    std::env::var("FANIN_FLOWS").ok().and_then(|text| text.parse().ok()).unwrap_or(150)
}

/// Small numbers from a seed (xorshift64*, Vigna 2016).
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % end
    }
}

fn hash(text: &str) -> u64 {
    text.bytes().fold(7_u64, |hash, byte| hash.wrapping_mul(31).wrapping_add(u64::from(byte)) ^ (hash >> 29))
}

/// A flow of some calls, functions, branches, comprehensions and batches, which depend on each other by chance.
fn generated(seed: u64) -> String {
    let mut random = Random::new(seed);
    let mut star = String::from("load(\"@upstreams\", \"a\", \"b\", \"u\")\n\n");
    let functions = random.below(3);
    for f in 0..functions {
        let upstream = if random.below(2) == 0 { "a" } else { "b" };
        let body = match random.below(5) {
            // They look at a value that may have come already.
            3 => format!(
                "    if x > 3:\n        return {upstream}.get(\"/h{f}\", query = {{\"x\": x}})\n    return {{\"n\": x, \"items\": [x]}}\n"
            ),
            4 => format!(
                "    z = [{upstream}.get(\"/i{f}\", query = {{\"x\": i}}) for i in range(x % 3 + 1)]\n    return {{\"n\": z[0][\"n\"], \"items\": [y[\"n\"] for y in z]}}\n"
            ),
            0 => format!(
                "    y = {upstream}.get(\"/f{f}\", query = {{\"x\": x}})\n    return {{\"n\": y[\"n\"] + x, \"items\": y[\"items\"]}}\n"
            ),
            1 => format!(
                "    y = {upstream}.get(\"/f{f}\", query = {{\"x\": x}})\n    if y[\"n\"] > 3:\n        return a.get(\"/g{f}\", query = {{\"x\": y[\"n\"]}})\n    return y\n"
            ),
            _ => format!(
                "    y = {upstream}.get(\"/f{f}\", query = {{\"x\": x}}, optional = True, timeout = \"20ms\")\n    return {{\"n\": (y or {{\"n\": 1}})[\"n\"], \"items\": [x, 2]}}\n"
            ),
        };
        let _ = write!(star, "def f{f}(x):\n{body}\n");
    }
    star.push_str("def flow(req):\n");
    let lines = 2 + random.below(6);
    for v in 0..lines {
        let upstream = if random.below(2) == 0 { "a" } else { "b" };
        // A number: a literal, or one out of an earlier value.
        let number = |random: &mut Random| match random.below(3) {
            0 if v > 0 => format!("v{}[\"n\"]", random.below(v)),
            1 if v > 0 => format!("v{}[\"n\"] + {}", random.below(v), random.below(3)),
            _ => random.below(9).to_string(),
        };
        let x = number(&mut random);
        let call = format!("{upstream}.get(\"/v{v}\", query = {{\"x\": {x}}})");
        let line = match random.below(9) {
            0 | 1 => format!("    v{v} = {call}\n"),
            2 => format!(
                "    v{v} = {upstream}.get(\"/v{v}\", query = {{\"x\": {x}}}, default = {{\"n\": 2, \"items\": [1]}}, timeout = \"25ms\")\n"
            ),
            3 if v > 0 => {
                let on = random.below(v);
                format!(
                    "    if v{on}[\"n\"] > 3:\n        v{v} = {call}\n    else:\n        v{v} = {{\"n\": 4, \"items\": [5]}}\n"
                )
            }
            4 | 5 if functions > 0 => format!("    v{v} = f{}({x})\n", random.below(functions)),
            6 if functions > 0 && v > 0 => format!(
                "    l{v} = [f{}(i) for i in v{}[\"items\"]]\n    v{v} = {{\"n\": len(l{v}), \"items\": l{v}[0][\"items\"] if l{v} else []}}\n",
                random.below(functions),
                random.below(v)
            ),
            7 => format!(
                "    m{v} = u.many(ids = [{x}, {}])\n    v{v} = {{\"n\": {x}, \"items\": [m{v}]}}\n",
                random.below(5)
            ),
            _ => format!("    v{v} = {call}\n"),
        };
        star.push_str(&line);
    }
    let all: Vec<String> = (0..lines).map(|v| format!("\"v{v}\": v{v}")).collect();
    let _ = writeln!(star, "    return {{{}}}", all.join(", "));
    star
}

/// The answer to a request, some milliseconds later.
fn answer(name: &str, request: &Request) -> Script {
    let target = &request.path_and_query;
    if name == "u" {
        let ids = target.split_once("ids=").map_or("", |(_, ids)| ids).replace("%2C", ",");
        let items: Vec<String> =
            ids.split(',').filter(|id| !id.is_empty()).map(|id| format!("\"{id}\":{{\"id\":{id}}}")).collect();
        return after(7, format!("{{{}}}", items.join(",")));
    }
    let hash = hash(target);
    let items: Vec<String> = (0..hash % 4).map(|item| ((hash >> 8) % 5 + item).to_string()).collect();
    let body = format!("{{\"n\":{},\"items\":[{}]}}", (hash >> 3) % 7, items.join(","));
    after(1 + (hash >> 5) % 40, body)
}

/// Runs a flow for real. `changed`: requests with this target are so many milliseconds longer, or shorter.
fn really(star: &str, changed: Option<(&str, i64)>) -> (Duration, Reply) {
    let changed = changed.map(|(target, by)| (target.to_owned(), by));
    paused(async {
        let it = setup_toml(UPSTREAMS, star, move |name, request| {
            let mut script = answer(name, request);
            if let Some((target, by)) = &changed
                && *target == format!("{} {}", request.method, request.path_and_query)
            {
                let millis = script.delay.as_millis() as i64 + by;
                script.delay = Duration::from_millis(millis.max(0) as u64);
            }
            script
        });
        let start = tokio::time::Instant::now();
        let reply = it.run("/").await;
        (start.elapsed(), reply)
    })
}

fn body(reply: &Reply) -> Vec<u8> {
    reply
        .result
        .as_ref()
        .map_or_else(|error| error.detail.clone().into_owned().into_bytes(), |success| success.body.concat())
}

/// A call that no other has the target of, and that is sent by itself.
fn is_single(calls: &[CallTrace], at: usize) -> bool {
    let call = &calls[at];
    call.sent.is_some()
        && call.outcome != "timeout"
        && call.ended.is_some()
        && call.sharing == Sharing::Alone
        && calls.iter().filter(|other| other.target == call.target && other.upstream == call.upstream).count() == 1
}

struct Tally {
    predictions: usize,
    wrong: Vec<String>,
}

impl Tally {
    fn check(&mut self, is_right: bool, message: impl FnOnce() -> String) {
        self.predictions += 1;
        if !is_right {
            self.wrong.push(message());
        }
    }
}

/// Checks the predictions for one flow.
fn compare(seed: u64, tally: &mut Tally) {
    let star = generated(seed);
    let (took, mut reply) = really(&star, None);
    let Some(record) = reply.record.take() else { return };
    let base = replay(&record, None);
    tally.check(base.as_ref().is_some_and(|(again, _, text)| *again == took && *text == body(&reply)), || {
        format!("seed {seed}: took {took:?}, again {base:?}\n{star}")
    });
    let explanation = explain(&record, STEP, AMPLE);
    let mut random = Random::new(seed ^ 0x5555);
    let count = explanation.calls.len();
    for _ in 0..3.min(count) {
        let at = random.below(count as u64) as usize;
        if !is_single(&explanation.calls, at) {
            continue;
        }
        let call = &explanation.calls[at];
        let by = random.below(60) as i64 - 30;
        let latency = (call.ended.unwrap() - call.sent.unwrap()).as_millis() as i64;
        // Shorter than nothing is no length, and timers take a millisecond at least.
        let by = by.max(1 - latency);
        let (truly, changed) = really(&star, Some((&call.target, by)));
        let predicted = replay(&record, Some((at, by * 1000)));
        // A change that leads to calls that never were made cannot be predicted, and is not.
        let Some((predicted, _, text)) = predicted else { continue };
        tally.check(predicted == truly && text == body(&changed), || {
            format!("seed {seed}: {} by {by} ms: predicted {predicted:?}, truly {truly:?}\n{star}", call.target)
        });
        let Some(effect) = &call.effect else { continue };
        let step = STEP.as_millis() as i64;
        if latency > step {
            let (shorter, _) = really(&star, Some((&call.target, -step)));
            tally.check(took.saturating_sub(shorter) == effect.gain, || {
                format!("seed {seed}: {} gain {:?}, truly {:?}\n{star}", call.target, effect.gain, took - shorter)
            });
        }
        // The last whole millisecond within the slack, and the first beyond it.
        let slack = effect.slack.map(|slack| (slack + Duration::from_micros(40)).as_millis() as i64);
        if let Some(slack) = slack.filter(|slack| *slack > 0) {
            let (within, same) = really(&star, Some((&call.target, slack)));
            tally.check(within == took && body(&same) == body(&reply), || {
                format!("seed {seed}: {} within slack {slack} ms: {within:?} after {took:?}\n{star}", call.target)
            });
        }
        if let Some(slack) = slack {
            let (beyond, other) = really(&star, Some((&call.target, slack + 1)));
            tally.check(beyond != took || body(&other) != body(&reply), || {
                format!("seed {seed}: {} beyond slack {slack} ms: {beyond:?}\n{star}", call.target)
            });
        }
    }
}

#[test]
fn predictions_are_true_for_generated_flows() {
    let mut tally = Tally { predictions: 0, wrong: Vec::new() };
    for seed in 0..flows() {
        compare(seed, &mut tally);
    }
    println!("{} predictions, {} wrong", tally.predictions, tally.wrong.len());
    assert!(tally.predictions > flows() as usize, "{}", tally.predictions);
    // The bar: 99.9 % are right.
    let allowed = tally.predictions / 1000;
    let shown = tally.wrong.iter().take(3).map(String::as_str).collect::<Vec<_>>().join("\n");
    assert!(
        tally.wrong.len() <= allowed,
        "{} of {} predictions are wrong:\n{shown}",
        tally.wrong.len(),
        tally.predictions
    );
}
