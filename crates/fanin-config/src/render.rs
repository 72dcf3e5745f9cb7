//! Diagnostics for people: the source line, underlined, in rustc's style. Used for fanin.toml and for flows.

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};

use crate::values::secret::masked_text;
use crate::{Diagnostic, Severity};

/// One diagnostic with the source line it speaks of, underlined; in colour if asked. Passwords in the line are masked.
pub fn render(diagnostic: &Diagnostic, colour: bool) -> String {
    let level = match diagnostic.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
    };
    let source = &diagnostic.source;
    let text = masked_text(&source.text);
    let mut title = level.primary_title(diagnostic.message.as_str());
    if let Some(lint) = diagnostic.lint {
        title = title.id(lint);
    }
    let mut group = if diagnostic.at.line > 0 && diagnostic.at.end <= text.len() {
        let span = diagnostic.at.start..diagnostic.at.end;
        title.element(
            Snippet::source(text.as_str()).path(source.name.as_str()).annotation(AnnotationKind::Primary.span(span)),
        )
    } else {
        Group::with_title(title).element(annotate_snippets::Origin::path(source.name.as_str()))
    };
    if let Some(hint) = &diagnostic.hint {
        group = group.element(Level::HELP.message(hint.as_str()));
    }
    let renderer = if colour { Renderer::styled() } else { Renderer::plain() };
    renderer.render(&[group])
}

/// Many diagnostics, each as [`render`] shows it, and a line with their number.
pub fn render_all(diagnostics: &[Diagnostic], colour: bool) -> String {
    let mut text = String::new();
    for diagnostic in diagnostics {
        text.push_str(&render(diagnostic, colour));
        text.push_str("\n\n");
    }
    let count = |severity, one: &str, many: &str| match diagnostics
        .iter()
        .filter(|diagnostic| diagnostic.severity == severity)
        .count()
    {
        0 => None,
        1 => Some(format!("1 {one}")),
        number => Some(format!("{number} {many}")),
    };
    let counts: Vec<String> =
        [count(Severity::Error, "error", "errors"), count(Severity::Warning, "warning", "warnings")]
            .into_iter()
            .flatten()
            .collect();
    text.push_str(&counts.join(", "));
    text
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::Source;

    #[test]
    fn shows_the_line_and_the_hint() {
        let source = Arc::new(Source::new("fanin.toml", "[server]\nlimits = 3\n"));
        let diagnostic = Diagnostic::error(&source, 9..15, "unknown key `limits`").hint("did you mean `limit`?");
        let text = render(&diagnostic, false);
        assert!(text.contains("error: unknown key `limits`"), "{text}");
        assert!(text.contains("fanin.toml:2:1"), "{text}");
        assert!(text.contains("limits = 3"), "{text}");
        assert!(text.contains("^^^^^^"), "{text}");
        assert!(text.contains("help: did you mean `limit`?"), "{text}");
        assert!(!text.contains('\x1b'), "{text}");
        assert!(render(&diagnostic, true).contains('\x1b'));
        let all = render_all(&[diagnostic.clone(), diagnostic.clone().warning()], false);
        assert!(all.ends_with("1 error, 1 warning"), "{all}");
    }

    #[test]
    fn a_whole_file_has_no_line() {
        let text = render(&Diagnostic::file("dir/fanin.toml", "no such file"), false);
        assert!(text.contains("no such file") && text.contains("dir/fanin.toml"), "{text}");
    }

    #[test]
    fn ends_of_files_and_tabs_do_not_break_it() {
        let source = Arc::new(Source::new("f", "a\té = 1"));
        for span in [0..0, 8..8, 3..3, 2..100, 100..200] {
            render(&Diagnostic::error(&source, span, "x"), false);
        }
    }
}
