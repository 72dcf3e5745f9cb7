//! `retailer`: the ways to build a page of many services.

use std::time::Duration;

use fanin_load::{Arrivals, Outcome as Loaded, Plan, Request, Shape};

use super::chart::{Axis, Series, bars};
use super::client::Client;
use super::error::LabError;
use super::outcome::{Found, Table, digits};
use super::process::{Served, cores, on_cores};
use super::stub::{Reply, Stub};
use super::{Context, Experiment};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "retailer",
    title: "The ways to build a page of many services",
    asked: "A retailer's orchestrator asks services for products by mask, and for recommended ones. Its services held 2,000 requests a second, it \
            held 200; what helped was, in this order: a table of masks kept in memory, parallel calls, merged calls, a non-blocking client. \
            The aim was 60 ms at the 95th percentile.",
    run,
};

const AIM: Duration = Duration::from_millis(60);
const WANTED: f64 = 2_000.0;
const SERVICES: [(&str, u64); 4] = [("catalog", 8), ("prices", 6), ("stock", 6), ("reviews", 10)];

const STAR: &str = "
load(\"@upstreams\", \"masks\", \"recommendations\", \"catalog\", \"prices\", \"stock\", \"reviews\")

# What a table of masks that is fetched every five minutes amounts to for a request: it is there.
TABLE = {\"page\": [\"name\", \"text\", \"price\", \"left\", \"stars\"], \"short\": [\"name\", \"price\"]}
MAIN = [1, 2, 3]

def sequence(ids, fields):
    parts = []
    c = catalog.get(\"/products\", query = {\"ids\": ids, \"fields\": fields})
    if c:
        parts.append(c)
    p = prices.get(\"/products\", query = {\"ids\": ids, \"fields\": fields})
    if p:
        parts.append(p)
    s = stock.get(\"/products\", query = {\"ids\": ids, \"fields\": fields})
    if s:
        parts.append(s)
    r = reviews.get(\"/products\", query = {\"ids\": ids, \"fields\": fields})
    if r:
        parts.append(r)
    return parts

def together(ids, fields):
    return [
        catalog.get(\"/products\", query = {\"ids\": ids, \"fields\": fields}),
        prices.get(\"/products\", query = {\"ids\": ids, \"fields\": fields}),
        stock.get(\"/products\", query = {\"ids\": ids, \"fields\": fields}),
        reviews.get(\"/products\", query = {\"ids\": ids, \"fields\": fields}),
    ]

# One after another: each step decides before the next begins.
def naive(req):
    mask = masks.get(\"/masks/page\")
    if len(mask[\"attributes\"]) == 0:
        abort(404)
    main = sequence(MAIN, mask[\"attributes\"])
    if len(main) == 0:
        abort(404)
    found = recommendations.get(\"/recommendations\", query = {\"ids\": MAIN})
    if len(found[\"ids\"]) == 0:
        return {\"main\": main}
    short = masks.get(\"/masks/short\")
    if len(short[\"attributes\"]) == 0:
        abort(404)
    return {\"main\": main, \"more\": sequence(found[\"ids\"], short[\"attributes\"])}

def table(req):
    main = sequence(MAIN, TABLE[\"page\"])
    if len(main) == 0:
        abort(404)
    found = recommendations.get(\"/recommendations\", query = {\"ids\": MAIN})
    if len(found[\"ids\"]) == 0:
        return {\"main\": main}
    return {\"main\": main, \"more\": sequence(found[\"ids\"], TABLE[\"short\"])}

# The story's first variant: main products and recommendations at once, then the recommended products.
def parallel(req):
    main = together(MAIN, TABLE[\"page\"])
    found = recommendations.get(\"/recommendations\", query = {\"ids\": MAIN})
    return {\"main\": main, \"more\": together(found[\"ids\"], TABLE[\"short\"])}

# The second: recommendations first, then one call to each service with the union.
def merged(req):
    found = recommendations.get(\"/recommendations\", query = {\"ids\": MAIN})
    ids = MAIN + [id for id in found[\"ids\"] if id not in MAIN]
    return {\"all\": together(ids, TABLE[\"page\"]), \"more\": found[\"ids\"]}
";

/// A way: its name, flow, whether on threads, calls to backends.
const WAYS: [(&str, &str, bool, u32); 6] = [
    ("blocking, one call after another", "naive", true, 11),
    ("+ a table of masks", "table", true, 9),
    ("+ parallel calls", "parallel", true, 9),
    ("+ merged calls", "merged", true, 5),
    ("merged, non-blocking", "merged", false, 5),
    ("parallel, non-blocking", "parallel", false, 9),
];

fn toml(stub: &Stub) -> String {
    let mut text = String::new();
    for name in ["masks", "recommendations"].into_iter().chain(SERVICES.map(|(name, _)| name)) {
        text.push_str(&format!(
            "[upstreams.{name}]\nurl = '{}/{name}'\nlimit = 4000\nmax_waiting = 4000\nmax_connections = 1000\ntimeout = '2s'\n\
             query_lists = 'comma'\n",
            stub.url()
        ));
    }
    for flow in ["naive", "table", "parallel", "merged"] {
        text.push_str(&format!("[[routes]]\npath = '/{flow}'\nflow = 'flow.star:{flow}'\ntimeout = '2s'\n"));
        text.push_str(&format!(
            "[[routes]]\npath = '/{flow}-threads'\nflow = 'flow.star:{flow}'\ntimeout = '2s'\n\
             executor = {{ threads = 1000, waiting = 1000 }}\n"
        ));
    }
    text
}

/// The backends: each service has some attributes of each product.
fn answer(target: &str) -> Reply {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let ms = Duration::from_millis;
    let service = path.trim_start_matches('/').split('/').next().unwrap_or_default();
    match service {
        "masks" => Reply::json(ms(4), "{\"attributes\": [\"name\", \"price\", \"left\", \"stars\"]}"),
        "recommendations" => Reply::json(ms(12), "{\"ids\": [3, 21, 22, 23]}"),
        _ => {
            let after = SERVICES.iter().find(|(name, _)| *name == service).map_or(0, |(_, after)| *after);
            let ids = query.split('&').find_map(|pair| pair.strip_prefix("ids=")).unwrap_or_default();
            let item = |id: &str| {
                format!(
                    "\"{id}\": {{\"{service}\": \"what {service} knows of product {id}, some hundred bytes of it, as such \
                         services do answer in practice\", \"price\": 19.90}}"
                )
            };
            let items: Vec<String> = ids.split("%2C").flat_map(|ids| ids.split(',')).map(item).collect();
            Reply::json(ms(after), format!("{{{}}}", items.join(", ")))
        }
    }
}

fn load(served: &Served, path: &str, rate: f64, seconds: f64) -> Result<Loaded, LabError> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(LabError::io("a runtime"))?;
    let request = Request::get(&format!("http://{}/{path}", served.addr))?;
    let mut plan = Plan::new(request, Shape::constant(rate, Duration::from_secs_f64(seconds)));
    plan.arrivals = Arrivals::Poisson { seed: 5 };
    plan.timeout = Duration::from_secs(3);
    plan.connections = 2_000;
    Ok(runtime.block_on(fanin_load::run(&plan, |_| {}))?)
}

fn run(context: &Context) -> Result<Found, LabError> {
    let here = cores();
    let (Some(first), Some(last)) = (here.first(), here.last()) else { return Err(LabError::wrong("no core")) };
    let stub = on_cores(&[*last], || Stub::start(false, answer))??;
    let seconds = context.pick(1.5, 3.0);
    let mut found = Found::default();
    let calm = 100.0;
    let mut table = Table::new(
        format!(
            "one instance with one core, {calm} requests a second; then the most that it answers within 60 ms at the 95th percentile"
        ),
        &[
            "way",
            "calls",
            "p75 ms",
            "p95 ms",
            "CPU us a request",
            "threads",
            "most a second",
            "instances for 2,000 a second",
            "story",
        ],
    );
    let (mut charted, mut names) = (Vec::new(), Vec::new());
    let mut figures = Vec::new();
    for (at, (name, flow, threads, calls)) in WAYS.iter().enumerate() {
        let path = if *threads { format!("{flow}-threads") } else { (*flow).to_owned() };
        let served = on_cores(&[*first], || Served::start(&context.program, 1, &toml(&stub), STAR))??;
        Client::connect(served.addr)?.ok(&format!("/{path}"))?;
        let (p75, p95, cpu, most_threads, most) = on_cores(&[*last], || -> Result<_, LabError> {
            load(&served, &path, calm, 0.5)?;
            let before = served.usage()?.cpu;
            let quiet = load(&served, &path, calm, seconds)?;
            let cpu = (served.usage()?.cpu - before).as_secs_f64() * 1e6 / quiet.offered.max(1) as f64;
            // The intervals tell the 75th percentile; over all there are the 50th and 95th.
            let mut most = 0.0;
            let mut rate = 200.0;
            while rate <= 6_400.0 {
                let loaded = load(&served, &path, rate, seconds)?;
                if loaded.latency.p95 > AIM.as_secs_f64() * 1e3 || loaded.good_share() < 0.999 {
                    break;
                }
                most = rate;
                rate *= if context.quick { 2.0 } else { 1.5 };
            }
            Ok((quiet.latency.p75, quiet.latency.p95, cpu, served.usage()?.threads, most))
        })??;
        let instances = if most > 0.0 { format!("{:.0}", (WANTED / most).ceil()) } else { "none would do".to_owned() };
        let story = match at {
            0 => "200 a second; 5 to 8 instances were not enough",
            3 => "over 1,000 threads",
            4 => "4 threads; 4 instances, p75 80 ms; 5: p95 60 ms",
            _ => "",
        };
        table.row([
            (*name).to_owned(),
            calls.to_string(),
            digits(p75),
            digits(p95),
            digits(cpu),
            most_threads.to_string(),
            if most > 0.0 { format!("{most:.0}") } else { "not 200".to_owned() },
            instances,
            story.to_owned(),
        ]);
        charted.push((at as f64, p95));
        names.push(*name);
        figures.push((most, cpu));
    }
    found.tables.push(table);
    let short = ["in sequence", "+ masks", "+ parallel", "+ merged", "merged, n.b.", "parallel, n.b."];
    let most: Vec<(f64, f64)> = figures.iter().enumerate().map(|(at, (most, _))| (at as f64, most.max(1.0))).collect();
    found.plots.push((
        "Each step in the story's order; `n.b.`: non-blocking, the same flow on coroutines.".into(),
        bars("p95 at 100 requests a second", &short, Axis::even("ms"), &[Series::new("p95", charted)]),
    ));
    found.plots.push((
        "The most that one core answers with 95 of 100 within 60 ms.".into(),
        bars("Requests a second within the aim", &short, Axis::even("a second"), &[Series::new("one core", most)]),
    ));
    found.shows = format!(
        "One call after another an instance with one core holds {} within 60 ms; merged and non-blocking it holds {:.0} at {:.0} us of CPU \
         each, against {:.0} at {:.0} us for the same flow on threads.",
        if figures[0].0 > 0.0 {
            format!("{:.0} requests a second", figures[0].0)
        } else {
            "not even 200 requests a second".to_owned()
        },
        figures[4].0,
        figures[4].1,
        figures[3].0,
        figures[3].1
    );
    found.measured(format!(
        "Backends after 4 (masks), 12 (recommendations), 8, 6, 6, 10 ms (the four services), all on one thread of the core that the load generator \
         is on. `fanin serve` has the other core and one worker. Open load with random distances, {seconds} s each; the rate rises by {} until \
         p95 passes 60 ms or a request fails. Threads: of the whole process, after the highest rate.",
        if context.quick { "doubling" } else { "half" }
    ));
    found.measured(
        "`A table of masks` is a constant of the flow here, which is what a snapshot amounts to for a request; merging is written out in the \
         flow. The flows that block run on a pool of 1,000 threads, the others are the same code on coroutines.",
    );
    if here.len() < 3 {
        found.note("Backends and load share one core, so the highest rates may be theirs rather than the server's.");
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backends_answer_what_was_asked() {
        let reply = answer("/stock/products?ids=1%2C7&fields=left");
        let value: serde_json::Value = serde_json::from_slice(&reply.body).unwrap();
        assert_eq!(value.as_object().unwrap().keys().collect::<Vec<_>>(), ["1", "7"]);
        assert_eq!(reply.after, Some(Duration::from_millis(6)));
        assert!(serde_json::from_slice::<serde_json::Value>(&answer("/masks/masks/page").body).is_ok());
    }
}
