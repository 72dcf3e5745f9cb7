//! `fanin lsp`: the language server, with the checks of `fanin check`.

use std::path::Path;
use std::process::ExitCode;

use fanin_config::{Config, Editing, FILE_NAME};
use fanin_flow::{Flows, UpstreamDescription};
use fanin_lsp::{Checked, Project};
use fanin_upstream::Upstreams;

use crate::app::Origin;
use crate::report;

struct Folders;

impl Project for Folders {
    fn check(&self, dir: &Path, configured: bool, editing: &Editing) -> Checked {
        if !configured {
            return without_configuration(dir, editing);
        }
        let origin = Origin { dry_run: true, editing: editing.clone(), ..Origin::folder(dir.join(FILE_NAME)) };
        let found = origin.dry_run();
        Checked {
            diagnostics: found.diagnostics.clone(),
            plans: found.plans().unwrap_or_default(),
            files: found.files(),
        }
    }

    fn describe(&self, dir: &Path, editing: &Editing) -> Vec<UpstreamDescription> {
        let variable = |name: &str| std::env::var(name).ok();
        let inspection = Config::inspect_edited(&dir.join(FILE_NAME), &variable, editing);
        let Some(config) = inspection.config else { return Vec::new() };
        let valid = config.upstreams.values().filter(|one| !inspection.invalid_upstreams.contains(&one.name));
        // One that cannot be built is reported by the check. The others are described without it.
        let built: Vec<_> = valid.filter_map(|one| Upstreams::new([one]).ok()).collect();
        built.iter().flat_map(fanin_flow::describe).collect()
    }
}

/// Flows in a folder without a configuration: they have no upstreams.
fn without_configuration(dir: &Path, editing: &Editing) -> Checked {
    let config = Config { dir: dir.to_path_buf(), editing: editing.clone(), ..Config::default() };
    match Upstreams::new([]) {
        Ok(upstreams) => {
            let checked = Flows::check(&config, &upstreams, &[], false);
            Checked { diagnostics: checked.diagnostics, plans: Vec::new(), files: checked.files }
        }
        // No upstream, no error.
        Err(_) => Checked::default(),
    }
}

/// Serves an editor until it ends.
pub fn run() -> ExitCode {
    match fanin_lsp::serve(&Folders) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report::chain(&error);
            ExitCode::FAILURE
        }
    }
}
