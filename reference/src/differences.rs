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

    /// Whether they first differ in what a line emits, not in how the program ends.
    fn emits(&self) -> bool {
        self.ours.emitted.iter().zip(&self.theirs.emitted).any(|(ours, theirs)| ours != theirs)
    }

    /// Whether one of these stands in the program.
    fn has(&self, parts: &[&str]) -> bool {
        parts.iter().any(|part| self.text.contains(part))
    }
}

/// The table.
pub const TABLE: [Difference; 14] = [
    Difference {
        what: "`int(\"0x1f\")` without a base",
        here: "an error",
        there: "the prefix counts",
        why: "the specification",
        stands: |case| case.ours(Kind::Operation, "in base 10") && case.has(&["int(\"0x", "int(\"0o", "int(\"0b"]),
    },
    Difference {
        what: "the sign of a zero that is a remainder",
        here: "kept",
        there: "lost",
        why: "as in Python",
        stands: |case| {
            let plain =
                |outcome: &Outcome| outcome.emitted.iter().map(|line| line.replace("-0.0", "0.0")).collect::<Vec<_>>();
            case.has(&["%"]) && plain(case.ours) == plain(case.theirs)
        },
    },
    Difference {
        what: "`x[k] = v` where `x` has no elements that can be assigned",
        here: "a wrong type",
        there: "something immutable",
        why: "it is no list and no dict, frozen or not",
        stands: |case| case.ours(Kind::Operation, "cannot be assigned") && case.theirs(Kind::Frozen, "Immutable"),
    },
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
        there: "an error, but for `%d` of small ones",
        why: "the same for all",
        stands: |case| case.theirs(Kind::Operation, "format(%"),
    },
    Difference {
        what: "a wrong change of something that cannot be changed: `x.remove(y)` without a `y`, `x[\"k\"] = 1` of a list",
        here: "the change is refused",
        there: "what is wrong with it is told",
        why: "whether a program may change something does not depend on the values",
        stands: |case| {
            case.ours(Kind::Frozen, "")
                && [Kind::Operation, Kind::Index, Kind::Key].into_iter().any(|kind| case.theirs(kind, ""))
        },
    },
    Difference {
        what: "`x << n` whose result has more than 32 bits",
        here: "exact",
        there: "`2147483647 << 22` is negative",
        why: "integers have any size",
        stands: |case| case.has(&["<<"]) && (case.emits() || case.theirs(Kind::Arithmetic, "by zero")),
    },
    Difference {
        what: "`x & y` and `intersection` of sets",
        here: "the elements of the left in its order",
        there: "those of the smaller one",
        why: "the result does not depend on sizes",
        stands: |case| case.has(&[" & ", "intersection"]) && case.emits(),
    },
    Difference {
        what: "`set.pop()`",
        here: "the first element",
        there: "the last one",
        why: "the specification",
        stands: |case| case.has(&["x.pop()"]) && case.has(&["set("]) && case.emits(),
    },
    Difference {
        what: "sets and iterables of what is not hashable",
        here: "an error",
        there: "allowed by `difference` and its like",
        why: "the specification",
        stands: |case| {
            case.ours(Kind::Operation, "is not hashable") && case.has(&["difference", "intersection", "union", "is"])
        },
    },
    Difference {
        what: "floats as text: `str`, `%g`",
        here: "as many digits as read back the same",
        there: "6 digits",
        why: "the specification",
        stands: |case| {
            case.has(&["str", "repr", "%s", "%r", "%g", "format", "f\"", "json"])
                && case.has(&[".", "%g", "e1", "e3", "e-"])
                && case.emits()
        },
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
