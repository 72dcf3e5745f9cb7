//! The documentation is right: its services pass `fanin check`, its commands exist, its links lead somewhere.
//!
//! A block whose first line names a file (`# fanin.toml`, `# flows/page.star`, `// users.proto`) is that file of a
//! service. `# fanin.toml` begins a new service; a file shown again replaces the one before; `# fanin.toml (added)`
//! appends to it. Each state of a service is checked. Every other `toml` block of a guide is a configuration of its
//! own, and every `json` block is JSON. A `plan` block is what `fanin check --plan` prints for the service above it. The tests of a service (`_test.star`) pass, and a
//! `report` block is what `fanin test` prints.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use common::{Serving, root, run};

/// A fenced block: its language, its text, and the line on which the text begins.
struct Block {
    language: String,
    text: String,
    line: usize,
}

impl Block {
    /// The file that its first line names, and whether the text is added to it.
    fn file(&self) -> Option<(&str, bool)> {
        let first = self.text.lines().next()?;
        let name = first.strip_prefix("# ").or_else(|| first.strip_prefix("// "))?;
        let (name, added) = name.strip_suffix(" (added)").map_or((name, false), |name| (name, true));
        let known = [".toml", ".star", ".proto", ".txt"].iter().any(|end| name.ends_with(end));
        (known && !name.contains(' ')).then_some((name, added))
    }
}

fn blocks(page: &str) -> Vec<Block> {
    let mut found: Vec<Block> = Vec::new();
    let mut open = false;
    for (at, line) in page.lines().enumerate() {
        match line.strip_prefix("```") {
            Some(_) if open => open = false,
            Some(language) => {
                open = true;
                found.push(Block { language: language.to_owned(), text: String::new(), line: at + 2 });
            }
            None if open => {
                let block = found.last_mut().expect("an open block");
                block.text.push_str(line);
                block.text.push('\n');
            }
            None => {}
        }
    }
    assert!(!open, "a block without an end");
    found
}

/// Files with an extension, below a folder of the project.
fn files(folder: &str, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|known| known == extension) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// The pages that teach: whatever they show must work as it stands.
fn guides() -> Vec<PathBuf> {
    let mut pages = vec![root().join("README.md"), root().join("docs/grpc.md")];
    for folder in ["docs/tutorial", "docs/how-to", "docs/explanation"] {
        pages.extend(files(folder, "md"));
    }
    pages
}

fn read(page: &Path) -> String {
    fs::read_to_string(page).unwrap_or_else(|error| panic!("{}: {error}", page.display()))
}

fn named(page: &Path) -> String {
    page.strip_prefix(root()).unwrap_or(page).display().to_string()
}

/// The service that a page has shown so far.
#[derive(Default)]
struct Shown {
    files: BTreeMap<String, String>,
    line: usize,
    checked: bool,
}

impl Shown {
    /// What `fanin check` has against it, if anything.
    fn wrong(&mut self) -> Option<String> {
        if self.files.is_empty() || std::mem::replace(&mut self.checked, true) {
            return None;
        }
        let (code, _, told) = self.check("--deny-warnings");
        if code != Some(0) {
            return Some(format!("the service at line {}:\n{told}", self.line));
        }
        let (code, printed, told) = self.tested()?;
        (code != Some(0)).then(|| format!("the tests at line {}:\n{printed}{told}", self.line))
    }

    /// What `fanin test` says, if there are tests.
    fn tested(&self) -> Option<(Option<i32>, String, String)> {
        self.files.keys().any(|name| name.ends_with("_test.star")).then(|| self.command(&["test"]))
    }

    fn check(&self, option: &str) -> (Option<i32>, String, String) {
        self.command(&["check", option])
    }

