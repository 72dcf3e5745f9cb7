//! The tests of a folder: its configuration, the program of all its files of tests, and the cases of each.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use fanin_config::{Config, Diagnostic, Severity};
use fanin_flow::Flows;
use fanin_lang::{FunctionRef, Program, Value};

use crate::discover::test_files;
use crate::error::TestError;
use crate::module::module;
use crate::setting::Setting;
use crate::values::cases_of;

/// What a test's function is called.
const PREFIX: &str = "test_";
/// What a function that `fanin explore` runs is called.
pub(crate) const EXPLORE: &str = "explore_";
/// The function that runs before each test of its file.
const SETUP: &str = "setup";
/// The most cases of one function.
const MAX_CASES: usize = 10_000;

/// The tests of a folder.
pub struct Suite {
    pub(crate) setting: Arc<Setting>,
    pub(crate) program: Program,
    /// The tests, by file and in the order of the source.
    pub(crate) tests: Vec<Test>,
    /// What `fanin explore` runs, in the same order.
    pub(crate) explorations: Vec<Test>,
    /// The folder.
    pub(crate) dir: PathBuf,
    /// Warnings about configuration, flows and tests.
    pub warnings: Vec<Diagnostic>,
}

/// One test: a function with one choice of its cases.
#[derive(Debug, Clone)]
pub(crate) struct Test {
    pub(crate) file: String,
    pub(crate) function: FunctionRef,
    pub(crate) setup: Option<FunctionRef>,
    /// The function's name, with the labels of its cases: `test_page[small]`.
    pub(crate) name: String,
    /// For each parameter the number of its case; `None` for one with a plain default.
    pub(crate) cases: Vec<Option<usize>>,
    /// Line of the function.
    pub(crate) line: u32,
}

impl Test {
    /// What a filter looks at, and reports show: `flows/page_test.star::test_page[small]`.
    pub(crate) fn id(&self) -> String {
        format!("{}::{}", self.file, self.name)
    }
}

impl Suite {
    /// Loads the tests of a folder (or of the folder of a configuration file).
    ///
    /// # Errors
    /// Everything that is wrong with configuration, flows and tests.
    pub fn load(path: &Path) -> Result<Suite, TestError> {
        let inspection = Config::inspect(path, &|name| std::env::var(name).ok());
        let mut found = inspection.diagnostics;
        let has_errors = |found: &[Diagnostic]| found.iter().any(|one| one.severity == Severity::Error);
        let (Some(config), false) = (inspection.config, has_errors(&found)) else {
            return Err(TestError::Diagnostics(found));
        };
        let dir = config.dir.clone();
        let setting = Setting::new(config)?;
        let upstreams = &setting.upstreams;
        let checked = Flows::check(&setting.config, upstreams, &[], false);
        found.extend(checked.diagnostics);
        let files = test_files(&dir)?;
        let names: Vec<&str> = files.iter().map(String::as_str).collect();
        let loaded = Flows::load_program(&setting.config, upstreams, &names, &[module()]);
        // A file of tests loads flows, whose warnings would come twice.
        for one in loaded.diagnostics {
            if !found.iter().any(|known| known.to_string() == one.to_string()) {
                found.push(one);
            }
        }
        let Some(program) = loaded.program.filter(|_| !has_errors(&found)) else {
            return Err(TestError::Diagnostics(found));
        };
        if let Some(flows) = checked.flows {
            setting.set_flows(flows);
        }
        let (mut tests, mut explorations) = (Vec::new(), Vec::new());
        for file in &files {
            tests.extend(tests_of(&program, file, PREFIX)?);
            explorations.extend(tests_of(&program, file, EXPLORE)?);
        }
        Ok(Suite { setting: Arc::new(setting), program, tests, explorations, dir, warnings: found })
    }

    /// The number of tests.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tests.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tests.is_empty()
    }

    /// Names of all tests, in order.
    pub fn names(&self) -> impl Iterator<Item = String> {
        self.tests.iter().map(Test::id)
    }
}

fn tests_of(program: &Program, file: &str, prefix: &str) -> Result<Vec<Test>, TestError> {
    let wrong = |what: String| TestError::File { path: file.to_owned(), what };
    let setup = program.function(file, SETUP);
    if let Some(setup) = setup
        && program.defaults(setup).iter().any(|(_, default)| default.is_none())
    {
        return Err(wrong(format!("{SETUP}() runs before each test, without arguments")));
    }
    let mut functions: Vec<(FunctionRef, String)> = program
        .functions(file)
        .into_iter()
        .filter(|name| name.starts_with(prefix))
        .filter_map(|name| Some((program.function(file, &name)?, name.to_string())))
        .collect();
    functions.sort();
    let mut tests = Vec::new();
    for (function, name) in functions {
        if program.takes_more(function) {
            return Err(wrong(format!("{name} takes *args or **kwargs, which a test cannot")));
        }
        let line = program.line(function);
        let mut choices: Vec<(String, Vec<Option<usize>>)> = vec![(String::new(), Vec::new())];
        for (param, default) in program.defaults(function) {
            let Some(default) = default else {
                return Err(wrong(format!(
                    "{name} needs a value for {param}: a test's parameters have cases, {param} = each(1, 2)"
                )));
            };
            let Some(cases) = cases_of(&default.to_value()) else {
                choices.iter_mut().for_each(|(_, numbers)| numbers.push(None));
                continue;
            };
            let mut next = Vec::new();
            for (label, numbers) in &choices {
                for (at, (case, _)) in cases.iter().enumerate() {
                    let label = if label.is_empty() { case.clone() } else { format!("{label}, {case}") };
                    next.push((label, [numbers.clone(), vec![Some(at)]].concat()));
                }
            }
            if next.len() > MAX_CASES {
                return Err(wrong(format!("{name} has more than {MAX_CASES} cases")));
            }
            choices = next;
        }
        for (label, cases) in choices {
            let name = if label.is_empty() { name.clone() } else { format!("{name}[{label}]") };
            tests.push(Test { file: file.to_owned(), function, setup, name, cases, line });
        }
    }
    Ok(tests)
}

/// The arguments of a test's function.
pub(crate) fn arguments(program: &Program, test: &Test) -> Vec<Value> {
    let defaults = program.defaults(test.function);
    let each = defaults.into_iter().zip(&test.cases).map(|((_, default), number)| {
        let value = default.map(|default| default.to_value()).unwrap_or_default();
        match number {
            None => value,
            Some(at) => {
                cases_of(&value).and_then(|cases| cases.into_iter().nth(*at)).map(|(_, case)| case).unwrap_or_default()
            }
        }
    });
    each.collect()
}
