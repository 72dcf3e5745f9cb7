//! Circles among files: strongly connected components (Tarjan, *Depth-First Search and Linear Graph Algorithms*, 1972).

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::modules::Dependencies;

/// The dependencies within one circle: who, on whom, by which names.
type Circle = Vec<(PathBuf, PathBuf, Vec<String>)>;

/// All circles.
pub fn find(dependencies: &Dependencies) -> Vec<Circle> {
    let mut search = Search { dependencies, numbers: HashMap::new(), stack: Vec::new(), found: Vec::new() };
    for file in dependencies.keys() {
        if !search.numbers.contains_key(file.as_path()) {
            search.visit(file);
        }
    }
    search.found.iter().map(|files| inside(dependencies, files)).collect()
}

fn inside(dependencies: &Dependencies, files: &[&Path]) -> Circle {
    let mut circle = Circle::new();
    for (from, targets) in dependencies {
        for (to, names) in targets {
            if files.contains(&from.as_path()) && files.contains(&to.as_path()) {
                circle.push((from.clone(), to.clone(), names.iter().cloned().collect()));
            }
        }
    }
    circle
}

struct Search<'a> {
    dependencies: &'a Dependencies,
    /// When a file was reached; `usize::MAX` once its component is complete.
    numbers: HashMap<&'a Path, usize>,
    stack: Vec<&'a Path>,
    found: Vec<Vec<&'a Path>>,
}

impl<'a> Search<'a> {
    /// Gives the lowest number that can be reached from `file`.
    fn visit(&mut self, file: &'a Path) -> usize {
        let number = self.numbers.len();
        self.numbers.insert(file, number);
        let depth = self.stack.len();
        self.stack.push(file);
        let mut lowest = number;
        for target in self.dependencies.get(file).into_iter().flat_map(|targets| targets.keys()) {
            let reached = match self.numbers.get(target.as_path()) {
                Some(&reached) => reached,
                None => self.visit(target),
            };
            lowest = lowest.min(reached);
        }
        if lowest == number {
            let component = self.stack.split_off(depth);
            for file in &component {
                self.numbers.insert(file, usize::MAX);
            }
            if component.len() > 1 {
                self.found.push(component);
            }
        }
        lowest
    }
}
