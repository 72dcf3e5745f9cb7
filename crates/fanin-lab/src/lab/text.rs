//! An outcome as it is printed.

use std::fmt::Write;

use super::outcome::{Outcome, Table};

/// Tables, bars and the sentence, for a terminal.
pub fn text(outcome: &Outcome) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = writeln!(out, "\n== {}: {}", outcome.name, outcome.title);
    if let Some(lacks) = &outcome.lacks {
        let _ = writeln!(out, "not run: {lacks}");
        return out;
    }
    for table in &outcome.tables {
        let _ = write!(out, "\n{}", show(table));
    }
    if !outcome.bars.is_empty() {
        out.push('\n');
    }
    for bar in &outcome.bars {
        let word = if bar.holds { "holds" } else { "FALLS SHORT" };
        let _ = writeln!(out, "bar: {}: {} ({}): {word}", bar.what, bar.figure, bar.bound);
    }
    let _ = writeln!(out, "\n{}", outcome.shows);
    for note in &outcome.notes {
        let _ = writeln!(out, "note: {note}");
    }
    let _ = writeln!(out, "({:.0} s)", outcome.seconds);
    out
}

/// A table: the first column to the left, figures to the right.
pub(crate) fn show(table: &Table) -> String {
    let width = |at: usize| {
        let cells = table.rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count());
        cells.chain([table.columns[at].name.chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..table.columns.len()).map(width).collect();
    let line = |cells: &[String]| {
        let shown = cells.iter().zip(&widths).enumerate().map(|(at, (cell, width))| {
            let pad = " ".repeat(width.saturating_sub(cell.chars().count()));
            if at == 0 { format!("{cell}{pad}") } else { format!("{pad}{cell}") }
        });
        shown.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let names: Vec<String> = table.columns.iter().map(|column| column.name.clone()).collect();
    let mut out = format!("{}\n{}\n", table.title, line(&names));
    out.push_str(&"-".repeat(widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1)));
    out.push('\n');
    for row in &table.rows {
        out.push_str(&line(row));
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new("times", &["threads", "ms", "story ms"]);
        table.row(["1", "10.5", "109152"]);
        table.row(["4096", "2"]);
        let expected =
            "times\nthreads    ms  story ms\n-----------------------\n1        10.5    109152\n4096        2\n";
        assert_eq!(show(&table), expected);
        assert!(table.columns[2].story && !table.columns[1].story);
    }
}
