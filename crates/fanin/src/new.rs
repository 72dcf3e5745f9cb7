//! `fanin new`: writes a project that serves, checks and tests at once.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::report;

/// The files of a new project. `NAME` in them is its name.
const FILES: [(&str, &str); 8] = [
    ("README.md", include_str!("../templates/new/README.md")),
    ("fanin.toml", include_str!("../templates/new/fanin.toml")),
    ("flows/product.star", include_str!("../templates/new/flows/product.star")),
    ("flows/product_test.star", include_str!("../templates/new/flows/product_test.star")),
    ("data/products/1.json", include_str!("../templates/new/data/products/1.json")),
    ("data/products/2.json", include_str!("../templates/new/data/products/2.json")),
    ("data/stock/1.json", include_str!("../templates/new/data/stock/1.json")),
    (".gitignore", "/target\n"),
];

/// Why there is no new project.
#[derive(Debug, thiserror::Error)]
enum NewError {
    #[error("{0} has no name: write a folder such as my-service")]
    NoName(PathBuf),
    #[error("{0} is there already and is not empty")]
    NotEmpty(PathBuf),
    #[error("{0}")]
    File(PathBuf, #[source] io::Error),
}

/// Runs the command.
pub fn run(dir: &Path) -> ExitCode {
    match write(dir) {
        Ok(()) => {
            let dir = dir.display();
            report::out(format_args!(
                "{dir} is ready:\n  fanin test {dir}\n  fanin serve {dir}\n  curl http://127.0.0.1:8080/products/1\n"
            ));
            ExitCode::SUCCESS
        }
        Err(error) => {
            report::chain(&error);
            ExitCode::FAILURE
        }
    }
}

fn write(dir: &Path) -> Result<(), NewError> {
    let wrong = |path: &Path| {
        let path = path.to_path_buf();
        move |error| NewError::File(path, error)
    };
    fs::create_dir_all(dir).map_err(wrong(dir))?;
    let whole = dir.canonicalize().map_err(wrong(dir))?;
    let name = whole.file_name().ok_or_else(|| NewError::NoName(dir.to_path_buf()))?.to_string_lossy().into_owned();
    if fs::read_dir(dir).map_err(wrong(dir))?.next().is_some() {
        return Err(NewError::NotEmpty(dir.to_path_buf()));
    }
    for (file, text) in FILES {
        let path = dir.join(file);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(wrong(parent))?;
        }
        // Never over something that another program has just written.
        let mut file = OpenOptions::new().write(true).create_new(true).open(&path).map_err(wrong(&path))?;
        file.write_all(text.replace("NAME", &name).as_bytes()).map_err(wrong(&path))?;
    }
    Ok(())
}
