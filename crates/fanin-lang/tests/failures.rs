//! Failures as people read them, word for word: each file of `tests/failures` is run with the answers that its comments give,
//! and what is reported is in the file beside it. `UPDATE_EXPECT=1` writes that anew.
//!
//! Each is run twice: with all answers there at once, and with the last call answered first. Both must tell the same.

use std::path::{Path, PathBuf};

use fanin_lang::testing::{Answer, TestHost, program, run};
use fanin_lang::{Limits, Program};

/// Lines such as `# "/users": {"name": "x"}` or `# "/users": fails`.
fn answers(text: &str) -> Vec<(String, Answer)> {
    text.lines()
        .filter_map(|line| line.strip_prefix("# ")?.split_once(": "))
        .filter(|(path, _)| path.starts_with('"'))
        .map(|(path, answer)| {
            let answer = if answer == "fails" { Answer::Fail } else { Answer::Json(answer.to_owned()) };
            (path.to_owned(), answer)
        })
        .collect()
}

fn told(program: &Program, text: &str, at_once: bool) -> String {
    let answers = answers(text);
    let answer = move |_: &str, args: &str| {
        let found = answers.iter().find(|(path, _)| args.starts_with(path.as_str()));
        found.map_or_else(|| Answer::Json("{}".to_owned()), |(_, answer)| answer.clone())
    };
    let mut host = TestHost::new(program, Box::new(answer), Box::new(move || at_once));
    match run(program, "main", vec![], Limits::default(), &mut host, &mut |open| open - 1) {
        Ok(value) => format!("no failure: {value}"),
        Err(failure) => program.explain(&failure, false),
    }
}

#[test]
fn failures_read_as_they_should() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/failures");
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .expect("the folder")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "star"))
        .collect();
    files.sort();
    assert!(!files.is_empty());
    let mut wrong = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).expect("a flow");
        let program = program(&text).unwrap_or_else(|found| panic!("{}: {found:?}", file.display()));
        let (there, late) = (told(&program, &text, true), told(&program, &text, false));
        assert_eq!(there, late, "{}", file.display());
        let got: String = late.lines().map(|line| format!("{}\n", line.trim_end())).collect();
        let expected = file.with_extension("txt");
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            std::fs::write(&expected, got).expect("written");
        } else if std::fs::read_to_string(&expected).unwrap_or_default() != got {
            wrong.push(format!("{}:\n{got}", expected.display()));
        }
    }
    assert!(wrong.is_empty(), "UPDATE_EXPECT=1 writes these anew:\n{}", wrong.join("\n"));
}
