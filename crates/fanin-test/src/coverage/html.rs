//! One self-contained page: each file with the lines that have run, and those that have not.

use std::fmt::Write;
use std::path::Path;

use super::{Coverage, FileCoverage};

const HEAD: &str = "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
content=\"width=device-width\"><title>Coverage of flows</title><style>\n\
:root{color-scheme:light dark;--hit:#e3f4e3;--miss:#fbdcdc;--part:#fdf0cf}\n\
@media(prefers-color-scheme:dark){:root{--hit:#17331b;--miss:#4a1c1c;--part:#4a3c10}}\n\
body{font:16px/1.4 system-ui,sans-serif;margin:2rem auto;max-width:72rem;padding:0 1rem}\n\
table.sum{border-collapse:collapse}.sum td,.sum th{padding:.2rem .8rem;text-align:right}.sum td:first-child,.sum th:first-child{text-align:left}\n\
pre{font:13px/1.45 ui-monospace,monospace;overflow-x:auto}\n\
pre span{display:block}.n{color:#888;display:inline-block!important;width:9ch;text-align:right;margin-right:1ch;user-select:none}\n\
.hit{background:var(--hit)}.miss{background:var(--miss)}.part{background:var(--part)}\n\
</style></head><body>\n";

/// The page. Sources are read from the folder of the flows.
pub(super) fn page(coverage: &Coverage, flows: &Path) -> String {
    let mut page = HEAD.to_owned();
    page.push_str("<h1>Coverage of flows</h1>\n<p>Green: has run. Red: has not. Yellow: a condition that was only ever true, or only ever false.</p>\n");
    page.push_str("<table class=\"sum\"><tr><th>file</th><th>lines</th><th>branches</th></tr>\n");
    for (name, file) in &coverage.files {
        let (lines, branches) = (file.line_share(), file.branch_share());
        let name = escape(name);
        let _ = writeln!(
            page,
            "<tr><td><a href=\"#{name}\">{name}</a></td><td>{:.1} %</td><td>{:.1} %</td></tr>",
            lines.percent(),
            branches.percent()
        );
    }
    page.push_str("</table>\n");
    for (name, file) in &coverage.files {
        let _ = writeln!(page, "<h2 id=\"{0}\">{0}</h2>\n<pre>", escape(name));
        match std::fs::read_to_string(flows.join(name)) {
            Ok(source) => lines(&mut page, file, &source),
            Err(error) => page.push_str(&escape(&error.to_string())),
        }
        page.push_str("</pre>\n");
    }
    page.push_str("</body></html>\n");
    page
}

fn lines(page: &mut String, file: &FileCoverage, source: &str) {
    let (lines, branches) = (file.lines(), file.branches());
    for (at, text) in source.lines().enumerate() {
        let number = at as u32 + 1;
        let is_half = branches.iter().any(|(line, _, count)| *line == number && *count == 0);
        let (class, count) = match lines.get(&number) {
            None => ("", String::new()),
            Some(0) => ("miss", "0".to_owned()),
            Some(count) if is_half => ("part", count.to_string()),
            Some(count) => ("hit", count.to_string()),
        };
        let _ =
            write!(page, "<span class=\"{class}\"><span class=\"n\">{count} {number}</span>{}</span>", escape(text));
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
