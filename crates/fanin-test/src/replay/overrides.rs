//! Other values of configuration keys: `upstreams.catalog.limit=32`.

use std::collections::HashMap;
use std::path::Path;

use fanin_config::{Config, Editing, Inspection, canonical, set_key};

/// Reads a configuration with other values of some keys.
///
/// # Errors
/// A key that cannot be set.
pub(crate) fn inspect(path: &Path, overrides: &[String]) -> Result<Inspection, String> {
    let env = &|name: &str| std::env::var(name).ok();
    if overrides.is_empty() {
        return Ok(Config::inspect(path, env));
    }
    let file = if path.is_dir() { path.join("fanin.toml") } else { path.to_path_buf() };
    let mut text = std::fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    for one in overrides {
        let Some((key, value)) = one.split_once('=') else {
            return Err(format!("--what-if {one:?}: write KEY=VALUE, such as upstreams.catalog.limit=32"));
        };
        text = set_key(&text, key.trim(), value.trim()).map_err(|error| format!("--what-if {one:?}: {error}"))?;
    }
    let editing = Editing::new(HashMap::from([(canonical(&file), text)]), Vec::new());
    Ok(Config::inspect_edited(path, env, &editing))
}
