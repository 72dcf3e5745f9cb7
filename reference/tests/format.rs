//! The formatter on generated programs: formatting again changes nothing, and the program does the same.

use fanin_lang::format_source;
use fanin_reference::{Program, areas, ours};

#[test]
fn generated_programs_do_the_same_when_they_are_formatted() {
    let count = std::env::var("FANIN_REFERENCE_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(500);
    let mut formatted = 0;
    for area in &areas::AREAS {
        for number in 0..count {
            let program = areas::write(area, &areas::tape(area, number, 2026));
            let mut files = Vec::new();
            for (name, text) in &program.files {
                // The rest cannot be parsed, on purpose.
                let Ok(once) = format_source(name, text) else { break };
                let twice = format_source(name, &once).expect("what was formatted can be parsed");
                assert_eq!(once, twice, "from:\n{text}");
                assert_eq!(text.matches('#').count(), once.matches('#').count(), "{text}\n{once}");
                files.push((name.clone(), once));
            }
            if files.len() == program.files.len() {
                formatted += 1;
                let after = Program { files };
                let (was, is) = (ours::run(&program), ours::run(&after));
                let kind = |outcome: &fanin_reference::Outcome| outcome.failed.as_ref().map(|failed| failed.kind);
                assert_eq!((&was.emitted, kind(&was)), (&is.emitted, kind(&is)), "{}\n{}", program.text(), after.text());
            }
        }
    }
    assert!(formatted >= areas::AREAS.len() * count * 9 / 10, "only {formatted}");
}
