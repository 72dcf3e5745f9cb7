//! Finds files of tests: `*_test.star` below the configuration's folder.

use std::path::Path;

use crate::error::TestError;

/// What files of tests end in.
pub const SUFFIX: &str = "_test.star";
/// Folders deeper than this are not looked at.
const MAX_DEPTH: usize = 16;

/// Names of all files of tests below a folder, with `/`, in order. Hidden folders and `target` are left out.
///
/// # Errors
/// A folder that cannot be read.
pub(crate) fn test_files(dir: &Path) -> Result<Vec<String>, TestError> {
    let mut found = Vec::new();
    walk(dir, "", 0, &mut found)?;
    found.sort();
    Ok(found)
}

fn walk(dir: &Path, prefix: &str, depth: usize, found: &mut Vec<String>) -> Result<(), TestError> {
    let wrong = |error: std::io::Error| TestError::File { path: dir.display().to_string(), what: error.to_string() };
    for entry in std::fs::read_dir(dir).map_err(wrong)? {
        let entry = entry.map_err(wrong)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with('.') || name == "target" || name == "node_modules" {
            continue;
        }
        let kind = entry.file_type().map_err(wrong)?;
        if kind.is_dir() && depth < MAX_DEPTH {
            walk(&entry.path(), &format!("{prefix}{name}/"), depth + 1, found)?;
        } else if name.ends_with(SUFFIX) {
            found.push(format!("{prefix}{name}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_tests_are_found_in_order() {
        let dir = tempfile::tempdir().unwrap();
        for file in ["flows/b_test.star", "a_test.star", "flows/b.star", ".git/c_test.star", "target/d_test.star"] {
            let path = dir.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        assert_eq!(test_files(dir.path()).unwrap(), ["a_test.star", "flows/b_test.star"]);
        assert!(test_files(&dir.path().join("nothing")).is_err());
    }
}
