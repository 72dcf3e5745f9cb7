//! `docs/language.md` is true: its examples run, its table is the code's.
//!
//! An example is a fenced block of `python`. Lines `# call => JSON` in it are run and compared, `# call !! text` must
//! fail with a message that holds the text, and a block with a line `# !! text` must not load.

use std::sync::Arc;

use arcstr::ArcStr;
use fanin_lang::testing::{Answer, Service, TestHost, run};
use fanin_lang::{Effect, FrozenValue, Globals, HostRef, Limits, Loaded, Loader, Program};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/language.md");

struct Files(String);

impl Loader for Files {
    fn load(&self, module: &str, _from: &str) -> Result<Loaded, String> {
        match module {
            "@upstreams" => {
                let names = ["catalog", "users", "orders", "search"];
                Ok(Loaded::Values(
                    names.map(|name| (ArcStr::from(name), FrozenValue::Host(HostRef::new(Service(name))))).to_vec(),
                ))
            }
            "test.star" => Ok(Loaded::Source { name: "test.star".into(), text: self.0.clone() }),
            "flows/prices.star" => {
                let text = "RATE = 120\ndef with_tax(price):\n    return price * RATE // 100\n".to_owned();
                Ok(Loaded::Source { name: module.into(), text })
            }
            other => match other.strip_prefix('@').and_then(fanin_lang::modules::find) {
                Some(values) => Ok(Loaded::Values(values)),
                None => Err(format!("there is no module {module}")),
            },
        }
    }

    fn effect(&self, method: &str) -> Option<Effect> {
        match method {
            "get" => Some(Effect::Read),
            "post" => Some(Effect::Write),
            _ => None,
        }
    }
}

fn answer(_: &str, text: &str) -> Answer {
    if text.contains("/broken") {
        return Answer::Fail;
    }
    Answer::Json(r#"{"id": 7, "name": "tea", "price": 250, "ids": [1, 2, 3], "premium": true, "total": 3}"#.to_owned())
}

/// Runs the examples of one block; gives how many there were.
fn block(text: &str, line: usize) -> usize {
    let program = Program::load(Arc::new(Globals::standard()), &Files(text.to_owned()), &["test.star"]);
    let wanted = text.lines().find_map(|line| line.trim().strip_prefix("# !! "));
    let program = match (program, wanted) {
        (Ok(program), None) => program,
        (Err(errors), Some(wanted)) => {
            assert!(errors[0].message.contains(wanted), "line {line}: {}", errors[0].message);
            return 1;
        }
        (Ok(_), Some(wanted)) => panic!("line {line}: the example loads, but should not: {wanted}"),
        (Err(errors), None) => panic!("line {line}: {}\n{text}", errors[0]),
    };
    let mut count = 0;
    for example in text.lines().filter_map(|line| line.trim().strip_prefix("# ")) {
        let (call, wanted, fails) = match (example.split_once(" => "), example.split_once(" !! ")) {
            (Some((call, wanted)), _) => (call, wanted, false),
            (None, Some((call, wanted))) => (call, wanted, true),
            (None, None) => continue,
        };
        let name =
            call.strip_suffix("()").unwrap_or_else(|| panic!("line {line}: {call} is no call without arguments"));
        count += 1;
        let mut host = TestHost::new(&program, Box::new(answer), Box::new(|| false));
        match run(&program, name, vec![], Limits::default(), &mut host, &mut |_| 0) {
            Ok(got) => assert!(!fails && got == wanted, "line {line}: {call} gives {got}, not {wanted}"),
            Err(failure) => {
                assert!(fails && failure.message.contains(wanted), "line {line}: {call} fails: {}", failure.message);
            }
        }
    }
    count
}

#[test]
fn the_examples_of_the_language_page_run() {
    let page = std::fs::read_to_string(PAGE).expect("the page");
    let (mut count, mut open, mut text) = (0, None, String::new());
    let mut wrong = Vec::new();
    for (at, line) in page.lines().enumerate() {
        match (open, line) {
            (None, "```python") => {
                open = Some(at + 1);
                text.clear();
            }
            (Some(start), "```") => {
                // All that is wrong with the page in one run.
                match std::panic::catch_unwind(|| block(&text, start)) {
                    Ok(found) if found > 0 => count += found,
                    _ => wrong.push(start),
                }
                open = None;
            }
            (Some(_), line) => {
                text.push_str(line);
                text.push('\n');
            }
            _ => {}
        }
    }
    assert!(wrong.is_empty(), "the blocks at lines {wrong:?} are wrong");
    assert!(count >= 25, "only {count} examples");
}

#[test]
fn the_page_has_the_table_of_what_waits() {
    let page = std::fs::read_to_string(PAGE).expect("the page");
    let (before, rest) = page.split_once("<!-- waits -->\n").expect("the table's start");
    let (_, after) = rest.split_once("<!-- end -->").expect("the table's end");
    let wanted = format!("{before}<!-- waits -->\n{}<!-- end -->{after}", fanin_lang::join_points::table());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(PAGE, &wanted).expect("the page can be written");
        return;
    }
    assert_eq!(page, wanted, "UPDATE_DOCS=1 cargo test -p fanin-lang --test docs writes it");
}
