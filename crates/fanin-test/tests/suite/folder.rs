//! A folder with a configuration, a flow and tests.

use std::path::PathBuf;

use fanin_test::{RunOptions, Suite, TestError, TestOutcome, TestRun};

/// Upstreams `a` and `b` and one route.
pub const TOML: &str = r#"
[upstreams.a]
url = "https://a.internal"
timeout = "100ms"

[upstreams.b]
url = "http://b.internal:8080"
timeout = "100ms"

[[routes]]
method = ["GET", "POST"]
path = "/page/{id}"
flow = "page.star:page"
timeout = "400ms"
"#;

pub struct Folder(pub tempfile::TempDir);

impl Folder {
    /// The usual configuration, with more of it, a flow, and tests.
    pub fn new(more: &str, flow: &str, tests: &str) -> Folder {
        Folder::with_toml(&format!("{TOML}{more}"), flow, tests)
    }

    pub fn with_toml(toml: &str, flow: &str, tests: &str) -> Folder {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("fanin.toml"), toml).unwrap();
        std::fs::write(dir.path().join("page.star"), format!("load('@upstreams', 'a', 'b')\n{flow}")).unwrap();
        let names = "'advance', 'assert_equal', 'assert_fails', 'assert_in', 'assert_snapshot', 'assert_true', 'each', 'get', \
                     'now', 'post', 'reply', 'request', 'requests', 'stub', 'together'";
        let head = format!("load('@test', {names})\nload('@upstreams', 'a', 'b')\n");
        std::fs::write(dir.path().join("page_test.star"), head + tests).unwrap();
        Folder(dir)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn run_with(&self, options: &RunOptions) -> TestRun {
        Suite::load(self.0.path()).unwrap_or_else(|error| panic!("{error:?}")).run(options).unwrap()
    }

    pub fn run(&self) -> TestRun {
        self.run_with(&RunOptions::default())
    }

    /// All tests must pass.
    pub fn passes(&self) {
        let run = self.run();
        assert!(!run.outcomes.is_empty());
        assert_eq!(run.failed(), 0, "{}", fanin_test::report::text(&run, true));
    }

    /// The only test must fail.
    pub fn fails(&self) -> TestOutcome {
        let mut run = self.run();
        assert_eq!((run.outcomes.len(), run.failed()), (1, 1), "{}", fanin_test::report::text(&run, true));
        run.outcomes.remove(0)
    }

    /// Why it cannot be loaded.
    pub fn refused(&self) -> String {
        match Suite::load(self.0.path()) {
            Ok(_) => panic!("it loads"),
            Err(TestError::Diagnostics(found)) => found.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"),
            Err(error) => error.to_string(),
        }
    }
}

/// A flow that returns what both upstreams say, the second if it can.
pub const BOTH: &str = "def page(req):
    one = a.get('/one/{id}', params = {'id': req.params['id']})
    return {'one': one, 'two': b.get('/two', optional = True)}
";
