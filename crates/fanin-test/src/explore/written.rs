//! A finding as a test of the exploration's file: it fails until the flow is right.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

use super::change::{Case, line, words};
use super::exploration::{ExploreRun, Finding};
use super::violation::Violation;
use crate::error::TestError;

/// What tests may need of `@test`.
const NAMES: [&str; 7] = ["assert_equal", "assert_in", "assert_true", "deviate", "deviating", "requests", "responses"];

/// The lines of the test.
pub(crate) fn body(exploration: &str, case: &Case, violation: &Violation) -> Vec<String> {
    let what = match case.is_empty() {
        true => violation.what.clone(),
        false => format!("{}: {}", case.iter().map(words).collect::<Vec<_>>().join(", and "), violation.what),
    };
    // A text of Starlark ends at its marks.
    let mut lines = vec![format!("\"\"\"{}\"\"\"", what.replace('\\', "/").replace('"', "'"))];
    lines.extend(case.iter().map(line));
    lines.push(format!("{exploration}()"));
    lines.extend(violation.lines.iter().cloned());
    lines
}

/// The test as text, under this name.
pub(crate) fn function(finding: &Finding, name: &str) -> String {
    let mut text = format!("def {name}():\n");
    for line in &finding.test {
        let _ = writeln!(text, "    {line}");
    }
    text
}

/// Appends tests to the files of their explorations.
pub(crate) fn append(dir: &Path, run: &ExploreRun) -> Result<Vec<String>, TestError> {
    let files: BTreeSet<&String> =
        run.explorations.iter().filter(|one| !one.findings.is_empty()).map(|one| &one.file).collect();
    for file in &files {
        let path = dir.join(file);
        let wrong =
            |error: std::io::Error| TestError::File { path: path.display().to_string(), what: error.to_string() };
        let mut text = std::fs::read_to_string(&path).map_err(wrong)?;
        let mut tests = String::new();
        for one in run.explorations.iter().filter(|one| one.file == **file) {
            let stem = format!("test_{}", one.name.replacen("explore_", "explored_", 1));
            let mut number = 1;
            for finding in &one.findings {
                while text.contains(&format!("def {stem}_{number}("))
                    || tests.contains(&format!("def {stem}_{number}("))
                {
                    number += 1;
                }
                let _ = write!(tests, "\n{}", function(finding, &format!("{stem}_{number}")));
            }
        }
        let loaded = loaded_names(&text);
        let used = NAMES.iter().filter(|name| tests.contains(&format!("{name}(")) && !loaded.contains(**name));
        let missing: Vec<String> = used.map(|name| format!("{name:?}")).collect();
        if !missing.is_empty() {
            text = format!("load(\"@test\", {})\n{text}", missing.join(", "));
        }
        if !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(&tests);
        std::fs::write(&path, text).map_err(wrong)?;
    }
    Ok(files.into_iter().cloned().collect())
}

/// Names that a file loads, with their own names.
fn loaded_names(text: &str) -> BTreeSet<&str> {
    let mut found = BTreeSet::new();
    for part in text.split("load(").skip(1) {
        let inside = part.split(')').next().unwrap_or_default();
        found.extend(inside.split('"').skip(1).step_by(2));
    }
    found
}