    fn command(&self, words: &[&str]) -> (Option<i32>, String, String) {
        let dir = tempfile::tempdir().expect("a folder");
        for (name, text) in &self.files {
            let file = dir.path().join(name);
            fs::create_dir_all(file.parent().expect("a parent")).expect("created");
            fs::write(file, text).expect("written");
        }
        let config = self.files.keys().find(|name| name.ends_with("fanin.toml")).expect("a fanin.toml");
        if self.files[config].contains("[models]") {
            // The model itself is the user's; any will do.
            let version = dir.path().join(config).with_file_name("models/spam/1");
            fs::create_dir_all(&version).expect("created");
            let model = root().join("examples/antispam/models/words/1/model.txt");
            fs::copy(model, version.join("model.txt")).expect("copied");
        }
        // So are certificates, keys and revocation lists: each file has all of these.
        for name in self.files[config].split('"').filter(|text| text.ends_with(".pem")) {
            let file = dir.path().join(config).with_file_name(name);
            fs::create_dir_all(file.parent().expect("a parent")).expect("created");
            fs::write(file, pem(name)).expect("written");
        }
        // The key is, too.
        for name in self.files[config].split('"').filter(|text| text.ends_with(".key")) {
            let file = dir.path().join(config).with_file_name(name);
            fs::create_dir_all(file.parent().expect("a parent")).expect("created");
            fs::write(file, "k".repeat(32)).expect("written");
        }
        // And the folder of files.
        if self.files[config].contains("\"public\"") {
            let folder = dir.path().join(config).with_file_name("public");
            fs::create_dir_all(&folder).expect("created");
            fs::write(folder.join("index.html"), "").expect("written");
        }
        let config = dir.path().join(config);
        run(&[words, &[config.to_str().expect("text")]].concat())
    }
}

/// A certificate for a host of this name, its key, and a revocation list. All have the same key.
fn pem(name: &str) -> String {
    use rcgen::{
        CertificateParams, CertificateRevocationListParams, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose,
    };
    static KEY: OnceLock<KeyPair> = OnceLock::new();
    let key = KEY.get_or_init(|| KeyPair::generate().expect("a key"));
    let host = format!("{}.example", name.replace(['/', '.', '_'], "-"));
    let mut params = CertificateParams::new(vec![host]).expect("a name");
    params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let list = CertificateRevocationListParams {
        this_update: rcgen::date_time_ymd(2024, 1, 1),
        next_update: rcgen::date_time_ymd(2100, 1, 1),
        crl_number: 1_u64.into(),
        issuing_distribution_point: None,
        revoked_certs: Vec::new(),
        key_identifier_method: KeyIdMethod::Sha256,
    };
    let list = list.signed_by(&Issuer::from_params(&params, key)).expect("a list").pem().expect("PEM");
    let certificate = params.self_signed(key).expect("a certificate");
    format!("{}{}{list}", certificate.pem(), key.serialize_pem())
}

#[test]
fn services_shown_in_the_guides_pass_check() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for page in guides() {
        let text = read(&page);
        let mut shown = Shown::default();
        let mut told = Vec::new();
        for block in blocks(&text) {
            match (block.file(), block.language.as_str()) {
                (Some((name, false)), _) => {
                    // The state before is complete once it is left.
                    if name.ends_with("fanin.toml") || shown.files.contains_key(name) {
                        told.extend(shown.wrong());
                    }
                    if name.ends_with("fanin.toml") {
                        shown = Shown { line: block.line, ..Shown::default() };
                        count += 1;
                    }
                    assert!(shown.line > 0, "{}:{}: {name} stands before fanin.toml", named(&page), block.line);
                    shown.files.insert(name.to_owned(), block.text.clone());
                    shown.checked = false;
                }
                (Some((name, true)), _) => {
                    told.extend(shown.wrong());
                    let file = shown.files.get_mut(name);
                    let file = file.unwrap_or_else(|| panic!("{}:{}: no {name} yet", named(&page), block.line));
                    file.push('\n');
                    file.push_str(&block.text);
                    shown.checked = false;
                }
                (None, "toml") => {
                    let files = BTreeMap::from([("fanin.toml".to_owned(), block.text.clone())]);
                    told.extend(Shown { files, line: block.line, checked: false }.wrong());
                }
                (None, "plan") => {
                    let (_, plan, _) = shown.check("--plan");
                    let line = block.line;
                    told.extend(
                        (plan.trim() != block.text.trim()).then(|| format!("the plan at line {line}:\n{plan}")),
                    );
                }
                (None, "report") => {
                    let (_, report, _) = shown.tested().unwrap_or_default();
                    // How long it took differs each time.
                    let lines = |text: &str| {
                        let end = |line: &str| line.split(" in ").next().unwrap_or_default().to_owned();
                        text.trim().lines().map(end).collect::<Vec<_>>()
                    };
                    let line = block.line;
                    told.extend(
                        (lines(&report) != lines(&block.text)).then(|| format!("the report at line {line}:\n{report}")),
                    );
                }
                (None, "python") => told.push(format!("line {}: which file is this?", block.line)),
                (None, _) => {}
            }
        }
        told.extend(shown.wrong());
        wrong.extend(told.into_iter().map(|told| format!("{}: {told}", named(&page))));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count >= 15, "only {count} services");
}

