//! Why flows fail: the server says it in its log alone, so the exploration reads the log of its thread.

use std::cell::RefCell;
use std::fmt::Debug;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// A failure of a flow.
#[derive(Debug, Clone, Default)]
pub(crate) struct Caught {
    /// File, line and column.
    pub(crate) place: String,
    pub(crate) message: String,
}

thread_local! {
    static CAUGHT: RefCell<Vec<Caught>> = const { RefCell::new(Vec::new()) };
}

/// Runs something whose flows' failures can be taken.
pub(crate) fn catching<T>(what: impl FnOnce() -> T) -> T {
    tracing::subscriber::with_default(Catcher, what)
}

/// The failures since the last time.
pub(crate) fn take() -> Vec<Caught> {
    CAUGHT.take()
}

struct Catcher;

impl Subscriber for Catcher {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && metadata.target() == "fanin::flow" && *metadata.level() == Level::ERROR
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut caught = Caught::default();
        event.record(&mut caught);
        CAUGHT.with_borrow_mut(|all| all.push(caught));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

impl Visit for Caught {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "at" {
            value.clone_into(&mut self.place);
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let text = || format!("{value:?}");
        match field.name() {
            "at" => self.place = text().trim_matches('"').to_owned(),
            "message" => self.message = text().lines().next().unwrap_or_default().to_owned(),
            _ => {}
        }
    }
}
