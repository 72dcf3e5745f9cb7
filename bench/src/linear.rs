//! `linear`: a search for inputs whose work grows faster than their size, or holds a worker too long. The inputs are pieces of the fuzz
//! corpora, repeated; each is read as the server reads it.

use std::path::Path;

use rustix::time::{ClockId, clock_gettime};
use serde_json::json;

use crate::report::{Report, Table};
use crate::{Failure, Options};

/// The larger of two inputs is this many times as long.
const LONGER: usize = 8;
/// And may take this many times the work. A quadratic one takes 64.
const MOST: f64 = 24.0;
/// Less work than this is not measured well.
const LEAST_MS: f64 = 0.2;
/// How long one input may hold a worker.
const MOST_MS: f64 = 5.0;
/// So many runs of an input that seems to grow; the least work counts.
const RUNS: usize = 10;

/// `max_header_size`.
const HEAD: usize = 32 << 10;
/// The largest body that a worker parses itself.
const BODY: usize = 64 << 10;
/// What no worker reads in one go. The default of `max_body`.
const LARGE: usize = 1 << 20;

/// What reads inputs.
struct Kind {
    /// Also its corpus.
    name: &'static str,
    /// Bytes of an input.
    length: usize,
    /// A worker reads such an input once, in one go. Readers of fuzz targets otherwise read it several times, in pieces of several sizes.
    in_one_go: bool,
    feed: fn(&[u8]) -> bool,
}

const KINDS: [Kind; 13] = [
    Kind { name: "query", length: HEAD, in_one_go: true, feed: fanin_flow::fuzzing::query },
    Kind { name: "headers", length: HEAD, in_one_go: true, feed: fanin_flow::fuzzing::headers },
    Kind { name: "forwarded", length: HEAD, in_one_go: true, feed: fanin_server::fuzzing::forwarded },
    Kind { name: "proxy", length: HEAD, in_one_go: true, feed: fanin_server::fuzzing::proxy_header },
    Kind { name: "requests", length: HEAD, in_one_go: false, feed: fanin_server::fuzzing::requests },
    Kind { name: "json", length: BODY, in_one_go: true, feed: fanin_flow::fuzzing::json_body },
    Kind { name: "message", length: LARGE, in_one_go: false, feed: fanin_model::fuzzing::message },
    Kind { name: "body", length: LARGE, in_one_go: false, feed: fanin_model::fuzzing::json_request },
    Kind { name: "frames", length: LARGE, in_one_go: false, feed: fanin_upstream::fuzzing::frames },
    Kind { name: "answer", length: LARGE, in_one_go: false, feed: fanin_upstream::fuzzing::answer },
    Kind { name: "chunked", length: LARGE, in_one_go: false, feed: fanin_upstream::fuzzing::chunked },
    Kind { name: "mysql_value", length: LARGE, in_one_go: false, feed: fanin_upstream::fuzzing::mysql_value },
    Kind { name: "postgres", length: LARGE, in_one_go: false, feed: fanin_upstream::fuzzing::messages },
];

/// Runs the search with all kinds of input, or only those.
pub fn run(options: &Options, only: &[String], cases: Option<usize>, seed: u64) -> Result<Report, Failure> {
    if let Some(unknown) = only.iter().find(|name| KINDS.iter().all(|kind| kind.name != name.as_str())) {
        return Err(Failure::Usage(format!(
            "there is no kind {unknown}; there are {}",
            KINDS.map(|kind| kind.name).join(", ")
        )));
    }
    let cases = cases.unwrap_or(if options.quick { 50 } else { 500 });
    let mut report = Report::new("linear");
    let mut table = Table::new(
        &format!("{cases} inputs of each kind"),
        &["kind", "bytes", "slowest ms", "most growth", "slowest input"],
    );
    let mut data = serde_json::Map::new();
    for kind in KINDS.iter().filter(|kind| only.is_empty() || only.iter().any(|name| name == kind.name)) {
        let work = |bytes: &[u8], runs| milliseconds(bytes, runs, kind.feed);
        let found = search(&corpus(kind.name)?, kind.length, cases, seed, &work);
        let Found { slowest, growth } = &found;
        // Of what takes next to no time at its full length, no growth can be measured, and none matters.
        if growth.0 > 0.0 {
            let bytes = [kind.length / LONGER, kind.length];
            report.at_most(
                &format!("{}: growth of the work from {} to {} bytes", kind.name, bytes[0], bytes[1]),
                growth.0,
                MOST,
                "",
            );
        }
        if kind.in_one_go {
            report.at_most(&format!("{}: the slowest input", kind.name), slowest.0, MOST_MS, " ms");
        }
        let grows = if growth.0 > 0.0 { format!("{:.1}", growth.0) } else { "-".to_owned() };
        let figures = [kind.length.to_string(), format!("{:.2}", slowest.0), grows];
        table.rows.push([kind.name.to_owned()].into_iter().chain(figures).chain([slowest.1.to_string()]).collect());
        data.insert(
            kind.name.into(),
            json!({"slowest": slowest.0, "slowest_input": slowest.1.to_string(), "growth": growth.0, "growing_input": growth.1.to_string()}),
        );
    }
    report.tables.push(table);
    report.data = data.into();
    Ok(report)
}

fn corpus(target: &str) -> Result<Vec<Vec<u8>>, Failure> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(target);
    let mut files = std::fs::read_dir(&folder)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>, Failure>>()?;
    files.sort();
    files.iter().map(|path| Ok(std::fs::read(path)?)).collect()
}

