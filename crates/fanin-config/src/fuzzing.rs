//! Reading of configuration files, for the fuzz targets in `fuzz/` and their bounded runs in the tests.

use std::path::Path;

use crate::Config;

/// Any bytes as `fanin.toml`. Whether it is a valid configuration.
pub fn config(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let variable = |name: &str| (name == "SET").then(|| "value".to_owned());
    Config::parse(text, "fanin.toml", Path::new("no-such-folder"), &variable).is_ok()
}
