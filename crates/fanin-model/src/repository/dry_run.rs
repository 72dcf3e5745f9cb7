//! Dry-run scan: finds problems of a repository without loading anything, for `fanin check`.

use std::fs::File;
use std::io::Read;

use fanin_config::Versions;

use super::{load, scan};
use crate::LoadError;

/// Problems of a repository, one text each: a model without a version, a version without a model file, a file that is too
/// large or of no known format. A model that passes may still fail to load.
///
/// # Errors
/// The repository's folder cannot be read.
pub fn dry_run(config: &fanin_config::Models) -> Result<Vec<String>, LoadError> {
    let mut problems = Vec::new();
    for (name, path) in scan::models(&config.repository)? {
        let about = |what: &dyn std::fmt::Display| format!("model {name}: {what}");
        let found = match scan::versions(&path) {
            Ok(found) => found,
            Err(error) => {
                problems.push(about(&error));
                continue;
            }
        };
        let settings = config.settings_of(&name);
        let policy = settings.versions.as_ref().unwrap_or(&config.versions);
        let wanted: Vec<_> = match policy {
            Versions::Latest(count) => found.iter().take(*count).collect(),
            Versions::These(these) => found.iter().filter(|found| these.contains(&found.number)).collect(),
        };
        if wanted.is_empty() {
            let what = if found.is_empty() { "no version" } else { "none of the wanted versions" };
            problems.push(about(&format_args!("there is {what} in {}", path.display())));
        }
        for version in wanted {
            if let Err(error) = check_version(config, version) {
                problems.push(format!("model {name} version {}: {error}", version.number));
            }
        }
    }
    for name in config.settings.keys() {
        if !config.repository.join(name).is_dir() {
            problems.push(format!("settings.{name} are for a model that is not in the repository"));
        }
    }
    Ok(problems)
}

fn check_version(config: &fanin_config::Models, version: &scan::Found) -> Result<(), LoadError> {
    let file = scan::model_file(&version.path)?;
    let failed = |source| LoadError::Read { path: file.clone(), source };
    let mut head = Vec::new();
    let opened = File::open(&file).map_err(failed)?;
    let size = opened.metadata().map_err(failed)?.len();
    load::fits("the model's file", size, config.max_file as u64, "models.max_file")?;
    opened.take(load::HEAD).read_to_end(&mut head).map_err(failed)?;
    load::Format::detect(&file, &head).map(|_| ())
}
