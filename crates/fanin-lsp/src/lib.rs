//! The language server of flows, `fanin lsp`: what `fanin check` finds, as it is typed, and help with names.
//!
//! - `server`: requests and notifications, one after another; `wire`: messages over standard input and output, bounded;
//! - `documents`: what the editor has open; `position`: its lines and columns; `place`: what a request is about;
//! - `workspace`: the folders with a `fanin.toml` and what was found in them;
//! - `context`: what is being written at a place; `completion`, `hover`, `definition`, `rename`: a file for each request;
//! - `fuzzing`: the entry point of a fuzz target.
//!
//! This crate must not know how a configuration is checked: it asks a [`Project`]. It writes to nothing but its output.

mod completion;
mod context;
mod definition;
mod documents;
pub mod fuzzing;
mod hover;
mod place;
mod position;
mod rename;
mod server;
mod wire;
mod workspace;

use std::path::Path;
use std::sync::Arc;

use fanin_config::{Diagnostic, Editing, Source};
use fanin_flow::{RoutePlan, UpstreamDescription};

pub use server::{LspError, serve};

/// What a check of a folder has found.
#[derive(Debug, Default)]
pub struct Checked {
    /// Errors and warnings; flow files are named from the folder.
    pub diagnostics: Vec<Diagnostic>,
    /// The plan of each route, if there is no error.
    pub plans: Vec<RoutePlan>,
    /// The flow files that were read, named from the folder.
    pub files: Vec<Arc<Source>>,
}

/// How a folder is checked.
pub trait Project {
    /// Checks a folder with what is open in place of its files. `configured`: it has a configuration file.
    fn check(&self, dir: &Path, configured: bool, editing: &Editing) -> Checked;

    /// The upstreams of a folder's configuration, as far as they are valid.
    fn describe(&self, dir: &Path, editing: &Editing) -> Vec<UpstreamDescription>;
}
