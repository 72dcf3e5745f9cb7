//! The corpus of `fuzz/`, and texts that are made of it by chance: no panic, no hang, limits hold. A
//! bounded run of what the fuzz target does for as long as one likes.

use std::path::PathBuf;

use fanin_lang::fuzzing::{Fuzzed, run_source};

fn corpus() -> Vec<String> {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/source"));
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)
        .expect("the corpus is in the checkout")
        .map(|entry| entry.expect("the folder can be read").path())
        .collect();
    files.sort();
    files
        .iter()
        .map(|path| String::from_utf8_lossy(&std::fs::read(path).expect("it can be read")).into_owned())
        .collect()
}

/// What a program is made of.
const TOKENS: [&str; 60] = [
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ",",
    ":",
    ".",
    "=",
    "==",
    "+",
    "-",
    "*",
    "%",
    "//",
    "|",
    "<<",
    "+=",
    "<",
    " in ",
    " not ",
    " and ",
    " or ",
    " if ",
    " else ",
    " for ",
    "def f(x, *a, **k):\n    ",
    "return ",
    "lambda x: ",
    "0",
    "1",
    "-1",
    "9223372036854775807",
    "1e308",
    "\"\"",
    "\"é\\n\"",
    "f\"{x}\"",
    "b\"x\"",
    "None",
    "True",
    "range(1000000)",
    "len",
    "sorted",
    ".append(x)",
    ".get(\"k\")",
    ".items()",
    ".format(x)",
    "[0]",
    "[1:-1]",
    "[\"n\"]",
    "a.get(\"/x\")",
    "a.post(\"/x\")",
    "optional = True",
    "\n",
    "\n    ",
    "\n        ",
    "load(\"@upstreams\", \"a\")\n",
    "json.encode(x)",
    "x",
];

fn mutate(random: &mut fastrand::Rng, corpus: &[String]) -> String {
    let pick = |random: &mut fastrand::Rng| corpus[random.usize(..corpus.len())].chars().collect::<Vec<char>>();
    if random.bool() {
        return shuffle(random, corpus);
    }
    let mut text = pick(random);
    for _ in 0..random.usize(1..4) {
        let at = random.usize(..=text.len());
        let end = (at + random.usize(..20)).min(text.len());
        match random.u32(..7) {
            0 => drop(text.splice(at..end, [])),
            1 | 2 => drop(text.splice(at..at, TOKENS[random.usize(..TOKENS.len())].chars())),
            3 => drop(text.splice(at..end, TOKENS[random.usize(..TOKENS.len())].chars())),
            4 => {
                let part = text[at..end].to_vec();
                drop(text.splice(at..at, part.into_iter().cycle().take(random.usize(..200))));
            }
            5 => {
                let other = pick(random);
                let from = random.usize(..=other.len());
                let to = (from + random.usize(..80)).min(other.len());
                drop(text.splice(at..end, other[from..to].iter().copied()));
            }
            _ => {
                if let Some(c) = text.get_mut(at) {
                    *c = char::from(random.u8(..128));
                }
            }
        }
    }
    text.into_iter().collect()
}

/// Lines put in the place of others that stand equally deep: these mostly load.
fn shuffle(random: &mut fastrand::Rng, corpus: &[String]) -> String {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let mut lines: Vec<&str> = corpus[random.usize(..corpus.len())].lines().collect();
    for _ in 0..random.usize(1..8) {
        let other: Vec<&str> = corpus[random.usize(..corpus.len())].lines().collect();
        if other.is_empty() || lines.is_empty() {
            continue;
        }
        let (line, at) = (other[random.usize(..other.len())], random.usize(..lines.len()));
        if indent(line) == indent(lines[at]) && !line.starts_with("def") && !lines[at].starts_with("def") {
            if random.bool() {
                lines[at] = line;
            } else {
                lines.insert(at, line);
            }
        }
    }
    lines.join("\n") + "\n"
}

fn add(sum: &mut Fuzzed, fed: Fuzzed) -> usize {
    sum.ran += fed.ran;
    sum.returned += fed.returned;
    sum.limited += fed.limited;
    usize::from(fed.loaded)
}

#[test]
fn the_corpus_is_of_use() {
    let corpus = corpus();
    let mut sum = Fuzzed::default();
    let loaded: usize = corpus.iter().map(|text| add(&mut sum, run_source(text))).sum();
    assert!(corpus.len() >= 40, "{}", corpus.len());
    assert!(loaded * 3 > corpus.len() * 2, "{loaded} of {} load", corpus.len());
    assert!(sum.returned > 40 && sum.limited > 5, "{sum:?}");
}

#[test]
fn texts_made_of_the_corpus_by_chance() {
    let cases: u64 = std::env::var("FANIN_FUZZ_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(1500);
    let seed: u64 = std::env::var("FANIN_FUZZ_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let corpus = corpus();
    let mut sum = Fuzzed::default();
    let mut loaded = 0;
    for case in 0..cases {
        let text = mutate(&mut fastrand::Rng::with_seed(seed << 32 | case), &corpus);
        // A stack overflow cannot be caught: the last text that is shown is the one.
        if std::env::var_os("FANIN_FUZZ_SHOW").is_some() {
            eprintln!("case {case}\n{text}\n");
        }
        let outcome = std::panic::catch_unwind(|| run_source(&text));
        match outcome {
            Ok(fed) => loaded += add(&mut sum, fed),
            Err(_) => panic!("case {case} of seed {seed} panics:\n{text}"),
        }
    }
    assert!(loaded as u64 > cases / 50, "{loaded} of {cases} load");
    assert!(sum.returned as u64 > cases / 50, "{sum:?}");
}
