//! What a server is started with besides its configuration.

/// What is not configuration.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// SIGTERM and SIGINT drain (a second one ends at once), SIGHUP reloads.
    pub signals: bool,
    /// For the metric `fanin_build_info`.
    pub build: BuildInfo,
}

impl Default for Options {
    fn default() -> Options {
        Options { signals: true, build: BuildInfo { version: env!("CARGO_PKG_VERSION") } }
    }
}

/// Identifies the program.
#[derive(Clone, Copy, Debug)]
pub struct BuildInfo {
    /// Its version.
    pub version: &'static str,
}
