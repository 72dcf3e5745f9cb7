//! Snapshots of values: kept beside the tests, compared at each run, written anew with `--update`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::error::TestError;

/// The snapshots of one file of tests.
#[derive(Debug, Clone, Default)]
pub(crate) struct Snapshots {
    stored: BTreeMap<String, Value>,
    update: bool,
    /// What a test has compared: to be written, and to find those that nothing uses any more.
    pub(crate) seen: BTreeMap<String, Value>,
}

/// Where the snapshots of a file of tests are: `page_test.star` has `page_test.snapshots.json`.
pub(crate) fn path_of(tests: &Path) -> PathBuf {
    tests.with_extension("snapshots.json")
}

impl Snapshots {
    /// Those of a file of tests, if there are any.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn load(tests: &Path, update: bool) -> Result<Snapshots, TestError> {
        let path = path_of(tests);
        let wrong = |what: String| TestError::File { path: path.display().to_string(), what };
        let stored = match std::fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => return Err(wrong(error.to_string())),
        };
        Ok(Snapshots { stored, update, seen: BTreeMap::new() })
    }

    /// Compares a value with the snapshot of this name.
    ///
    /// # Errors
    /// How it differs, and what to do.
    pub(crate) fn compare(&mut self, name: &str, value: Value) -> Result<(), String> {
        if self.seen.insert(name.to_owned(), value.clone()).is_some() {
            return Err(format!("two snapshots of this test have the name {name:?}: give the second another one"));
        }
        if self.update {
            return Ok(());
        }
        match self.stored.get(name) {
            Some(stored) if *stored == value => Ok(()),
            Some(stored) => {
                let difference = crate::difference::describe(&value, stored);
                Err(format!("it is not the snapshot {name:?}: {difference}; if that is right, run with --update"))
            }
            None => Err(format!("there is no snapshot {name:?} yet: run with --update to write it")),
        }
    }

    /// Snapshots that no test has compared, although all tests of the file ran.
    pub(crate) fn unused<'a>(&'a self, seen: &'a BTreeMap<String, Value>) -> impl Iterator<Item = &'a str> {
        self.stored.keys().filter(|name| !seen.contains_key(*name)).map(String::as_str)
    }

    /// Writes the snapshots that tests have seen. Those of tests that did not run stay.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn write(&self, tests: &Path, seen: &BTreeMap<String, Value>, all_ran: bool) -> Result<bool, TestError> {
        let mut next = if all_ran { BTreeMap::new() } else { self.stored.clone() };
        next.extend(seen.iter().map(|(name, value)| (name.clone(), value.clone())));
        if next == self.stored {
            return Ok(false);
        }
        let path = path_of(tests);
        let wrong = |what: String| TestError::File { path: path.display().to_string(), what };
        if next.is_empty() {
            std::fs::remove_file(&path).map_err(|error| wrong(error.to_string()))?;
            return Ok(true);
        }
        let mut text = serde_json::to_string_pretty(&next).map_err(|error| wrong(error.to_string()))?;
        text.push('\n');
        std::fs::write(&path, text).map_err(|error| wrong(error.to_string()))?;
        Ok(true)
    }
}