#[test]
fn json_in_the_documentation_is_json() {
    for page in guides().into_iter().chain(files("docs", "md")) {
        for block in blocks(&read(&page)).iter().filter(|block| block.language == "json") {
            let parsed = serde_json::from_str::<serde_json::Value>(&block.text);
            assert!(parsed.is_ok(), "{}:{}: {:?}", named(&page), block.line, parsed.err());
        }
    }
}

/// The words of each command line that runs `fanin`, from the name of its subcommand on.
fn commands(block: &Block) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for line in block.text.replace("\\\n", " ").lines() {
        // Comments, and what the output goes to, are the shell's.
        let line = line.trim_start_matches("$ ").split(" #").next().unwrap_or_default();
        for command in line.split(['|', '>', '<', ';', '&']) {
            let words: Vec<_> = command.split_whitespace().collect();
            let program = words.iter().position(|word| *word == "fanin" || word.ends_with("/fanin"));
            let program = match (program, words.first()) {
                (_, Some(&"cargo")) => words.iter().position(|word| *word == "--"),
                // `NAME=value fanin serve` and `sudo -u fanin fanin check` run it, `systemctl reload fanin` does not.
                (Some(at), _) if words[..at].iter().all(|word| word.contains('=')) => Some(at),
                _ => None,
            };
            if let Some(at) = program {
                found.push(words[at + 1..].iter().map(|word| (*word).to_owned()).collect());
            }
        }
    }
    found
}

#[test]
fn commands_in_the_guides_exist() {
    let mut help = BTreeMap::new();
    let mut count = 0;
    for page in guides().into_iter().chain(files("examples", "md")) {
        for block in blocks(&read(&page)).iter().filter(|block| ["sh", "console"].contains(&block.language.as_str())) {
            for words in commands(block) {
                let place = format!("{}:{}: fanin {}", named(&page), block.line, words.join(" "));
                count += 1;
                let Some(command) = words.first().filter(|word| !word.starts_with('-')) else { continue };
                let text = help.entry(command.clone()).or_insert_with(|| {
                    let (code, text, _) = run(&[command, "--help"]);
                    assert_eq!(code, Some(0), "{place}");
                    text
                });
                for flag in words.iter().filter(|word| word.starts_with('-') && word.len() > 1) {
                    let flag = flag.split('=').next().expect("a flag");
                    assert!(text.split([' ', ',', '\n', '[']).any(|word| word == flag), "{place}: there is no {flag}");
                }
            }
        }
    }
    assert!(count >= 10, "only {count} commands");
}

/// The anchors of a page: its headings as GitHub turns them into fragments.
fn anchors(page: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut code = false;
    for line in page.lines() {
        code ^= line.starts_with("```");
        let heading = line.trim_start_matches('#');
        if code || heading.len() == line.len() || !heading.starts_with(' ') {
            continue;
        }
        let kept = heading.trim().to_lowercase();
        let anchor: String = kept
            .chars()
            .filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c))
            .map(|c| if c == ' ' { '-' } else { c })
            .collect();
        // A heading that comes again gets a number.
        let mut number = 0;
        let mut unique = anchor.clone();
        while !found.insert(unique) {
            number += 1;
            unique = format!("{anchor}-{number}");
        }
    }
    found
}

/// Targets of the links of a page, those in code left out.
fn links(page: &str) -> Vec<String> {
    let mut text = String::new();
    let mut code = false;
    for line in page.lines() {
        if line.starts_with("```") {
            code = !code;
        } else if !code {
            // Every second piece between backticks is code.
            text.extend(line.split('`').step_by(2));
            text.push('\n');
        }
    }
    let ends = |rest: &str| rest.split_once(')').map(|(target, _)| target.to_owned());
    text.split("](").skip(1).filter_map(ends).filter(|target| !target.contains("://")).collect()
}

