//! `retailer`: the ways to build a page of many services.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use fanin_load::{Arrivals, Outcome as Loaded, Plan, Request, Shape};

use super::chart::{Axis, Series, bars};
use super::error::LabError;
use super::outcome::{Found, Table, digits};
use super::process::{Served, cores, on_cores};
use super::stub::{Reply, Stub};
use super::{Context, Experiment};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "retailer",
    title: "The ways to build a page of many services",
    asked: "A retailer's orchestrator gets products by mask from its services, and recommended products. The services \
    handled 2,000 requests a second, the orchestrator 200. These steps helped, in this order: a table of masks in \
    memory, parallel calls, merged calls, a non-blocking client. The goal was 60 ms at the 95th percentile.",
    run,
};

const AIM: Duration = Duration::from_millis(60);
const WANTED: f64 = 2_000.0;
const BODY: &str =
    r#"{"products": ["p1", "p2", "p3"], "mask": "product_detail_page_attributes", "recommendation_mask": "short"}"#;
const MASKS: [(&str, &str); 2] = [
    (
        "product_detail_page_attributes",
        r#"["name", "photo", "brand", "description", "price", "old_price", "available", "delivery_days", "rating", "review_count"]"#,
    ),
    ("short", r#"["name", "photo", "price", "available"]"#),
];

/// The example's own files.
const TOML: &str = include_str!("../../../../examples/shop/fanin.toml");
const FLOWS: [(&str, &str); 5] = [
    ("flows/owners.star", include_str!("../../../../examples/shop/flows/owners.star")),
    ("flows/products.star", include_str!("../../../../examples/shop/flows/products.star")),
    ("flows/ways.star", include_str!("../../../../examples/shop/flows/ways.star")),
    ("flows/web.star", include_str!("../../../../examples/shop/flows/web.star")),
    ("web/index.html", include_str!("../../../../examples/shop/web/index.html")),
];

/// A way: its name, its path, whether on threads, what the story tells of it.
const WAYS: [(&str, &str, bool, &str); 7] = [
    ("one call after another, blocking", "/threads/sequence", true, "200 a second; 5 to 8 instances were not enough"),
    ("+ a table of masks, + calls side by side", "/threads/parallel", true, ""),
    ("variant 1: two rounds", "/threads/variant1", true, ""),
    ("variant 2: one call a service", "/threads/variant2", true, "over 1,000 threads"),
    ("variant 1, non-blocking", "/ways/variant1", false, ""),
    ("variant 2, non-blocking", "/ways/variant2", false, "4 threads; 4 instances: p75 80 ms; 5: p95 60 ms"),
    ("merged by Fanin, non-blocking", "/products", false, ""),
];
/// The same in the plots.
const SHORT: [&str; 7] =
    ["in sequence", "side by side", "variant 1", "variant 2", "var. 1, n.b.", "var. 2, n.b.", "merged"];

/// The example's configuration on the stub, with routes for threads besides. Bounds that would be met before the aim is are wider.
fn toml(stub: &Stub) -> Result<String, LabError> {
    let mut text = String::new();
    for line in TOML.lines() {
        match line.split_once("\"${").and_then(|(_, rest)| rest.split_once("_URL:-")) {
            Some((name, _)) => text.push_str(&format!("url = '{}/{}'\n", stub.url(), name.to_lowercase())),
            None if line.starts_with("limit = ") || line.starts_with("max_waiting = ") => {}
            None => text.push_str(&format!("{line}\n")),
        }
        // The folder of the page has no connections.
        if line.starts_with("[upstreams.") && !line.contains(".operations.") && line != "[upstreams.web]" {
            text.push_str("limit = 4000\nmax_waiting = 4000\nmax_connections = 1000\n");
        }
    }
    let mut ways = 0;
    for (_, path, ..) in WAYS.iter().filter(|(_, _, threads, _)| *threads) {
        let way = path.trim_start_matches("/threads/");
        if !TOML.contains(&format!("flows/ways.star:{way}\"")) {
            return Err(LabError::Wrong(format!("examples/shop has no way {way}")));
        }
        ways += 1;
        text.push_str(&format!(
            "[[routes]]\nmethod = 'POST'\npath = '{path}'\nflow = 'flows/ways.star:{way}'\ntimeout = '800ms'\n\
             executor = {{ threads = 1000, waiting = 1000 }}\n"
        ));
    }
    debug_assert_eq!(ways, 4);
    Ok(text)
}

fn list<'q>(query: &'q str, name: &str) -> impl Iterator<Item = &'q str> {
    let value = query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
    value.unwrap_or_default().split("%2C").flat_map(|part| part.split(',')).filter(|item| !item.is_empty())
}

