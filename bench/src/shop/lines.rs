//! How much code a flow is: its own lines and those of all functions that it uses.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::rc::Rc;

use crate::Failure;

/// Top-level functions and constants by name, which is unique over the files of `examples/shop`.
#[derive(Debug, Default)]
pub struct Code(BTreeMap<String, Part>);

#[derive(Debug)]
struct Part {
    /// Lines of code: neither blank lines, comments nor documentation.
    lines: usize,
    /// Words in them, without those in texts.
    words: BTreeSet<String>,
    /// Names that its file loads or defines.
    scope: Rc<BTreeSet<String>>,
}

impl Code {
    /// Reads all flows of a folder.
    pub fn read(dir: &Path) -> Result<Code, Failure> {
        let mut code = Code::default();
        for file in std::fs::read_dir(dir)? {
            code.add(&std::fs::read_to_string(file?.path())?);
        }
        Ok(code)
    }

    fn add(&mut self, text: &str) {
        let mut scope = BTreeSet::new();
        let mut parts: Vec<(String, usize, BTreeSet<String>)> = Vec::new();
        let mut quoted = false;
        let mut counts = false;
        for line in text.lines() {
            let quotes = line.matches("\"\"\"").count();
            let documentation = quoted || quotes > 0;
            quoted ^= quotes % 2 == 1;
            let code = line.trim();
            if documentation || code.is_empty() || code.starts_with('#') {
                continue;
            }
            if let Some(loaded) = line.strip_prefix("load(") {
                scope.extend(words(loaded));
                counts = false;
            } else if !line.starts_with([' ', ']', ')', '}']) {
                let name = words(line.strip_prefix("def ").unwrap_or(line)).next().unwrap_or_default();
                scope.insert(name.clone());
                parts.push((name, 0, BTreeSet::new()));
                counts = true;
            }
            if let (true, Some((_, lines, used))) = (counts, parts.last_mut()) {
                *lines += 1;
                // Every other piece between quotes is a text.
                used.extend(code.split('"').step_by(2).flat_map(words));
            }
        }
        let scope = Rc::new(scope);
        self.0
            .extend(parts.into_iter().map(|(name, lines, words)| (name, Part { lines, words, scope: scope.clone() })));
    }

    /// Lines of this function and of all that it uses, and of what they use.
    pub fn lines(&self, name: &str) -> usize {
        let mut used = vec![name];
        let mut at = 0;
        while let Some(name) = used.get(at) {
            at += 1;
            let Some(part) = self.0.get(*name) else { continue };
            for word in part.words.intersection(&part.scope) {
                if self.0.contains_key(word) && !used.contains(&word.as_str()) {
                    used.push(word);
                }
            }
        }
        used.iter().filter_map(|name| self.0.get(*name)).map(|part| part.lines).sum()
    }
}

fn words(text: &str) -> impl Iterator<Item = String> {
    text.split(|c: char| !is_word(c)).filter(|word| !word.is_empty()).map(str::to_owned)
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_is_its_lines_and_those_of_what_it_uses() {
        let mut code = Code::default();
        code.add("\"\"\"A file.\"\"\"\nload(\"a\", \"two\")\nMOST = [\n    3,\n]\n\ndef one(a):\n    \"\"\"Says\n\n    what.\"\"\"\n    # Why.\n    return two(a)\n");
        code.add("def two(a):\n    return a[\"three\"]\ndef three(MOST):\n    return two(\n        MOST,\n    )\n");
        assert_eq!(["two", "one", "three", "MOST", "none"].map(|name| code.lines(name)), [2, 4, 6, 3, 0]);
    }

    #[test]
    fn merged_is_the_shortest_of_the_shops_ways() {
        let flows = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/shop/flows");
        let code = Code::read(&flows).unwrap();
        let lines: Vec<usize> = super::super::WAYS.iter().map(|way| code.lines(way.2)).collect();
        assert!(lines[..4].iter().all(|other| *other > lines[4]) && lines[4] > 20, "{lines:?}");
    }
}
