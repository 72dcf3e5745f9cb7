//! The report's folder: JSON and SVG of each experiment, and pages of all that are there (`index.html`, `report.md`).

use std::fmt::Write;
use std::path::{Path, PathBuf};

use super::error::LabError;
use super::outcome::{Outcome, Table};
use super::{EXPERIMENTS, write};

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:960px;margin:2em auto;padding:0 1em;color:#222}\
h1{font-size:1.6em}h2{font-size:1.3em;margin-top:2.5em;border-top:1px solid #ddd;padding-top:1em}\
h2 code{font-size:.8em;color:#777;font-weight:normal}\
.shows{font-size:1.1em;background:#eef4fb;border-left:4px solid #1f5fa8;padding:.6em 1em;margin:1em 0}\
table{border-collapse:collapse;margin:.8em 0;font-variant-numeric:tabular-nums}\
caption{text-align:left;font-weight:600;padding:.3em 0}\
th,td{padding:.2em .7em;border-bottom:1px solid #e4e4e4;text-align:right}\
th:first-child,td:first-child{text-align:left}th{border-bottom:2px solid #bbb;vertical-align:bottom}\
.story{background:#f6f3ea;color:#6b5d33}.holds{color:#2e7d32}.short{color:#c62828;font-weight:600}\
details{margin:.6em 0;color:#444}summary{cursor:pointer;color:#1f5fa8}svg{max-width:100%;height:auto}\
figure{margin:1em 0}figcaption{color:#555;font-size:.92em}.note{color:#555}.lacks{background:#fff3e0;padding:.6em 1em}\
details{color:#555;font-size:.92em}.wide{overflow-x:auto}nav a{margin-right:1em}.legend span{padding:.1em .5em}";

/// Makes the folder and its page, so that one that cannot be written is known before anything is measured.
pub(super) fn prepare(dir: &Path) -> Result<(), LabError> {
    std::fs::create_dir_all(dir).map_err(|source| LabError::Write { file: dir.to_path_buf(), source })?;
    page(dir).map(drop)
}

/// Writes one experiment's files, and the page anew.
pub(super) fn add(dir: &Path, outcome: &Outcome) -> Result<(), LabError> {
    // Only maps with keys that are no strings fail, and an outcome has no maps.
    let json = serde_json::to_string_pretty(outcome).unwrap_or_default();
    for plot in &outcome.plots {
        write(&dir.join(&plot.file), &plot.svg)?;
    }
    write(&dir.join(format!("{}.json", outcome.name)), &(json + "\n"))?;
    page(dir).map(drop)
}

/// Writes the page of all experiments whose results are in the folder, of this run or earlier ones.
pub(super) fn page(dir: &Path) -> Result<PathBuf, LabError> {
    let mut outcomes = Vec::new();
    for experiment in EXPERIMENTS {
        let file = dir.join(format!("{}.json", experiment.name));
        let Ok(text) = std::fs::read_to_string(&file) else { continue };
        let mut outcome: Outcome = serde_json::from_str(&text)
            .map_err(|error| LabError::Earlier { file: file.clone(), reason: error.to_string() })?;
        for plot in &mut outcome.plots {
            // Only a name: a file of the folder, whatever the JSON says.
            let name = Path::new(&plot.file).file_name().unwrap_or_default();
            plot.svg = std::fs::read_to_string(dir.join(name)).unwrap_or_default();
        }
        outcomes.push(outcome);
    }
    write(&dir.join("report.md"), &markdown(&outcomes))?;
    let file = dir.join("index.html");
    write(&file, &html(&outcomes))?;
    Ok(file)
}

/// The same for a text page. Writing to a string does not fail.
fn markdown(outcomes: &[Outcome]) -> String {
    let mut out = String::new();
    if let Some(last) = outcomes.iter().max_by_key(|outcome| &outcome.at) {
        let _ = write!(out, "Machine: {}.\n\n", last.machine.line());
    }
    for outcome in outcomes {
        let quick = if outcome.quick { " --quick" } else { "" };
        let _ = write!(out, "## {}\n\n{}\n\n", outcome.title, outcome.asked);
        if let Some(lacks) = &outcome.lacks {
            let _ = write!(out, "`fanin lab {}{quick}` was not run: {lacks}\n\n", outcome.name);
            continue;
        }
        let _ = write!(out, "**{}**\n\n", outcome.shows);
        for table in &outcome.tables {
            let names: Vec<&str> = table.columns.iter().map(|column| column.name.as_str()).collect();
            let rule = "---|".repeat(names.len());
            let _ = write!(out, "{}:\n\n| {} |\n|{rule}\n", table.title, names.join(" | "));
            for row in &table.rows {
                let _ = writeln!(out, "| {} |", row.join(" | ").replace('\n', " "));
            }
            out.push('\n');
        }
        for plot in &outcome.plots {
            let _ = write!(out, "![{}](lab/{})\n\n", plot.caption, plot.file);
        }
        for bar in &outcome.bars {
            let word = if bar.holds { "holds" } else { "**falls short**" };
            let _ = writeln!(out, "- {}: {} ({}): {word}", bar.what, bar.figure, bar.bound);
        }
        if !outcome.bars.is_empty() {
            out.push('\n');
        }
        for note in &outcome.notes {
            let _ = write!(out, "{note}\n\n");
        }
        let _ = write!(out, "*How*: {}\n\n", outcome.measured.join(" "));
        let _ = write!(out, "`fanin lab {}{quick}`, {}, {:.0} s.\n\n", outcome.name, outcome.at, outcome.seconds);
    }
    out
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The page. Writing to a string does not fail.
fn html(outcomes: &[Outcome]) -> String {
    let mut out = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>Fanin lab</title><style>{STYLE}</style><h1>Fanin lab</h1>\
         <p>Experiments on threads, coroutines, backends and memory. Each repeats what a published story measured, on this \
         machine and with Fanin. <span class=\"legend\"><span class=\"story\">Columns like this</span> are the story's own \
         figures, of other machines and years: compare shapes and ratios, not milliseconds.</span></p>"
    );
    if let Some(last) = outcomes.iter().max_by_key(|outcome| &outcome.at) {
        let quick = outcomes.iter().any(|outcome| outcome.quick);
        let _ = write!(out, "<p><b>Machine:</b> {}.</p>", escape(&last.machine.line()));
        if quick {
            out.push_str(
                "<p><b>Short runs</b> are marked so: their figures are rough. The real ones come without \
                <code>--quick</code>.</p>",
            );
        }
        summary(&mut out, outcomes);
    } else {
        out.push_str("<p>Nothing has been run yet.</p>");
    }
    for outcome in outcomes {
        section(&mut out, outcome);
    }
    out.push_str("</html>\n");
    out
}

fn summary(out: &mut String, outcomes: &[Outcome]) {
    out.push_str(
        "<table><caption>What they show</caption><tr><th>experiment</th><th style=\"text-align:left\">in a \
        sentence</th><th>bars</th></tr>",
    );
    for outcome in outcomes {
        let held = outcome.bars.iter().filter(|bar| bar.holds).count();
        let bars = match outcome.bars.len() {
            0 => String::new(),
            all if held == all => format!("<span class=\"holds\">{held} of {all} hold</span>"),
            all => format!("<span class=\"short\">{held} of {all} hold</span>"),
        };
        let shows = outcome.lacks.as_ref().map_or_else(|| escape(&outcome.shows), |_| "not run".to_owned());
        let _ = write!(
            out,
            "<tr><td><a href=\"#{0}\">{0}</a></td><td style=\"text-align:left\">{shows}</td><td>{bars}</td></tr>",
            outcome.name
        );
    }
    out.push_str("</table>");
}

fn section(out: &mut String, outcome: &Outcome) {
    let _ = write!(
        out,
        "<h2 id=\"{0}\">{1} <code>fanin lab {0}{2}</code></h2><p>{3}</p>",
        outcome.name,
        escape(&outcome.title),
        if outcome.quick { " --quick" } else { "" },
        escape(&outcome.asked)
    );
    if let Some(lacks) = &outcome.lacks {
        let _ = write!(out, "<p class=\"lacks\">Not run: {}</p>", escape(lacks));
        return;
    }
    let _ = write!(out, "<p class=\"shows\">{}</p>", escape(&outcome.shows));
    for plot in &outcome.plots {
        let _ = write!(out, "<figure>{}<figcaption>{}</figcaption></figure>", plot.svg, escape(&plot.caption));
    }
    outcome.tables.iter().for_each(|one| table(out, one));
    if !outcome.bars.is_empty() {
        out.push_str("<table><caption>Bars</caption><tr><th>what</th><th>bound</th><th>figure</th><th></th></tr>");
        for bar in &outcome.bars {
            let word = if bar.holds {
                "<span class=\"holds\">holds</span>"
            } else {
                "<span class=\"short\">falls short</span>"
            };
            let cells = [&bar.what, &bar.bound, &bar.figure].map(|cell| format!("<td>{}</td>", escape(cell))).concat();
            let _ = write!(out, "<tr>{cells}<td>{word}</td></tr>");
        }
        out.push_str("</table>");
    }
    for note in &outcome.notes {
        let _ = write!(out, "<p class=\"note\">{}</p>", escape(note));
    }
    out.push_str("<details open><summary>How it was measured</summary>");
    for how in &outcome.measured {
        let _ = write!(out, "<p>{}</p>", escape(how));
    }
    let _ = write!(
        out,
        "<p>{}, {:.0} s, on {}.</p></details>",
        escape(&outcome.at),
        outcome.seconds,
        escape(&outcome.machine.line())
    );
}

fn table(out: &mut String, table: &Table) {
    let _ = write!(out, "<div class=\"wide\"><table><caption>{}</caption><tr>", escape(&table.title));
    let class = |story: bool| if story { " class=\"story\"" } else { "" };
    for column in &table.columns {
        let _ = write!(out, "<th{}>{}</th>", class(column.story), escape(&column.name));
    }
    for row in &table.rows {
        out.push_str("</tr><tr>");
        for (cell, column) in row.iter().zip(&table.columns) {
            let _ = write!(out, "<td{}>{}</td>", class(column.story), escape(cell));
        }
    }
    out.push_str("</tr></table></div>");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::{Bar, Machine, Plot};

    fn outcome() -> Outcome {
        let mut table = Table::new("times", &["threads", "ms", "story ms"]);
        table.row(["<1>", "2.5", "109"]);
        Outcome {
            name: "threads".into(),
            title: "A title".into(),
            asked: "why & how?".into(),
            measured: vec!["so".into()],
            machine: Machine::here(),
            quick: true,
            at: "2026-01-01T00:00:00Z".into(),
            seconds: 1.0,
            tables: vec![table],
            plots: vec![Plot { file: "threads.svg".into(), caption: "c".into(), svg: "<svg>x</svg>".into() }],
            bars: vec![Bar { what: "b".into(), bound: "at most 1".into(), figure: "2".into(), holds: false }],
            shows: "It shows.".into(),
            notes: vec![],
            lacks: None,
        }
    }

    #[test]
    fn the_page_is_made_of_what_is_in_the_folder() {
        let dir = tempfile::tempdir().unwrap();
        prepare(dir.path()).unwrap();
        add(dir.path(), &outcome()).unwrap();
        let page = std::fs::read_to_string(page(dir.path()).unwrap()).unwrap();
        for part in ["&lt;1&gt;", "<svg>x</svg>", "why &amp; how?", "falls short", "class=\"story\"", "Short runs"] {
            assert!(page.contains(part), "{part} in {page}");
        }
        let text = std::fs::read_to_string(dir.path().join("report.md")).unwrap();
        assert!(text.starts_with("Machine: "), "{text}");
        assert!(text.contains("| threads | ms | story ms |\n|---|---|---|\n| <1> | 2.5 | 109 |"), "{text}");
        let again: Outcome =
            serde_json::from_str(&std::fs::read_to_string(dir.path().join("threads.json")).unwrap()).unwrap();
        assert_eq!(again.tables, outcome().tables);
    }

    #[test]
    fn what_cannot_be_written_or_read_is_one_error() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("threads.json"), "{").unwrap();
        let error = prepare(dir.path()).unwrap_err().to_string();
        assert!(error.contains("threads.json: is no result of an experiment"), "{error}");
        let file = dir.path().join("a-file");
        std::fs::write(&file, "").unwrap();
        assert!(prepare(&file).unwrap_err().to_string().contains("cannot write"));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_is_one_error() {
        use std::error::Error;
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/dev/full", dir.path().join("index.html")).unwrap();
        let error = prepare(dir.path()).unwrap_err();
        assert!(error.to_string().contains("index.html: cannot write"), "{error}");
        assert!(error.source().unwrap().to_string().contains("No space left"), "{:?}", error.source());
    }
}
