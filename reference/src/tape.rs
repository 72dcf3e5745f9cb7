//! Choices, read off a tape. Past its end every choice is the first, which generators make the simplest.

/// A tape and the place on it.
#[derive(Debug)]
pub struct Tape<'a> {
    numbers: &'a [u32],
    at: usize,
    names: usize,
    depth: usize,
}

impl<'a> Tape<'a> {
    /// The start of a tape.
    #[must_use]
    pub fn new(numbers: &'a [u32]) -> Self {
        Self { numbers, at: 0, names: 0, depth: 0 }
    }

    /// Whether nothing is left of it.
    #[must_use]
    pub fn ended(&self) -> bool {
        self.at >= self.numbers.len()
    }

    /// A number below `count`.
    pub fn choose(&mut self, count: usize) -> usize {
        let number = self.numbers.get(self.at).copied().unwrap_or(0);
        self.at += 1;
        number as usize % count.max(1)
    }

    /// One of several texts.
    pub fn of<'b>(&mut self, all: &[&'b str]) -> &'b str {
        all[self.choose(all.len())]
    }

    /// A number from `low` to `high`.
    pub fn number(&mut self, low: i64, high: i64) -> i64 {
        low + self.choose((high - low + 1) as usize) as i64
    }

    /// `low` to `high` things, separated by commas.
    pub fn several(&mut self, low: usize, high: usize, mut one: impl FnMut(&mut Self) -> String) -> String {
        let count = low + self.choose(high - low + 1);
        (0..count).map(|_| one(self)).collect::<Vec<_>>().join(", ")
    }

    /// Something that may hold things of its own kind; `leaf` when it gets too deep.
    pub fn nested(
        &mut self,
        inner: impl FnOnce(&mut Self) -> String,
        leaf: impl FnOnce(&mut Self) -> String,
    ) -> String {
        if self.depth >= 3 {
            return leaf(self);
        }
        self.depth += 1;
        let text = inner(self);
        self.depth -= 1;
        text
    }

    /// A new name.
    pub fn name(&mut self, prefix: &str) -> String {
        self.names += 1;
        format!("{prefix}{}", self.names)
    }
}
