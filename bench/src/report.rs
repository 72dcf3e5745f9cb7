//! What a benchmark prints: tables, then its bars, and the same as JSON.

use std::fs;
use std::io;
use std::path::Path;

use serde::Serialize;

/// A promise and what was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Bar {
    /// What is promised.
    pub bar: String,
    /// What was measured.
    pub figure: String,
    /// Whether it holds.
    pub pass: bool,
}

/// Rows under a heading.
#[derive(Clone, Debug, Serialize)]
pub struct Table {
    /// What the rows show.
    pub title: String,
    /// Names of the columns.
    pub header: Vec<String>,
    /// The rows, each as long as the header.
    pub rows: Vec<Vec<String>>,
}

/// All that a benchmark found.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// The benchmark's name.
    pub name: String,
    /// Tables for readers.
    pub tables: Vec<Table>,
    /// Promises.
    pub bars: Vec<Bar>,
    /// Every single measurement, for programs.
    pub data: serde_json::Value,
}

impl Table {
    /// An empty table.
    pub fn new(title: &str, header: &[&str]) -> Self {
        Self { title: title.into(), header: header.iter().map(|&name| name.into()).collect(), rows: Vec::new() }
    }
}

impl Report {
    /// An empty report.
    pub fn new(name: &str) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// Adds a promise: `figure` is at most `most`.
    pub fn at_most(&mut self, bar: &str, figure: f64, most: f64, unit: &str) {
        // A figure that is no number (nothing was measured) holds no promise.
        let pass = figure <= most;
        self.bars.push(Bar { bar: format!("{bar} ≤ {most}{unit}"), figure: format!("{figure:.3}{unit}"), pass });
    }

    /// Adds a promise that holds or does not.
    pub fn holds(&mut self, bar: &str, figure: String, pass: bool) {
        self.bars.push(Bar { bar: bar.into(), figure, pass });
    }

    /// Whether every bar holds; a report without bars promises nothing.
    pub fn pass(&self) -> bool {
        self.bars.iter().all(|bar| bar.pass)
    }

    /// The tables and the bars, aligned for a terminal, readable as Markdown.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for table in &self.tables {
            text += &format!("\n{}\n\n{}", table.title, aligned(&table.header, &table.rows));
        }
        if !self.bars.is_empty() {
            let header = ["bar", "figure", "pass"].map(String::from);
            let row = |bar: &Bar| vec![bar.bar.clone(), bar.figure.clone(), if bar.pass { "yes" } else { "NO" }.into()];
            text += &format!("\n{}", aligned(&header, &self.bars.iter().map(row).collect::<Vec<_>>()));
        }
        text
    }

    /// Writes everything as JSON.
    pub fn write_json(&self, path: &Path) -> io::Result<()> {
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        fs::write(path, text)
    }
}

fn aligned(header: &[String], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).chain(header.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let line = |cells: &[String]| {
        let cells: Vec<String> =
            cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}", width = *width)).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
    let mut text = line(header) + &line(&rule);
    for row in rows {
        text += &line(row);
    }
    text
}

/// The middle of some numbers; of an even count the mean of the middle two.
pub fn median(numbers: impl IntoIterator<Item = f64>) -> f64 {
    let mut numbers: Vec<f64> = numbers.into_iter().collect();
    numbers.sort_by(f64::total_cmp);
    match numbers.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => numbers[n / 2],
        n => (numbers[n / 2 - 1] + numbers[n / 2]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_figure_holds_no_bar() {
        let mut report = Report::new("x");
        report.at_most("nothing measured", median([]), 1.2, "");
        assert!(!report.pass());
        report.bars.clear();
        report.at_most("cost", median([1.25, 1.0, 1.125, 9.0]), 1.2, "");
        assert!(report.pass(), "{}", report.text());
        assert!(report.text().contains("| cost ≤ 1.2 | 1.188  | yes  |"), "{}", report.text());
    }
}
