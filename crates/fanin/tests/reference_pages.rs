//! Configurations and flows on the reference pages pass `fanin check`.
//!
//! A `python` block belongs to the `toml` block right before it, or else to [`UPSTREAMS`]. A block without a function is
//! the body of one. Names that a page takes for granted are in [`PRELUDE`].

mod common;

use std::fs;
use std::path::Path;

use common::{fanin, root};

const PAGES: [&str; 7] = ["files", "flows", "merging", "models", "operations", "sql", "threads"];

/// Upstreams of flows that are shown without a configuration.
const UPSTREAMS: &str = r#"
[upstreams.carts]
url = "http://127.0.0.1:1"
[upstreams.catalog]
url = "http://127.0.0.1:1"
[upstreams.orders]
url = "http://127.0.0.1:1"
[upstreams.search]
url = "http://127.0.0.1:1"
[upstreams.users]
url = "http://127.0.0.1:1"
[upstreams.vacancies]
url = "http://127.0.0.1:1"
"#;

/// What a block takes for granted: a name, and its definition.
const PRELUDE: [(&str, &str); 5] = [
    ("id", "id = 7"),
    ("ids", "ids = [7]"),
    ("fields", "fields = [\"name\"]"),
    ("user_block", "def user_block(req):\n    return users.get(\"/me\")"),
    ("cart_block", "def cart_block(req):\n    return carts.get(\"/cart\")"),
];

struct Block {
    line: usize,
    language: String,
    text: String,
    /// No text stands between it and the block before.
    follows: bool,
}

fn blocks(page: &str) -> Vec<Block> {
    let mut found: Vec<Block> = Vec::new();
    let mut open = false;
    let mut between = false;
    for (at, line) in page.lines().enumerate() {
        match (open, line.strip_prefix("```")) {
            (false, Some(language)) => {
                let follows = !between && !found.is_empty();
                found.push(Block { line: at + 1, language: language.to_owned(), text: String::new(), follows });
                open = true;
            }
            (true, Some(_)) => (open, between) = (false, false),
            (true, None) => {
                if let Some(block) = found.last_mut() {
                    block.text.push_str(line);
                    block.text.push('\n');
                }
            }
            (false, None) => between |= !line.trim().is_empty(),
        }
    }
    found
}

/// Whether a text has a name as a word.
fn uses(text: &str, name: &str) -> bool {
    text.split(|letter: char| !letter.is_alphanumeric() && letter != '_').any(|word| word == name)
}

/// Names of the upstreams in a configuration.
fn upstreams(toml: &str) -> Vec<&str> {
    let headers = toml.lines().filter_map(|line| line.strip_prefix("[upstreams.")?.strip_suffix(']'));
    headers.filter(|name| !name.contains('.')).collect()
}

/// The module of a block, and the functions in it that take a request.
fn module(python: &str, toml: &str) -> (String, Vec<String>) {
    let mut text = String::new();
    if !python.contains("load(\"@upstreams\"") {
        for name in upstreams(toml) {
            text.push_str(&format!("load(\"@upstreams\", \"{name}\")\n"));
        }
    }
    for (name, definition) in PRELUDE {
        if uses(python, name) && !python.contains(&format!("def {name}(")) {
            text.push_str(&format!("{definition}\n"));
        }
    }
    if python.contains("def ") {
        text.push_str(python);
    } else {
        text.push_str("def body(req):\n");
        python.lines().for_each(|line| text.push_str(&format!("    {line}\n")));
    }
    let flows = text.lines().filter_map(|line| line.strip_prefix("def ")?.strip_suffix("(req):")).map(str::to_owned);
    (text.clone(), flows.collect())
}

/// Checks one service; gives what is wrong.
fn check(toml: &str, python: Option<&str>) -> Option<String> {
    let dir = tempfile::tempdir().expect("a folder");
    let file = |name: &str| dir.path().join(name);
    // What configurations of the pages refer to.
    for folder in ["docs", "dumps", "models", "flows"] {
        fs::create_dir(file(folder)).expect("created");
    }
    fs::write(file("admin.token"), "a token").expect("written");
    let version = file("models/antispam/1");
    fs::create_dir_all(&version).expect("created");
    fs::copy(root().join("examples/antispam/models/signs/1/model.txt"), version.join("model.txt")).expect("copied");
    let mut config = toml.to_owned();
    if let Some(python) = python {
        let (text, flows) = module(python, toml);
        fs::write(file("block.star"), text).expect("written");
        for flow in flows {
            config.push_str(&format!("\n[[routes]]\npath = \"/block/{flow}/{{id}}\"\nflow = \"block.star:{flow}\"\n"));
        }
    }
    for line in toml.lines() {
        let Some((path, function)) =
            line.strip_prefix("flow = \"").and_then(|flow| flow.trim_end_matches('"').split_once(':'))
        else {
            continue;
        };
        fs::write(file(path), format!("def {function}(req):\n    return None\n")).expect("written");
    }
    fs::write(file("fanin.toml"), &config).expect("written");
    let output = fanin(&["check"]).arg(dir.path()).env("DB_PASSWORD", "secret").output().expect("the program runs");
    (!output.status.success()).then(|| format!("{}\n{config}", String::from_utf8_lossy(&output.stderr)))
}

#[test]
fn configurations_and_flows_of_the_reference_pages_pass_check() {
    let mut wrong = String::new();
    let mut checked = 0;
    for page in PAGES {
        let path = Path::new("docs").join(page).with_extension("md");
        let text = fs::read_to_string(root().join(&path)).expect("the page");
        let blocks = blocks(&text);
        for (at, block) in blocks.iter().enumerate() {
            let before = at.checked_sub(1).map(|at| &blocks[at]).filter(|_| block.follows);
            let problem = match (block.language.as_str(), before) {
                ("toml", _) => check(&block.text, None),
                ("python", Some(before)) if before.language == "toml" => check(&before.text, Some(&block.text)),
                ("python", _) => check(UPSTREAMS, Some(&block.text)),
                _ => continue,
            };
            checked += 1;
            if let Some(problem) = problem {
                wrong.push_str(&format!("{}:{}: {problem}\n", path.display(), block.line));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(checked >= 25, "only {checked} blocks");
}