#[test]
fn links_in_the_documentation_lead_somewhere() {
    let mut pages = vec![root().join("README.md"), root().join("CHANGELOG.md")];
    pages.extend(
        ["ARCHITECTURE.md", "CONTRIBUTING.md"].iter().map(|name| root().join(name)).filter(|page| page.exists()),
    );
    for folder in ["docs", "examples", "bench"] {
        pages.extend(files(folder, "md"));
    }
    let mut wrong = Vec::new();
    for page in &pages {
        for target in links(&read(page)) {
            let (file, anchor) = target.split_once('#').map_or((target.as_str(), None), |(file, a)| (file, Some(a)));
            let to = if file.is_empty() { page.clone() } else { page.with_file_name("").join(file) };
            let found = match anchor {
                _ if !to.exists() => false,
                Some(anchor) if to.extension().is_some_and(|end| end == "md") => anchors(&read(&to)).contains(anchor),
                _ => true,
            };
            if !found {
                wrong.push(format!("{}: {target}", named(page)));
            }
        }
    }
    assert!(wrong.is_empty(), "these links lead nowhere:\n{}", wrong.join("\n"));
    let index = read(&root().join("docs/README.md"));
    for page in files("docs", "md").iter().filter(|page| !page.ends_with("docs/README.md")) {
        let name = page.strip_prefix(root().join("docs")).expect("below docs").display().to_string();
        // Reports of single experiments hang on the lab's page.
        assert!(index.contains(&format!("({name}")) || name.starts_with("lab/"), "docs/README.md does not list {name}");
    }
}

#[test]
fn diagrams_begin_with_a_kind_that_mermaid_knows() {
    for page in files("docs", "md").into_iter().chain([root().join("README.md")]) {
        for block in blocks(&read(&page)).iter().filter(|block| block.language == "mermaid") {
            let first = block.text.split_whitespace().next().unwrap_or_default();
            let known = ["flowchart", "sequenceDiagram", "gantt", "stateDiagram-v2"].contains(&first);
            assert!(known, "{}:{}: {first}", named(&page), block.line);
        }
    }
}

/// A process that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The files of the last service that a page shows.
fn last_service(page: &str) -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    for block in blocks(page) {
        if let Some((name, added)) = block.file() {
            assert!(!added || name != "fanin.toml" || files.contains_key(name));
            if name == "fanin.toml" && !added {
                files.clear();
            }
            let file: &mut String = files.entry(name.to_owned()).or_default();
            if added {
                file.push_str(&block.text);
            } else {
                *file = block.text;
            }
        }
    }
    files
}

#[test]
fn the_service_of_the_tutorial_passes_its_own_tests() {
    let folder = root().join("docs/tutorial/bookshop");
    let mut backends = Command::new("python3");
    backends.arg(folder.join("backends.py")).env("BOOKS_PORT", "0").env("REVIEWS_PORT", "0").stdout(Stdio::piped());
    let mut backends = Running(backends.spawn().expect("python3 runs"));
    let lines = BufReader::new(backends.0.stdout.take().expect("piped")).lines();
    let mut addresses = Vec::new();
    // The rest of its output is read as well, so that it never waits for us.
    let (sender, started) = std::sync::mpsc::channel();
    std::thread::spawn(move || lines.map_while(Result::ok).for_each(|line| drop(sender.send(line))));
    for name in ["books", "reviews"] {
        let line = started.recv_timeout(common::TIMEOUT).expect("an address");
        addresses.push(line.strip_prefix(&format!("{name}: ")).expect("an address").to_owned());
    }

    let dir = tempfile::tempdir().expect("a folder");
    for (name, text) in last_service(&read(&root().join("docs/tutorial/getting-started.md"))) {
        let text = text.replace("http://127.0.0.1:9001", &addresses[0]).replace("http://127.0.0.1:9002", &addresses[1]);
        let ports = "[server]\nlisten = '127.0.0.1:0'\nadmin = '127.0.0.1:0'\nworkers = 1\n";
        let text = if name == "fanin.toml" { format!("{ports}{text}") } else { text };
        fs::create_dir_all(dir.path().join(&name).parent().expect("a parent")).expect("created");
        fs::write(dir.path().join(name), text).expect("written");
    }
    let serving = Serving::start(dir.path());
    let output = Command::new("python3")
        .args(["-m", "unittest", "test_bookshop"])
        .current_dir(&folder)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("SERVICE", format!("http://{}", serving.listen))
        .env("BOOKS", &addresses[0])
        .env("REVIEWS", &addresses[1])
        .output()
        .expect("python3 runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
