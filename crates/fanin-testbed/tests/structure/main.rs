//! The structure of the code: imports point one way, and files stay short.
//!
//! A file depends on another if it names an item that the other defines. Names are followed through re-exports, so a `mod.rs` that
//! only declares and re-exports its children depends on nothing. A submodule is a part of its parent and may use what that defines.
//! Test code is left out, and so is what macros contain.

mod circles;
mod modules;

use std::path::{Path, PathBuf};

use modules::Crate;

/// Longest file without a stated reason, in lines.
const MAX_LINES: usize = 500;

/// A longer file says why in a comment within its first lines that begins so.
const REASON: &str = "Longer than 500 lines because";

/// Circles that stay, by the files' paths below the workspace, each with its reason. A circle is allowed if all of its files are below
/// the paths of one entry.
const ALLOWED: &[(&[&str], &str)] = &[(
    &[
        "crates/fanin-lang/src/value",
        "crates/fanin-lang/src/pending.rs",
        "crates/fanin-lang/src/error/stop.rs",
        "crates/fanin-lang/src/host.rs",
        "crates/fanin-lang/src/native",
        "crates/fanin-lang/src/meter.rs",
        "crates/fanin-lang/src/code/function.rs",
        "crates/fanin-lang/src/code/reads.rs",
        "crates/fanin-lang/src/program/data.rs",
    ],
    "one recursive data type: a value may be pending, a host object, a native or a function of a program, and each of them \
     holds or takes values",
)];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace")
}

/// The `lib.rs` and `main.rs` of all crates.
fn crate_roots() -> Vec<PathBuf> {
    let crates = std::fs::read_dir(root().join("crates")).expect("the folder of crates");
    let folders = crates.map(|entry| entry.expect("an entry").path()).chain([root().join("bench")]);
    let files = folders.flat_map(|folder| ["src/lib.rs", "src/main.rs"].map(|file| folder.join(file)));
    let found: Vec<PathBuf> = files.filter(|file| file.exists()).collect();
    assert!(found.len() > 10, "{found:?}");
    found
}

#[test]
fn no_files_of_a_crate_import_each_other() {
    let mut report = String::new();
    for file in crate_roots() {
        let parsed = Crate::parse(&file);
        for circle in circles::find(&parsed.dependencies()) {
            let below = |paths: &[&str], file: &Path| paths.iter().any(|path| file.starts_with(root().join(path)));
            if ALLOWED.iter().any(|(paths, _)| circle.iter().all(|(from, _, _)| below(paths, from))) {
                continue;
            }
            report += &format!("\na circle of {} imports:\n", circle.len());
            for (from, to, names) in circle {
                let short = |file: &Path| file.strip_prefix(root()).unwrap_or(file).display().to_string();
                report += &format!("  {} -> {}: {}\n", short(&from), short(&to), names.join(", "));
            }
        }
    }
    assert!(report.is_empty(), "{report}");
}

#[test]
fn long_files_say_why() {
    let mut long = Vec::new();
    for file in crate_roots() {
        for file in rust_files(file.parent().and_then(Path::parent).expect("a crate's folder")) {
            let text = std::fs::read_to_string(&file).expect("a readable file");
            let lines = text.lines().count();
            if lines > MAX_LINES && !text.lines().take(30).any(|line| line.contains(REASON)) {
                long.push(format!("{}: {lines} lines", file.display()));
            }
        }
    }
    assert!(long.is_empty(), "no reason (`//! {REASON} ...`) in:\n{}", long.join("\n"));
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a readable folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
            found.extend(rust_files(&path));
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
    found
}