/// CPU time of this thread, the least of several runs.
fn milliseconds(bytes: &[u8], runs: usize, feed: fn(&[u8]) -> bool) -> f64 {
    let cpu = || {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        now.tv_sec as f64 * 1e3 + now.tv_nsec as f64 / 1e6
    };
    let run = |_| {
        let before = cpu();
        std::hint::black_box(feed(bytes));
        cpu() - before
    };
    (0..runs).map(run).fold(f64::INFINITY, f64::min)
}

/// The worst inputs of a search: what they take, and what they are.
struct Found {
    slowest: (f64, Pumped),
    growth: (f64, Pumped),
}

/// Tries inputs of `length` bytes. `work` tells what one takes, in `runs` runs.
fn search(corpus: &[Vec<u8>], length: usize, cases: usize, seed: u64, work: &impl Fn(&[u8], usize) -> f64) -> Found {
    let mut random = Random(seed);
    let mut found = Found { slowest: (0.0, Pumped::default()), growth: (0.0, Pumped::default()) };
    for _ in 0..cases {
        let pumped = Pumped::random(corpus, &mut random);
        let (small, large) = (pumped.of(length / LONGER), pumped.of(length));
        // Repeated only if it is worse than all before: most are not.
        if work(&large, 1) > found.slowest.0 {
            let takes = work(&large, RUNS);
            if takes > found.slowest.0 {
                found.slowest = (takes, pumped.clone());
            }
        }
        let growth = |runs| {
            let large = work(&large, runs);
            if large < LEAST_MS { 0.0 } else { large / work(&small, runs) }
        };
        if growth(1) > found.growth.0 {
            let grows = growth(RUNS);
            if grows > found.growth.0 {
                found.growth = (grows, pumped);
            }
        }
    }
    found
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound.max(1)
    }
}

/// An input whose middle is repeated, with a number in it if one place is named, so that names differ.
#[derive(Clone, Debug, Default)]
struct Pumped {
    before: Vec<u8>,
    piece: Vec<u8>,
    after: Vec<u8>,
    counter: Option<usize>,
}

impl Pumped {
    fn random(corpus: &[Vec<u8>], random: &mut Random) -> Pumped {
        let seed = &corpus[random.below(corpus.len())];
        let (one, other) = (random.below(seed.len() + 1), random.below(seed.len() + 1));
        let (from, to) = (one.min(other), one.max(other).min(one.min(other) + 64));
        let piece = if from == to { b"a".to_vec() } else { seed[from..to].to_vec() };
        let counter = (random.below(3) > 0).then(|| random.below(piece.len() + 1));
        // The rest may end what is repeated too early.
        let after = if random.below(3) > 0 { seed[to..].to_vec() } else { Vec::new() };
        Pumped { before: seed[..from].to_vec(), after, piece, counter }
    }

    fn of(&self, length: usize) -> Vec<u8> {
        let mut bytes = self.before.clone();
        let (left, right) = self.piece.split_at(self.counter.unwrap_or(0));
        for count in 0.. {
            if bytes.len() + self.after.len() >= length {
                break;
            }
            bytes.extend_from_slice(left);
            if self.counter.is_some() {
                bytes.extend_from_slice(format!("{count:x}").as_bytes());
            }
            bytes.extend_from_slice(right);
        }
        bytes.extend_from_slice(&self.after);
        bytes
    }
}

/// For a table: the beginning, and what is repeated.
impl std::fmt::Display for Pumped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shown = |bytes: &[u8]| bytes[..bytes.len().min(24)].escape_ascii().to_string().replace('|', "\\x7c");
        let (left, right) = self.piece.split_at(self.counter.unwrap_or(0));
        let number = if self.counter.is_some() { "(number)" } else { "" };
        write!(f, "{} ({}{number}{})* {}", shown(&self.before), shown(left), shown(right), shown(&self.after))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Names of a query without repetitions; each is compared with all before. Work is comparisons here, and `per_name` more.
    fn comparing(compares: bool) -> impl Fn(&[u8], usize) -> f64 {
        move |bytes, _| {
            let count = Cell::new(0u64);
            let mut seen: Vec<&[u8]> = Vec::new();
            for name in bytes.split(|byte| *byte == b'&') {
                count.set(count.get() + name.len() as u64 + 1);
                let same = |other: &&[u8]| {
                    count.set(count.get() + 1);
                    *other == name
                };
                if !compares || !seen.iter().any(same) {
                    seen.push(name);
                }
            }
            count.get() as f64
        }
    }

    #[test]
    fn quadratic_work_is_found_and_linear_work_is_not() {
        let corpus = corpus("query").unwrap();
        let quadratic = search(&corpus, HEAD, 50, 7, &comparing(true));
        assert!(quadratic.growth.0 > MOST, "{}: {}", quadratic.growth.0, quadratic.growth.1);
        let linear = search(&corpus, HEAD, 50, 7, &comparing(false));
        assert!(linear.growth.0 < MOST / 2.0, "{}: {}", linear.growth.0, linear.growth.1);
    }

    #[test]
    fn inputs_have_their_length_and_are_the_same_for_a_seed() {
        let corpus = corpus("query").unwrap();
        let inputs = || {
            let mut random = Random(3);
            (0..20).map(|_| Pumped::random(&corpus, &mut random).of(1_000)).collect::<Vec<_>>()
        };
        assert_eq!(inputs(), inputs());
        assert!(inputs().iter().all(|input| (1_000..1_200).contains(&input.len())));
    }
}
