//! `deserialise`: which share of a request's CPU goes into JSON?

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use fanin_json::Doc;

use super::chart::{Axis, Series, lines};
use super::client::Client;
use super::error::LabError;
use super::outcome::{Found, Table, digits, median};
use super::process::{Served, cores, on_cores};
use super::stub::{Reply, Stub};
use super::{Context, Experiment};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "deserialise",
    title: "How much of a request's CPU is JSON",
    asked: "\"We hit the CPU on deserialising first\", said the job site. Which share of a request is JSON, by body \
    size? It depends on whether the body is passed on, read in part, or decoded and encoded again.",
    run,
};

const SIZES: [usize; 4] = [1 << 10, 10 << 10, 100 << 10, 1 << 20];

const TOML: &str = "timeout = '5s'\nmax_answer = '8MB'\n\
    [[routes]]\npath = '/splice/{size}'\nflow = 'flow.star:splice'\n\
    [[routes]]\npath = '/look/{size}'\nflow = 'flow.star:look'\n\
    [[routes]]\npath = '/each/{size}'\nflow = 'flow.star:each'\n";
const STAR: &str = "
load(\"@upstreams\", \"stub\")

def splice(req):
    return stub.get(\"/body\", query = {\"size\": req.params[\"size\"]})

def look(req):
    found = stub.get(\"/body\", query = {\"size\": req.params[\"size\"]})
    if found[\"total\"] > 0:
        return found
    return {}

def each(req):
    found = stub.get(\"/body\", query = {\"size\": req.params[\"size\"]})
    return [item[\"name\"] for item in found[\"items\"] if item[\"price\"] > 10]
";

/// A page of products, at least `size` bytes.
fn body(size: usize) -> Bytes {
    let mut text = String::from("{\"total\": 7, \"items\": [");
    let mut id = 0;
    while text.len() < size.saturating_sub(150) || id == 0 {
        if id > 0 {
            text.push(',');
        }
        text.push_str(&format!(
            "{{\"id\": {id}, \"name\": \"product number {id}\", \"price\": {}.50, \"tags\": [\"red\", \"small\"], \
            \"stock\": \
             {{\"north\": {}, \"south\": null}}, \"text\": \"a few words on what it is and what it is not\"}}",
            id % 40,
            id % 7
        ));
        id += 1;
    }
    text.push_str("]}");
    text.into()
}

/// Microseconds that `work` takes, the median of several stretches.
fn timed(stretch: Duration, mut work: impl FnMut()) -> f64 {
    let mut all = Vec::new();
    for _ in 0..5 {
        let (start, mut count) = (Instant::now(), 0u32);
        while start.elapsed() < stretch {
            work();
            count += 1;
        }
        all.push(start.elapsed().as_secs_f64() * 1e6 / f64::from(count));
    }
    median(&all)
}

/// Microseconds of the server's CPU for each request.
fn cpu(served: &Served, path: &str, time: Duration) -> Result<f64, LabError> {
    let mut client = Client::connect(served.addr)?;
    for _ in 0..20 {
        client.ok(path)?;
    }
    let mut all = Vec::new();
    for _ in 0..3 {
        let (before, start, mut count) = (served.usage()?.cpu, Instant::now(), 0u32);
        while start.elapsed() < time {
            client.ok(path)?;
            count += 1;
        }
        all.push((served.usage()?.cpu - before).as_secs_f64() * 1e6 / f64::from(count));
    }
    Ok(median(&all))
}

fn run(context: &Context) -> Result<Found, LabError> {
    let (stretch, time) = context.pick((40, 300), (200, 1000));
    let (stretch, time) = (Duration::from_millis(stretch), Duration::from_millis(time));
    let here = cores();
    let (Some(first), Some(last)) = (here.first(), here.last()) else { return Err(LabError::wrong("no core")) };
    let bodies: Arc<Vec<Bytes>> = Arc::new(SIZES.map(body).to_vec());
    let mine = bodies.clone();
    let stub = on_cores(&[*last], || {
        Stub::start(false, move |target| {
            let at = target.rsplit('=').next().and_then(|at| at.parse::<usize>().ok()).unwrap_or(0);
            Reply::json(Duration::ZERO, mine.get(at).cloned().unwrap_or_default())
        })
    })??;
    let toml = format!("[upstreams.stub]\nurl = '{}'\n{TOML}", stub.url());
    let served = on_cores(&[*first], || Served::start(&context.program, 1, &toml, STAR))??;

    let mut found = Found::default();
    let mut table = Table::new(
        "CPU microseconds of a request that makes one call, and of its JSON alone",
        &[
            "body",
            "passed on",
            "of it JSON",
            "share",
            "one field decides",
            "every item read",
            "tree, decoded and encoded",
            "share if so",
        ],
    );
    let mut shares = (Vec::new(), Vec::new());
    for (at, size) in SIZES.iter().enumerate() {
        let bytes = &bodies[at];
        let ask = |path: &str| on_cores(&[*last], || cpu(&served, &format!("/{path}/{at}"), time))?;
        let (splice, look, each) = (ask("splice")?, ask("look")?, ask("each")?);
        let (check, tree) = on_cores(&[*first], || {
            let check = timed(stretch, || {
                std::hint::black_box(Doc::parse(bytes.clone(), 128).is_ok());
            });
            let tree = timed(stretch, || {
                let value: Result<serde_json::Value, _> = serde_json::from_slice(bytes);
                std::hint::black_box(value.map(|value| value.to_string().len()).unwrap_or_default());
            });
            (check, tree)
        })?;
        let (share, share_tree) = (check / splice * 100.0, tree / (splice - check + tree) * 100.0);
        shares.0.push((*size as f64 / 1024.0, share));
        shares.1.push((*size as f64 / 1024.0, share_tree));
        table.row([
            format!("{} KB", size >> 10),
            digits(splice),
            digits(check),
            format!("{share:.0} %"),
            digits(look),
            digits(each),
            digits(tree),
            format!("{share_tree:.0} %"),
        ]);
    }
    found.tables.push(table);
    let svg = lines(
        "JSON's share of a request's CPU",
        Axis::log("KB"),
        Axis::even("%"),
        &[
            Series::new("passed on (checked, spliced)", shares.0.clone()),
            Series::new("decoded to a tree, encoded again", shares.1.clone()),
        ],
    );
    found.plots.push((
        "A body that is passed on is only validated; decoding to a tree costs several times \
    that."
            .into(),
        svg,
    ));
    let at = |list: &[(f64, f64)], index: usize| list.get(index).map_or(f64::NAN, |(_, share)| *share);
    found.shows = format!(
        "Of a request with a body of 100 KB, JSON takes {:.0} % of the CPU if the answer is passed on, and {:.0} % if \
        it is decoded to a tree and encoded again.",
        at(&shares.0, 2),
        at(&shares.1, 2)
    );
    found.measured(
        "The server runs on one core, the stub (no delay) and one client on another. CPU is that of the server's \
        process divided by its responses, the median of three measurements. `Of it JSON` is Fanin's validation of the \
        same bytes, run alone. `Tree` is serde_json decoding to `Value` and encoding it, run alone. `One field \
        decides` has an `if` on a field before it passes the body on. `Every item read` reads two fields of each item \
        and builds a list.",
    );
    found.note("The story gives no figures for this.");
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_json_of_about_their_size() {
        for size in SIZES {
            let body = body(size);
            assert!(body.len() > size * 8 / 10 && body.len() < size * 12 / 10 + 300, "{size}: {}", body.len());
            let value: serde_json::Value = serde_json::from_slice(&body).unwrap();
            assert!(value["items"].as_array().unwrap().len() >= 2);
            assert!(Doc::parse(body, 128).is_ok());
        }
    }
}