/// The backends: masks, recommendations, and owners that say what is asked of each product.
fn answer(target: &str) -> Reply {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let ms = Duration::from_millis;
    let mask = |(name, attributes): &(&str, &str)| format!(r#"{{"name": "{name}", "attributes": {attributes}}}"#);
    let owner = |after: u64| {
        let value = |field: &str, id: &str| match field {
            "price" | "old_price" | "rating" => "19.90".to_owned(),
            "available" => "true".to_owned(),
            "delivery_days" | "review_count" => "3".to_owned(),
            _ => format!(r#""{field} of {id}, some words of it as such services answer in practice""#),
        };
        let product = |id: &str| {
            let fields: Vec<String> =
                list(query, "fields").map(|field| format!(r#""{field}": {}"#, value(field, id))).collect();
            format!(r#""{id}": {{{}}}"#, fields.join(", "))
        };
        let products: Vec<String> = list(query, "ids").map(product).collect();
        Reply::json(ms(after), format!("{{{}}}", products.join(", ")))
    };
    match path.trim_start_matches('/').split('/').collect::<Vec<_>>()[..] {
        ["masks", "masks"] => {
            let masks: Vec<String> = MASKS.iter().map(|it| format!(r#""{}": {}"#, it.0, mask(it))).collect();
            Reply::json(ms(4), format!("{{{}}}", masks.join(", ")))
        }
        ["masks", "masks", name] => {
            let found = MASKS.iter().find(|(other, _)| *other == name).map(mask);
            Reply::json(ms(4), found.unwrap_or_else(|| "null".to_owned()))
        }
        ["recommendations", ..] => {
            Reply::json(ms(12), r#"{"substitutes": ["p21", "p22", "p3"], "complements": ["p31", "p32"]}"#)
        }
        ["catalog", ..] => owner(8),
        ["reviews", ..] => owner(10),
        _ => owner(6),
    }
}

fn load(served: &Served, path: &str, rate: f64, seconds: f64) -> Result<Loaded, LabError> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(LabError::io("a runtime"))?;
    let request = Request::new(http::Method::POST, &format!("http://{}{path}", served.addr))?.with_body(BODY);
    let mut plan = Plan::new(request, Shape::constant(rate, Duration::from_secs_f64(seconds)));
    plan.arrivals = Arrivals::Poisson { seed: 5 };
    plan.timeout = Duration::from_secs(3);
    plan.connections = 2_000;
    Ok(runtime.block_on(fanin_load::run(&plan, |_| {}))?)
}

fn run(context: &Context) -> Result<Found, LabError> {
    let here = cores();
    let (Some(first), Some(last)) = (here.first(), here.last()) else { return Err(LabError::wrong("no core")) };
    let asked = Arc::new(AtomicU64::new(0));
    let counted = asked.clone();
    let counting = move |target: &str| {
        counted.fetch_add(1, Relaxed);
        answer(target)
    };
    let stub = on_cores(&[*last], || Stub::start(false, counting))??;
    let seconds = context.pick(1.5, 2.5);
    let mut found = Found::default();
    let calm = 100.0;
    let mut table = Table::new(
        format!(
            "one instance with one core, {calm} requests a second; then the most that it answers within 60 ms at the \
            95th percentile"
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
    let mut charted = Vec::new();
    let mut figures = Vec::new();
    for (at, (name, path, _, story)) in WAYS.iter().enumerate() {
        let served = on_cores(&[*first], || Served::folder(&context.program, 1, &toml(&stub)?, &FLOWS))??;
        let (calls, p75, p95, cpu, most_threads, most) = on_cores(&[*last], || -> Result<_, LabError> {
            let warm = load(&served, path, calm, 0.5)?;
            if warm.good_share() < 0.9 {
                return Err(LabError::Wrong(format!("{path} does not answer: {:?}", warm.status)));
            }
            let (before, calls) = (served.usage()?.cpu, asked.load(Relaxed));
            let quiet = load(&served, path, calm, seconds)?;
            let each = 1.0 / quiet.offered.max(1) as f64;
            let cpu = (served.usage()?.cpu - before).as_secs_f64() * 1e6 * each;
            let calls = (asked.load(Relaxed) - calls) as f64 * each;
            let mut most = 0.0;
            let mut rate = 200.0;
            while rate <= 6_400.0 {
                let loaded = load(&served, path, rate, seconds)?;
                if loaded.latency.p95 > AIM.as_secs_f64() * 1e3 || loaded.good_share() < 0.999 {
                    break;
                }
                most = rate;
                rate *= if context.quick { 2.0 } else { 1.5 };
            }
            Ok((calls, quiet.latency.p75, quiet.latency.p95, cpu, served.usage()?.threads, most))
        })??;
        let instances = if most > 0.0 { format!("{:.0}", (WANTED / most).ceil()) } else { "none would do".to_owned() };
        table.row([
            (*name).to_owned(),
            format!("{calls:.0}"),
            digits(p75),
            digits(p95),
            digits(cpu),
            most_threads.to_string(),
            if most > 0.0 { format!("{most:.0}") } else { "not 200".to_owned() },
            instances,
            (*story).to_owned(),
        ]);
        charted.push((at as f64, p95));
        figures.push((most, cpu));
    }
    found.tables.push(table);
    let most: Vec<(f64, f64)> = figures.iter().enumerate().map(|(at, (most, _))| (at as f64, most.max(1.0))).collect();
    found.plots.push((
        "The versions in the story's order; `n.b.`: non-blocking, the same code on coroutines.".into(),
        bars("p95 at 100 requests a second", &SHORT, Axis::even("ms"), &[Series::new("p95", charted)]),
    ));
    found.plots.push((
        "The highest rate at which one core answers 95 % within 60 ms.".into(),
        bars("Requests a second within the aim", &SHORT, Axis::even("a second"), &[Series::new("one core", most)]),
    ));
    found.shows = format!(
        "With sequential calls one core handles {} within 60 ms. Variant 2 handles {:.0} on threads and {:.0} without \
         blocking, at {:.0} and {:.0} us of CPU each. Written plainly and merged by Fanin, the page reaches {:.0} at \
         {:.0} us.",
        if figures[0].0 > 0.0 {
            format!("{:.0} requests a second", figures[0].0)
        } else {
            "not even 200 requests a second".to_owned()
        },
        figures[3].0,
        figures[5].0,
        figures[3].1,
        figures[5].1,
        figures[6].0,
        figures[6].1,
    );
    found.measured(format!(
        "The flows are those of examples/shop. All build the same page: three products by a mask of ten attributes, \
        five recommended ones by another. Backends answer after 4 (masks), 12 (recommendations), 8, 6, 6, 10 ms (the \
        four services of attributes). They share a core with the load generator. `fanin serve` has the other core and \
        one worker. Open load with Poisson arrivals, \
         {seconds} s each; the rate rises by {} until p95 exceeds 60 ms or a request fails. Threads are those of the \
         whole process, after the highest rate.",
        if context.quick { "doubling" } else { "half" }
    ));
    found.measured(
        "All but the first version keep the masks in a snapshot. Blocking versions run on a pool of 1,000 threads; \
        the others are the same code on coroutines. The last version calls what it needs where it needs it, and \
        operations with `batch` merge calls of the same round.",
    );
    if here.len() < 3 {
        found.note("Backends and load share one core, which may limit the highest rates.");
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backends_answer_what_was_asked() {
        let reply = answer("/stock/products?ids=p1%2Cp7&fields=available,delivery_days");
        let value: serde_json::Value = serde_json::from_slice(&reply.body).unwrap();
        assert_eq!(
            value,
            serde_json::json!({
                "p1": { "available": true, "delivery_days": 3 },
                "p7": { "available": true, "delivery_days": 3 },
            })
        );
        assert_eq!(reply.after, Some(Duration::from_millis(6)));
        let masks: serde_json::Value = serde_json::from_slice(&answer("/masks/masks").body).unwrap();
        assert_eq!(
            masks["short"],
            serde_json::from_slice::<serde_json::Value>(&answer("/masks/masks/short").body).unwrap()
        );
    }

    #[test]
    fn the_examples_configuration_is_put_on_the_stub() {
        let stub = Stub::start(false, answer).unwrap();
        let dir = tempfile::tempdir().unwrap();
        for folder in ["flows", "web"] {
            std::fs::create_dir(dir.path().join(folder)).unwrap();
        }
        let text = toml(&stub).unwrap();
        assert!(!text.contains("${"), "{text}");
        std::fs::write(dir.path().join("fanin.toml"), text).unwrap();
        for (file, text) in FLOWS {
            std::fs::write(dir.path().join(file), text).unwrap();
        }
        let config = fanin_config::Config::load(dir.path()).unwrap();
        for (_, path, ..) in WAYS {
            assert!(config.routes.iter().any(|route| route.path == path), "{path}");
        }
        let upstreams = fanin_upstream::Upstreams::new(config.upstreams.values()).unwrap();
        assert!(fanin_flow::Flows::load(&config, &upstreams).is_ok());
    }
}
