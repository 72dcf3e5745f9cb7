//! Rendering of failures and diagnostics: the line underlined, the traceback, a hint.

use std::fmt::Write;

use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet};

use crate::error::{Failure, Position};
use crate::program::Program;
use crate::value::part::Made;

impl Program {
    /// The failure with the lines it speaks of, the functions that led there and a hint, in the style
    /// of a compiler's messages; in colour if asked.
    #[must_use]
    pub fn explain(&self, failure: &Failure, colour: bool) -> String {
        let decided = failure.trace.last().map(|frame| &frame.position);
        let made = failure.payload.as_ref().and_then(|payload| payload.downcast_ref::<Made>());
        let main = failure.position.as_ref().or(decided);
        let mut others: Vec<(&str, &Position)> = made.iter().map(|made| ("the answer of this call", &made.0)).collect();
        // A call that failed is reported where it was made; it came up where it was decided on.
        if let (Some(main), Some(decided)) = (main, decided)
            && main != decided
        {
            others.push(("its answer is decided on here", decided));
        }
        let mut group = match main {
            Some(main) => self.snippet(&failure.message, main, &others),
            None => Group::with_title(Level::ERROR.primary_title(failure.message.as_str())),
        };
        if let Some(hint) = &failure.hint {
            group = group.element(Level::HELP.message(hint.as_str()));
        }
        let renderer = if colour { Renderer::styled() } else { Renderer::plain() };
        let mut text = renderer.render(&[group]);
        if !failure.trace.is_empty() {
            text.push_str("\nfunctions, outermost first:");
            for frame in &failure.trace {
                // Writing to a string cannot fail.
                let _ = write!(text, "\n  {} in {}", frame.position, frame.function);
            }
        }
        text
    }

    fn snippet<'a>(&'a self, message: &'a str, main: &'a Position, others: &[(&'a str, &'a Position)]) -> Group<'a> {
        let title = Level::ERROR.primary_title(message);
        let text = |position: &Position| {
            self.files().find(|(name, _)| **name == position.file).map(|(_, text)| text).filter(|text| {
                let (from, to) = position.span;
                from <= to && text.get(from as usize..to as usize).is_some()
            })
        };
        let range = |position: &Position| position.span.0 as usize..position.span.1 as usize;
        let Some(source) = text(main) else {
            return Group::with_title(title).element(Origin::path(main.file.as_str()));
        };
        let mut snippet =
            Snippet::source(source).path(main.file.as_str()).annotation(AnnotationKind::Primary.span(range(main)));
        let (here, elsewhere): (Vec<_>, Vec<_>) = others.iter().partition(|(_, position)| position.file == main.file);
        for (what, position) in here {
            if text(position).is_some() && position.span != main.span {
                snippet = snippet.annotation(AnnotationKind::Context.span(range(position)).label(what));
            }
        }
        let mut group = title.element(snippet);
        for (what, position) in elsewhere {
            if let Some(source) = text(position) {
                let annotation = AnnotationKind::Context.span(range(position)).label(what);
                group = group.element(Snippet::source(source).path(position.file.as_str()).annotation(annotation));
            }
        }
        group
    }
}
