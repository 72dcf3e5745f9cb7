//! The folders with a configuration, and what was found in each.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use fanin_config::{Editing, FILE_NAME, Severity};
use fanin_flow::UpstreamDescription;
use fanin_lang::symbols::Symbols;
use lsp_types::{DiagnosticSeverity, NumberOrString, PublishDiagnosticsParams};

use crate::documents::Documents;
use crate::position::range;
use crate::{Checked, Project};

/// A folder, and the last check of it.
#[derive(Debug, Default)]
pub(crate) struct Folder {
    pub(crate) dir: PathBuf,
    /// Whether it has a configuration file.
    pub(crate) configured: bool,
    pub(crate) checked: Checked,
    pub(crate) upstreams: Vec<UpstreamDescription>,
    /// The configuration that these are of.
    described: Option<String>,
    /// The files whose diagnostics the editor shows.
    shown: BTreeSet<PathBuf>,
}

/// The folder of a file: the next one upwards with a configuration, or else its own.
pub(crate) fn folder_of(path: &Path, documents: &Documents) -> (PathBuf, bool) {
    let own = path.parent().unwrap_or(Path::new("/"));
    let configured = |dir: &&Path| {
        let file = dir.join(FILE_NAME);
        file.is_file() || documents.at(&file).is_some()
    };
    match own.ancestors().find(configured) {
        Some(dir) => (dir.to_path_buf(), true),
        None => (own.to_path_buf(), false),
    }
}

impl Folder {
    pub(crate) fn new(dir: PathBuf) -> Folder {
        Folder { dir, ..Folder::default() }
    }

    /// The name of a flow file from this folder.
    pub(crate) fn name_of(&self, path: &Path) -> Option<String> {
        Some(path.strip_prefix(&self.dir).ok()?.to_string_lossy().replace('\\', "/"))
    }

    pub(crate) fn upstream(&self, name: &str) -> Option<&UpstreamDescription> {
        self.upstreams.iter().find(|upstream| upstream.name == name)
    }

    /// The text of a file of this folder: what is open, what the last check has read, or what is on disk.
    pub(crate) fn text(&self, name: &str, documents: &Documents) -> Option<String> {
        let path = self.dir.join(name);
        if let Some(document) = documents.at(&path) {
            return Some(document.text.clone());
        }
        if let Some(source) = self.checked.files.iter().find(|source| source.name == name) {
            return Some(source.text.clone());
        }
        std::fs::read_to_string(path).ok().filter(|text| text.len() <= 4 << 20)
    }

    /// The names of a file of this folder.
    pub(crate) fn symbols(&self, name: &str, documents: &Documents) -> Option<(String, Symbols)> {
        let text = self.text(name, documents)?;
        let symbols = Symbols::of(&text);
        Some((text, symbols))
    }

    /// Checks the folder, and gives what the editor is to show of each of its files.
    pub(crate) fn check(&mut self, project: &dyn Project, documents: &Documents) -> Vec<PublishDiagnosticsParams> {
        self.configured = folder_of(&self.dir.join("x"), documents) == (self.dir.clone(), true);
        let mut texts = HashMap::new();
        let mut flows = Vec::new();
        for document in documents.iter() {
            texts.insert(document.path.clone(), document.text.clone());
            let flow = document.path.extension().is_some_and(|end| end == "star");
            if flow && folder_of(&document.path, documents).0 == self.dir {
                flows.extend(self.name_of(&document.path));
            }
        }
        flows.sort();
        let editing = Editing::new(texts, flows);
        self.checked = project.check(&self.dir, self.configured, &editing);
        let config = self.text(FILE_NAME, documents);
        if self.configured && self.described != config {
            self.upstreams = project.describe(&self.dir, &editing);
            self.described = config;
        }
        self.shown(documents)
    }

    fn shown(&mut self, documents: &Documents) -> Vec<PublishDiagnosticsParams> {
        let mut by_file: BTreeMap<PathBuf, Vec<lsp_types::Diagnostic>> = BTreeMap::new();
        for file in std::mem::take(&mut self.shown) {
            by_file.insert(file, Vec::new());
        }
        for document in documents.iter().filter(|document| folder_of(&document.path, documents).0 == self.dir) {
            by_file.entry(document.path.clone()).or_default();
        }
        for one in &self.checked.diagnostics {
            let path = fanin_config::canonical(&self.dir.join(&one.source.name));
            let shown = lsp_types::Diagnostic {
                range: range(&one.source.text, one.at.start, one.at.end),
                severity: Some(match one.severity {
                    Severity::Error => DiagnosticSeverity::ERROR,
                    Severity::Warning => DiagnosticSeverity::WARNING,
                }),
                code: one.lint.map(|lint| NumberOrString::String(lint.to_owned())),
                source: Some("fanin".to_owned()),
                message: match &one.hint {
                    Some(hint) => format!("{}\nhelp: {hint}", one.message),
                    None => one.message.clone(),
                },
                ..lsp_types::Diagnostic::default()
            };
            by_file.entry(path).or_default().push(shown);
        }
        let mut all = Vec::new();
        for (path, diagnostics) in by_file {
            let Some(uri) = documents.uri(&path) else { continue };
            if !diagnostics.is_empty() {
                self.shown.insert(path.clone());
            }
            let version = documents.at(&path).map(|document| document.version);
            all.push(PublishDiagnosticsParams { uri, diagnostics, version });
        }
        all
    }
}
