//! Reading the repository's folder: models, versions and their files.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::LoadError;

/// Names, sizes and modification times of a version's files. Another fingerprint means that the files have changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Fingerprint(Vec<(String, u64, Option<SystemTime>)>);

/// A version's folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub number: u64,
    pub path: PathBuf,
    pub fingerprint: Fingerprint,
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> LoadError {
    move |source| LoadError::Read { path: path.to_owned(), source }
}

/// Folders below this one. Names that begin with a dot are skipped: Kubernetes keeps the folders behind its links there.
fn folders(path: &Path) -> Result<Vec<(String, PathBuf)>, LoadError> {
    let mut all = Vec::new();
    for entry in fs::read_dir(path).map_err(failed(path))? {
        let entry = entry.map_err(failed(path))?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        // `is_dir` of the path follows links, which is how mounted folders are switched.
        if !name.starts_with('.') && entry.path().is_dir() {
            all.push((name, entry.path()));
        }
    }
    all.sort();
    Ok(all)
}

/// Models of a repository, by name.
pub(super) fn models(repository: &Path) -> Result<Vec<(String, PathBuf)>, LoadError> {
    folders(repository)
}

/// Versions of a model, the highest first. Folders whose names are no numbers are none.
pub(super) fn versions(model: &Path) -> Result<Vec<Found>, LoadError> {
    let mut all = Vec::new();
    for (name, path) in folders(model)? {
        // Only the canonical form of a number, so that no two folders are the same version.
        let Some(number) = name.parse::<u64>().ok().filter(|number| number.to_string() == name) else { continue };
        let fingerprint = fingerprint(&path)?;
        all.push(Found { number, path, fingerprint });
    }
    all.sort_by_key(|found| std::cmp::Reverse(found.number));
    Ok(all)
}

pub(super) fn fingerprint(version: &Path) -> Result<Fingerprint, LoadError> {
    let mut files = Vec::new();
    for entry in fs::read_dir(version).map_err(failed(version))? {
        let entry = entry.map_err(failed(version))?;
        let path = entry.path();
        // The file may have been removed since the listing. The fingerprint differs then, too.
        let Ok(data) = fs::metadata(&path) else { continue };
        files.push((entry.file_name().to_string_lossy().into_owned(), data.len(), data.modified().ok()));
    }
    files.sort();
    Ok(Fingerprint(files))
}

/// The version's model file: the one whose name begins with `model.`.
pub(super) fn model_file(version: &Path) -> Result<PathBuf, LoadError> {
    let mut found = Vec::new();
    for entry in fs::read_dir(version).map_err(failed(version))? {
        let entry = entry.map_err(failed(version))?;
        if entry.file_name().to_string_lossy().starts_with("model.") {
            found.push(entry.path());
        }
    }
    found.sort();
    match &found[..] {
        [one] => Ok(one.clone()),
        [] => Err(LoadError::broken(
            version.display().to_string(),
            "has no model file: model.txt (LightGBM), model.json or model.ubj (XGBoost), model.onnx",
        )),
        [one, two, ..] => Err(LoadError::broken(
            version.display().to_string(),
            format!("has more than one model file: {} and {}", name(one), name(two)),
        )),
    }
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
