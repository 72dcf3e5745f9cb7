//! What an experiment found, as it is printed, written as JSON, and shown in the report.

use serde::{Deserialize, Serialize};

use super::machine::Machine;

/// The result of one experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The experiment's name on the command line.
    pub name: String,
    /// A heading.
    pub title: String,
    /// The question, and the story that it comes from.
    pub asked: String,
    /// How it was measured, one paragraph each.
    pub measured: Vec<String>,
    /// The machine it ran on.
    pub machine: Machine,
    /// Whether it was the short form.
    pub quick: bool,
    /// When it ran, RFC 3339 in UTC.
    pub at: String,
    /// How long it took, seconds.
    pub seconds: f64,
    /// The tables.
    pub tables: Vec<Table>,
    /// Charts, as SVG files beside the JSON.
    pub plots: Vec<Plot>,
    /// Bars and whether they were reached.
    pub bars: Vec<Bar>,
    /// What it shows, in one sentence.
    pub shows: String,
    /// What a reader should know before believing the figures.
    pub notes: Vec<String>,
    /// What was missing, if it could not run, and how to get it.
    pub lacks: Option<String>,
}

/// A table. The story's columns are next to ours.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// What it shows.
    pub title: String,
    /// Headings.
    pub columns: Vec<Column>,
    /// Rows, a cell for each column; empty where there is no figure.
    pub rows: Vec<Vec<String>>,
}

/// A column's heading.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Column {
    /// The heading.
    pub name: String,
    /// Whether its figures are the story's, not ours.
    pub story: bool,
}

/// A chart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plot {
    /// Its file, in the report's folder.
    pub file: String,
    /// What it shows.
    pub caption: String,
    /// The picture; not part of the JSON.
    #[serde(skip)]
    pub svg: String,
}

/// A figure that must be reached.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Bar {
    /// Its limit.
    pub what: String,
    /// The bound.
    pub bound: String,
    /// The figure.
    pub figure: String,
    /// Whether it holds.
    pub holds: bool,
}

impl Table {
    /// An empty table. A heading that begins with `story` is one of the story's columns.
    pub fn new(title: impl Into<String>, columns: &[&str]) -> Table {
        let column = |name: &&str| Column { name: (*name).to_owned(), story: name.starts_with("story") };
        Table { title: title.into(), columns: columns.iter().map(column).collect(), rows: Vec::new() }
    }

    /// Adds a row.
    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        let mut cells: Vec<String> = cells.into_iter().map(Into::into).collect();
        cells.resize(self.columns.len(), String::new());
        self.rows.push(cells);
    }
}

/// What an experiment itself gives; the rest of an [`Outcome`] is the same for all.
#[derive(Debug, Clone, Default)]
pub struct Found {
    /// How it was measured.
    pub measured: Vec<String>,
    /// Tables.
    pub tables: Vec<Table>,
    /// Charts: caption and SVG.
    pub plots: Vec<(String, String)>,
    /// Bars.
    pub bars: Vec<Bar>,
    /// One sentence.
    pub shows: String,
    /// Caveats.
    pub notes: Vec<String>,
}

impl Found {
    /// Adds a paragraph on how it was measured.
    pub fn measured(&mut self, how: impl Into<String>) {
        self.measured.push(how.into());
    }

    /// Adds a caveat.
    pub fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// Adds a bar: `figure` must be at most `most`.
    pub fn at_most(&mut self, what: impl Into<String>, figure: f64, most: f64, unit: &str) {
        self.bars.push(Bar {
            what: what.into(),
            bound: format!("at most {most}{unit}"),
            figure: format!("{}{unit}", digits(figure)),
            holds: figure <= most,
        });
    }

    /// Adds a bar that holds or not.
    pub fn holds(&mut self, what: impl Into<String>, figure: impl Into<String>, holds: bool) {
        self.bars.push(Bar { what: what.into(), bound: "yes".to_owned(), figure: figure.into(), holds });
    }
}

/// A number with three digits that say something.
pub fn digits(value: f64) -> String {
    match value.abs() {
        _ if value == 0.0 => "0".to_owned(),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        size if size >= 0.1 => format!("{value:.3}"),
        _ => format!("{value:.4}"),
    }
}

/// The middle of some figures; NaN of none.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
    }
}

/// Mean and standard deviation of a sample.
pub fn mean_and_deviation(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    if values.len() < 2 {
        return (mean, 0.0);
    }
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, (squares / (n - 1.0)).sqrt())
}

/// The value below which `share` of the sorted figures lie.
pub fn quantile(sorted: &[f64], share: f64) -> f64 {
    let at = ((sorted.len() as f64 * share).ceil() as usize).clamp(1, sorted.len().max(1)) - 1;
    sorted.get(at).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let shown: Vec<String> = [0.0, 0.012_34, 0.1234, 1.234, 12.34, 123.4, 12345.0].map(digits).into();
        assert_eq!(shown, ["0", "0.0123", "0.123", "1.23", "12.3", "123", "12345"]);
    }

    #[test]
    fn the_middle_and_the_spread() {
        assert_eq!((median(&[3.0, 1.0, 2.0]), median(&[4.0, 1.0, 2.0, 3.0])), (2.0, 2.5));
        let (mean, deviation) = mean_and_deviation(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]);
        assert_eq!(mean, 5.0);
        assert!((deviation - 2.138_089_935).abs() < 1e-6);
        let sorted = [1.0, 2.0, 3.0, 4.0];
        assert_eq!((quantile(&sorted, 0.5), quantile(&sorted, 0.99), quantile(&sorted, 0.0)), (2.0, 4.0, 1.0));
    }
}
