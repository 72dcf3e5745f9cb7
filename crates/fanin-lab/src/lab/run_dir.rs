//! The folder of all temporary files of a run.

use std::path::Path;
use std::sync::OnceLock;

use tempfile::TempDir;

use super::error::LabError;

fn cell() -> &'static OnceLock<TempDir> {
    static RUN_DIR: OnceLock<TempDir> = OnceLock::new();
    &RUN_DIR
}

/// The folder of all temporary files of this run. `None` in a child process: it uses the system's folder.
pub(super) fn get() -> Option<&'static Path> {
    cell().get().map(TempDir::path)
}

/// Creates it.
pub(super) fn create() -> Result<(), LabError> {
    let dir = tempfile::Builder::new().prefix("fanin-lab-").tempdir().map_err(LabError::io("a temporary folder"))?;
    let _ = cell().set(dir);
    Ok(())
}

/// Removes it with its content. Needed because statics are not dropped at exit.
pub(super) fn remove() {
    if let Some(dir) = cell().get() {
        let _ = std::fs::remove_dir_all(dir.path());
    }
}
