//! Generators of programs, one file for a few areas of the specification each.

mod code;
mod containers;
mod data;
mod functions;
mod modules;
mod text;
pub mod values;

use crate::Program;
use crate::tape::Tape;

/// An area of the specification.
#[derive(Debug, Clone, Copy)]
pub struct Area {
    /// Its name.
    pub name: &'static str,
    /// Writes the body of `main`, a line each, and files that it loads before it.
    body: fn(&mut Tape<'_>) -> Body,
}

/// What a generator writes.
#[derive(Debug, Default)]
pub struct Body {
    /// Lines of `main`.
    pub main: Vec<String>,
    /// Lines before `main` in its file.
    pub top: Vec<String>,
    /// Files that the main one loads.
    pub files: Vec<(String, String)>,
}

impl Body {
    fn lines(main: Vec<String>) -> Self {
        Self { main, ..Self::default() }
    }
}

impl Area {
    /// Areas have different programs for the same seed.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.name.bytes().fold(7, |seed, byte| seed.wrapping_mul(131).wrapping_add(u64::from(byte)))
    }
}

/// All areas.
pub const AREAS: [Area; 18] = [
    Area { name: "integers", body: data::integers },
    Area { name: "floats", body: data::floats },
    Area { name: "comparisons", body: data::comparisons },
    Area { name: "builtins", body: data::builtins },
    Area { name: "json", body: data::json },
    Area { name: "strings", body: text::strings },
    Area { name: "formats", body: text::formats },
    Area { name: "lists", body: containers::lists },
    Area { name: "dicts", body: containers::dicts },
    Area { name: "sets", body: containers::sets },
    Area { name: "slices", body: containers::slices },
    Area { name: "comprehensions", body: code::comprehensions },
    Area { name: "control flow", body: code::control },
    Area { name: "assignments", body: code::assignments },
    Area { name: "arguments", body: functions::arguments },
    Area { name: "closures", body: functions::closures },
    Area { name: "freezing", body: modules::freezing },
    Area { name: "load", body: modules::load },
];

/// The tape of an area's program of this number.
#[must_use]
pub fn tape(area: &Area, number: usize, seed: u64) -> Vec<u32> {
    let mut random = fastrand::Rng::with_seed(seed ^ (number as u64) << 20 ^ area.seed());
    (0..600).map(|_| random.u32(..)).collect()
}

/// The program of an area for a tape.
#[must_use]
pub fn write(area: &Area, tape: &[u32]) -> Program {
    let body = (area.body)(&mut Tape::new(tape));
    let mut text = String::new();
    for line in &body.top {
        text.push_str(line);
        text.push('\n');
    }
    text.push_str("def main():\n");
    for line in &body.main {
        text.push_str("    ");
        text.push_str(&line.replace('\n', "\n    "));
        text.push('\n');
    }
    text.push_str("    return None\n");
    let mut files = body.files;
    files.push(("main.star".to_owned(), text));
    Program { files }
}

/// `low` to `high` lines that emit an expression each.
fn emits(tape: &mut Tape<'_>, low: usize, high: usize, mut one: impl FnMut(&mut Tape<'_>) -> String) -> Vec<String> {
    let count = low + tape.choose(high - low + 1);
    (0..count).map(|_| format!("emit({})", one(tape))).collect()
}
