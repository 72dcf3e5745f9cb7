//! Examples of the documentation are right: a service that a page shows file by file passes `fanin check`.

use std::path::Path;
use std::process::Command;

/// Code blocks whose first line names a file, such as `# flows/page.star` or `// a.proto`: name and text.
fn files(page: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    let mut rest = page;
    while let Some((_, after)) = rest.split_once("\n```") {
        let Some((block, after)) = after.split_once("\n```") else { break };
        rest = after;
        let Some((_, text)) = block.split_once('\n') else { continue };
        let comment = |line: &'static str| text.lines().next().and_then(|first| first.strip_prefix(line));
        let name = comment("# ").or_else(|| comment("// ")).unwrap_or_default();
        if [".toml", ".star", ".proto"].iter().any(|end| name.ends_with(end)) && !name.contains(' ') {
            found.push((name, text));
        }
    }
    found
}

#[test]
fn services_shown_in_the_documentation_are_right() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for (page, folder) in [("README.md", ""), ("docs/tutorial/getting-started.md", "my-service"), ("docs/grpc.md", "")]
    {
        let text = std::fs::read_to_string(root.join(page)).expect("the page");
        let dir = tempfile::tempdir().expect("a folder");
        let files = files(&text);
        assert!(files.len() >= 2, "{page}: {files:?}");
        for (name, text) in files {
            let file = dir.path().join(name);
            std::fs::create_dir_all(file.parent().expect("a parent")).expect("created");
            std::fs::write(file, text).expect("written");
        }
        let output = Command::new(env!("CARGO_BIN_EXE_fanin"))
            .arg("check")
            .arg(dir.path().join(folder))
            .env("NO_COLOR", "1")
            .output()
            .expect("the program runs");
        assert!(output.status.success(), "{page}: {}", String::from_utf8_lossy(&output.stderr));
    }
}
