//! What differs on purpose: each with its reason. The specification is that of `bazelbuild/starlark`.

use crate::{Kind, Outcome, Program};

/// One deliberate difference.
pub struct Difference {
    /// What it is about.
    pub what: &'static str,
    /// What happens here.
    pub here: &'static str,
    /// What the crate does.
    pub there: &'static str,
    /// Why.
    pub why: &'static str,
    stands: fn(&Case<'_>) -> bool,
}

/// A program that differs.
struct Case<'a> {
    text: String,
    ours: &'a Outcome,
    theirs: &'a Outcome,
}

impl Case<'_> {
    fn ours(&self, kind: Kind, part: &str) -> bool {
        self.ours.failed.as_ref().is_some_and(|failed| failed.kind == kind && failed.message.contains(part))
    }

    fn theirs(&self, kind: Kind, part: &str) -> bool {
        self.theirs.failed.as_ref().is_some_and(|failed| failed.kind == kind && failed.message.contains(part))
    }

    /// Whether one of these stands in the program.
    fn has(&self, parts: &[&str]) -> bool {
        parts.iter().any(|part| self.text.contains(part))
    }
}

/// The table.
pub const TABLE: [Difference; 6] = [
    Difference {
        what: "recursion",
        here: "an error",
        there: "allowed up to a depth",
        why: "the specification; every flow ends",
        stands: |case| case.ours(Kind::Recursion, "calls itself"),
    },
    Difference {
        what: "`x[::0]`",
        here: "a wrong value",
        there: "an index out of bounds",
        why: "no index is out of bounds",
        stands: |case| case.ours(Kind::Operation, "step of a slice") && case.theirs(Kind::Index, ""),
    },
    Difference {
        what: "`%d`, `%o`, `%x` of a float",
        here: "cut to an integer",
        there: "an error but for `%d`",
        why: "the same for all three",
        stands: |case| case.theirs(Kind::Operation, "format(%") && case.has(&["%o", "%x", "%X"]),
    },
    Difference {
        what: "`x.remove(y)` while a loop runs over `x`, `y` not in it",
        here: "the change is refused",
        there: "the missing element is reported",
        why: "whether a program may change something does not depend on the values",
        stands: |case| case.ours(Kind::Frozen, "while a loop") && case.theirs(Kind::Operation, ""),
    },
    Difference {
        what: "shifts by more than fits",
        here: "to the right 0 or -1, to the left an error of the limit",
        there: "an error, or what memory allows",
        why: "bounded memory",
        stands: |case| case.ours(Kind::Unknown, "shift by more than"),
    },
    Difference {
        what: "integers of more than 65,536 bits, strings and lists above their bound",
        here: "an error of the limit",
        there: "allowed",
        why: "bounded memory",
        stands: |case| case.ours(Kind::Unknown, "more than"),
    },
];

/// The entry of the table that a program which differs falls under.
#[must_use]
pub fn find(program: &Program, ours: &Outcome, theirs: &Outcome) -> Option<&'static str> {
    let case = Case { text: program.text(), ours, theirs };
    TABLE.iter().find(|entry| (entry.stands)(&case)).map(|entry| entry.what)
}
