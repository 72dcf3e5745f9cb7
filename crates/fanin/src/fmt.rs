//! `fanin fmt`: flows in one layout.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use fanin_config::{Diagnostic, Source};

use crate::report;

/// Larger files are refused unread, as `check` refuses them.
const MAX_FILE: u64 = 1 << 20;

/// Deepest folder that is looked into.
const MAX_DEPTH: usize = 64;

/// What to format.
#[derive(Debug, clap::Args)]
pub struct FmtArgs {
    /// Flow files, and folders of them; `-` formats standard input to standard output
    #[arg(default_value = ".")]
    pub paths: Vec<PathBuf>,
    /// Change nothing, name the files that would change, and exit with status 1 if there are any
    #[arg(long)]
    pub check: bool,
}

/// Formats files in place, or tells which are not formatted.
pub fn run(args: &FmtArgs) -> ExitCode {
    let mut found = Vec::new();
    let mut files = Vec::new();
    for path in &args.paths {
        if path.is_dir() {
            collect(path, 0, &mut files, &mut found);
        } else {
            files.push(path.clone());
        }
    }
    let mut changed = 0;
    for file in &files {
        match format(file, args.check) {
            Ok(false) => {}
            Ok(true) => {
                changed += 1;
                if args.check {
                    report::out(format_args!("{}\n", file.display()));
                }
            }
            Err(problem) => found.push(*problem),
        }
    }
    report::to_people(&found);
    if found.is_empty() && !(args.check && changed > 0) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Formats one file, and gives whether that changes it.
fn format(file: &Path, check: bool) -> Result<bool, Box<Diagnostic>> {
    let stdin = file == Path::new("-");
    let name = if stdin { "<standard input>".to_owned() } else { file.display().to_string() };
    let problem = |text: String| Box::new(Diagnostic::file(&name, text));
    let text = if stdin { read(std::io::stdin()) } else { std::fs::File::open(file).and_then(read) };
    let text = text.map_err(|error| problem(format!("cannot be read: {error}")))?;
    if text.len() as u64 > MAX_FILE {
        return Err(problem(format!("is larger than {MAX_FILE} bytes")));
    }
    let formatted = fanin_lang::format_source(&name, &text).map_err(|error| {
        let (start, end) = error.position.span;
        let source = Arc::new(Source::new(&name, &text));
        let found = Diagnostic::error(&source, start as usize..end as usize, error.message);
        Box::new(match error.hint {
            Some(hint) => found.hint(hint),
            None => found,
        })
    })?;
    let changes = formatted != text;
    if stdin && !check {
        report::out(format_args!("{formatted}"));
    } else if changes && !check {
        std::fs::write(file, &formatted).map_err(|error| problem(format!("cannot be written: {error}")))?;
    }
    Ok(changes)
}

fn read(from: impl Read) -> std::io::Result<String> {
    let mut text = String::new();
    from.take(MAX_FILE + 1).read_to_string(&mut text)?;
    Ok(text)
}

/// The flow files of a folder by name, hidden folders left out. Symbolic links to folders are not followed: they may lead in a circle.
fn collect(folder: &Path, depth: usize, files: &mut Vec<PathBuf>, found: &mut Vec<Diagnostic>) {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) if depth < MAX_DEPTH => entries,
        Ok(_) => return,
        Err(error) => {
            found.push(Diagnostic::file(folder.display().to_string(), format!("cannot be read: {error}")));
            return;
        }
    };
    let mut entries: Vec<_> = entries.filter_map(Result::ok).collect();
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let hidden = entry.file_name().to_string_lossy().starts_with('.');
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && !hidden => collect(&entry.path(), depth + 1, files, found),
            Ok(kind) if !kind.is_dir() && entry.path().extension().is_some_and(|end| end == "star") => {
                files.push(entry.path());
            }
            _ => {}
        }
    }
}
