//! The program with the threads executor.

mod common;

use std::path::Path;

use common::{fanin, root};

/// The same examples with every route on a pool of threads.
#[test]
fn both_demos_do_the_same_on_threads() {
    let dir = tempfile::tempdir().expect("a folder");
    copy(&root().join("examples"), &dir.path().join("examples"));
    for (example, calls) in [("vacancies", 8), ("shop", 12)] {
        let file = dir.path().join("examples").join(example).join("fanin.toml");
        let text = std::fs::read_to_string(&file).expect("read");
        let threads = "[[routes]]\nexecutor = { threads = 9, waiting = 1 }\n";
        // A thread answers in one.
        let text = text.replace("[[routes]]\n", threads).replace("progressive = true", "");
        std::fs::write(&file, text).expect("written");
        let output = fanin(&["demo", example, "--once"]).current_dir(dir.path()).output().expect("the program runs");
        let out = String::from_utf8(output.stdout).expect("text");
        assert!(output.status.success() && !out.contains("FAILED"), "{out}");
        let bars = out.lines().filter(|line| line.contains('█') && line.contains(".star:")).count();
        assert!(bars >= calls, "{bars} calls in\n{out}");
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).expect("made");
    for entry in std::fs::read_dir(from).expect("there") {
        let (from, to) = entry.map(|entry| (entry.path(), to.join(entry.file_name()))).expect("listed");
        if from.is_dir() {
            copy(&from, &to);
        } else {
            std::fs::copy(&from, &to).expect("copied");
        }
    }
}
