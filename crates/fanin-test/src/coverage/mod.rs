//! Which statements and branches of flows the tests have run: as text, lcov and HTML.

mod html;
mod lcov;

use std::collections::BTreeMap;
use std::path::Path;

use fanin_lang::{CoveredPoint, PointKind};

use crate::discover::SUFFIX;
use crate::error::TestError;

/// What has run, by file.
#[derive(Debug, Default)]
pub struct Coverage {
    files: BTreeMap<String, FileCoverage>,
}

/// What of one file has run.
#[derive(Debug, Default)]
pub(crate) struct FileCoverage {
    points: BTreeMap<((u32, u32), PointKind), Point>,
}

#[derive(Debug)]
struct Point {
    line: u32,
    function: String,
    count: u64,
}

/// How much of something has run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Share {
    /// What has run.
    pub hit: usize,
    /// What there is.
    pub all: usize,
}

impl Share {
    fn add(&mut self, hit: bool) {
        self.all += 1;
        self.hit += usize::from(hit);
    }

    /// In percent; 100 of nothing.
    #[must_use]
    pub fn percent(self) -> f64 {
        if self.all == 0 { 100.0 } else { 100.0 * self.hit as f64 / self.all as f64 }
    }
}

impl Coverage {
    pub(crate) fn new(points: Vec<CoveredPoint>) -> Coverage {
        let mut all = Coverage::default();
        for point in points {
            let file = point.position.file.to_string();
            // The top level runs when a file is loaded, whatever is tested.
            if file.ends_with(SUFFIX) || point.function == "<module>" {
                continue;
            }
            let of_file = all.files.entry(file).or_default();
            let (line, function) = (point.position.line, point.function.to_string());
            let known = of_file.points.entry((point.position.span, point.kind));
            known.or_insert(Point { line, function, count: 0 }).count += point.count;
        }
        all
    }

    /// Lines and branches of all files.
    #[must_use]
    pub fn total(&self) -> (Share, Share) {
        let mut total = (Share::default(), Share::default());
        for file in self.files.values() {
            let (lines, branches) = (file.line_share(), file.branch_share());
            total.0 = Share { hit: total.0.hit + lines.hit, all: total.0.all + lines.all };
            total.1 = Share { hit: total.1.hit + branches.hit, all: total.1.all + branches.all };
        }
        total
    }

    /// A line for each file: its share of lines and branches, and the lines that have not run.
    #[must_use]
    pub fn text(&self) -> String {
        let width = self.files.keys().map(String::len).max().unwrap_or(0).max(4);
        let mut text = format!("{:width$}  {:>6}  {:>8}  not run\n", "file", "lines", "branches");
        for (name, file) in &self.files {
            let missed: Vec<u32> =
                file.lines().into_iter().filter(|(_, count)| *count == 0).map(|(line, _)| line).collect();
            let (lines, branches) = (file.line_share().percent(), file.branch_share().percent());
            text.push_str(&format!("{name:width$}  {lines:>5.1}%  {branches:>7.1}%  {}\n", ranges(&missed)));
        }
        let (lines, branches) = self.total();
        text.push_str(&format!("{:width$}  {:>5.1}%  {:>7.1}%\n", "all", lines.percent(), branches.percent()));
        text
    }

    /// Writes `index.html` with the source of all files, and `lcov.info`, into a folder.
    ///
    /// # Errors
    /// A file that cannot be read or written.
    pub fn write(&self, flows: &Path, to: &Path) -> Result<(), TestError> {
        let wrong = |path: &Path, error: std::io::Error| TestError::File {
            path: path.display().to_string(),
            what: error.to_string(),
        };
        std::fs::create_dir_all(to).map_err(|error| wrong(to, error))?;
        let lcov = to.join("lcov.info");
        std::fs::write(&lcov, lcov::lcov(self)).map_err(|error| wrong(&lcov, error))?;
        let page = to.join("index.html");
        std::fs::write(&page, html::page(self, flows)).map_err(|error| wrong(&page, error))
    }
}

impl FileCoverage {
    /// Lines with statements, and how often the one of them that ran least did.
    fn lines(&self) -> BTreeMap<u32, u64> {
        let mut lines: BTreeMap<u32, u64> = BTreeMap::new();
        for ((_, kind), point) in &self.points {
            if *kind == PointKind::Statement {
                let count = lines.entry(point.line).or_insert(point.count);
                *count = (*count).min(point.count);
            }
        }
        lines
    }

    /// Line, whether the condition was true, how often.
    fn branches(&self) -> Vec<(u32, bool, u64)> {
        let of = self.points.iter().filter(|((_, kind), _)| *kind != PointKind::Statement);
        of.map(|((_, kind), point)| (point.line, *kind == PointKind::Taken, point.count)).collect()
    }

    /// For each function its first line with a statement, and how often that ran.
    fn functions(&self) -> BTreeMap<&str, (u32, u64)> {
        let mut functions: BTreeMap<&str, (u32, u64)> = BTreeMap::new();
        for point in self.points.values() {
            let first = functions.entry(&point.function).or_insert((point.line, point.count));
            if point.line < first.0 {
                *first = (point.line, point.count);
            }
        }
        functions
    }

    fn line_share(&self) -> Share {
        let mut share = Share::default();
        self.lines().values().for_each(|count| share.add(*count > 0));
        share
    }

    fn branch_share(&self) -> Share {
        let mut share = Share::default();
        self.branches().iter().for_each(|(_, _, count)| share.add(*count > 0));
        share
    }
}

/// `3, 7-9`
fn ranges(lines: &[u32]) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for line in lines {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *line => *last = *line,
            _ => ranges.push((*line, *line)),
        }
    }
    let text = |(first, last): (u32, u32)| if first == last { first.to_string() } else { format!("{first}-{last}") };
    ranges.into_iter().map(text).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_follow_each_other_are_a_range() {
        assert_eq!(ranges(&[3, 7, 8, 9, 12]), "3, 7-9, 12");
        assert_eq!(ranges(&[]), "");
    }
}
