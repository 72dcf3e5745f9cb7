//! JUnit XML, as Jenkins, GitLab and GitHub's actions read it.

use std::fmt::Write;

use crate::run_test::TestOutcome;
use crate::runner::TestRun;

/// A `testsuite` for each file.
#[must_use]
pub fn junit(run: &TestRun) -> String {
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let _ = writeln!(
        xml,
        "<testsuites tests=\"{}\" failures=\"{}\" time=\"{:.3}\">",
        run.outcomes.len(),
        run.failed(),
        run.took.as_secs_f64()
    );
    for tests in run.outcomes.chunk_by(|a, b| a.file == b.file) {
        suite(&mut xml, tests);
    }
    xml.push_str("</testsuites>\n");
    xml
}

fn suite(xml: &mut String, tests: &[TestOutcome]) {
    let failed = tests.iter().filter(|test| test.failure.is_some()).count();
    let time: f64 = tests.iter().map(|test| test.took.as_secs_f64()).sum();
    let file = tests.first().map_or("", |test| test.file.as_str());
    let _ = writeln!(
        xml,
        "  <testsuite name=\"{}\" tests=\"{}\" failures=\"{failed}\" time=\"{time:.3}\">",
        escape(file),
        tests.len()
    );
    for test in tests {
        let _ = write!(
            xml,
            "    <testcase classname=\"{}\" name=\"{}\" file=\"{}\" line=\"{}\" time=\"{:.3}\"",
            escape(file.trim_end_matches(".star")),
            escape(&test.name),
            escape(file),
            test.line,
            test.took.as_secs_f64()
        );
        if test.failure.is_none() && test.output.is_empty() {
            xml.push_str("/>\n");
            continue;
        }
        xml.push_str(">\n");
        if let Some(failure) = &test.failure {
            let _ = writeln!(
                xml,
                "      <failure message=\"{}\">{}</failure>",
                escape(&failure.message),
                escape(&failure.explanation)
            );
        }
        if !test.output.is_empty() {
            let _ = writeln!(xml, "      <system-out>{}</system-out>", escape(&test.output));
        }
        xml.push_str("    </testcase>\n");
    }
    xml.push_str("  </testsuite>\n");
}

/// Text of XML 1.0, which cannot have most control characters.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' | '\t' => escaped.push(c),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped() {
        assert_eq!(escape("a<b> & \"c\"\u{1b}[0m"), "a&lt;b&gt; &amp; &quot;c&quot;\u{fffd}[0m");
    }
}
