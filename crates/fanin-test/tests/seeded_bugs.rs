//! Bugs seeded into copies of the examples: an exploration finds them, and nothing in the examples themselves.

use std::path::{Path, PathBuf};

use fanin_test::Suite;
use fanin_test::explore::{ExploreOptions, ExploreRun, text};
use fanin_testbed::seeded_bugs::{BUGS, seed};

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples")
}

fn explore(dir: &Path, max_cases: usize) -> Result<ExploreRun, String> {
    let suite = Suite::load(dir).map_err(|error| format!("{error:?}"))?;
    let options = ExploreOptions { max_cases, random_cases: 0, ..ExploreOptions::default() };
    suite.explore(&options).map_err(|error| error.to_string())
}

#[test]
fn seeded_bugs_are_found() {
    let mut missed = Vec::new();
    for bug in &BUGS {
        let (file, _, _, what) = bug;
        let dir = tempfile::tempdir().unwrap();
        seed(bug, &examples(), dir.path()).unwrap();
        // Each of them shows with one deviation.
        let run = explore(dir.path(), 150).unwrap_or_else(|error| panic!("{what}: {error}"));
        let found: Vec<String> =
            run.explorations.iter().flat_map(|one| &one.findings).map(|one| one.invariant.clone()).collect();
        println!("{what}: {found:?}");
        if found.is_empty() {
            missed.push(format!("{file}: {what}"));
        }
    }
    // One changes nothing: an absent answer has no parts, with and without the guard.
    assert!(missed.len() <= 1, "not found: {missed:#?}");
}

#[test]
fn nothing_is_found_in_the_examples() {
    for example in ["shop", "vacancies", "orders"] {
        let run = explore(&examples().join(example), 400).unwrap();
        println!("{}", text(&run));
        assert_eq!(run.found(), 0, "{}", text(&run));
    }
}
