//! An example's files: those of `examples/` where the program runs, so that they can be changed, or the built-in ones.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::cli::Example;

/// A file of an example, as built in.
type File = (&'static str, &'static str);

const VACANCIES: [File; 2] = [
    ("fanin.toml", include_str!("../../../../examples/vacancies/fanin.toml")),
    ("flows/vacancies.star", include_str!("../../../../examples/vacancies/flows/vacancies.star")),
];
const SHOP: [File; 7] = [
    ("fanin.toml", include_str!("../../../../examples/shop/fanin.toml")),
    ("flows/products.star", include_str!("../../../../examples/shop/flows/products.star")),
    ("flows/owners.star", include_str!("../../../../examples/shop/flows/owners.star")),
    ("flows/ways.star", include_str!("../../../../examples/shop/flows/ways.star")),
    ("flows/web.star", include_str!("../../../../examples/shop/flows/web.star")),
    ("web/index.html", include_str!("../../../../examples/shop/web/index.html")),
    ("web/parts.js", include_str!("../../../../examples/shop/web/parts.js")),
];

/// The folder of an example.
pub struct Folder {
    path: PathBuf,
    /// Whether it was written by us and goes away with us.
    ours: bool,
}

impl Folder {
    /// Finds `examples/NAME` below `at`, or writes the built-in files to a new folder for temporary files.
    ///
    /// # Errors
    /// When that folder can't be written.
    pub fn of(example: Example, at: &Path) -> io::Result<Folder> {
        let path = at.join("examples").join(example.name());
        if path.join(fanin_config::FILE_NAME).is_file() {
            return Ok(Folder { path, ours: false });
        }
        let files: &[File] = match example {
            Example::Vacancies => &VACANCIES,
            Example::Shop => &SHOP,
        };
        let folder = Folder { path: new_folder(example)?, ours: true };
        for (name, text) in files {
            let file = folder.path.join(name);
            if let Some(parent) = file.parent() {
                fs::create_dir_all(parent)?;
            }
            fs::write(file, text)?;
        }
        Ok(folder)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// A new folder among the temporary files. `create_dir` refuses one that somebody else has put there; then another name is
/// tried.
fn new_folder(example: Example) -> io::Result<PathBuf> {
    let mut number = 0;
    loop {
        let name = format!("fanin-demo-{}-{}-{number}", example.name(), std::process::id());
        let path = std::env::temp_dir().join(name);
        match fs::create_dir(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < 100 => number += 1,
            Err(error) => return Err(error),
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.ours {
            // Left-over files in the folder for temporary files do no harm.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_files_are_a_valid_configuration() {
        let nowhere = Path::new("/nowhere");
        for example in [Example::Vacancies, Example::Shop] {
            let folder = Folder::of(example, nowhere).expect("written");
            let path = folder.path().to_path_buf();
            let config = fanin_config::Config::load_with(&path, &|_| None).expect("valid");
            let upstreams: Vec<&str> = config.upstreams.keys().map(String::as_str).collect();
            for backend in example.backends() {
                assert!(upstreams.contains(&backend.name), "{} in {upstreams:?}", backend.name);
            }
            drop(folder);
            assert!(!path.exists());
        }
    }

    #[test]
    fn files_of_the_folder_come_first() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let folder = Folder::of(Example::Shop, &root).expect("found");
        assert_eq!(folder.path(), root.join("examples/shop"));
        drop(folder);
        assert!(root.join("examples/shop/fanin.toml").exists());
    }
}
