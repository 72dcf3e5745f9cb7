//! What the editor has open.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use fanin_config::canonical;
use lsp_types::Uri;
use url::Url;

/// Most documents that are open together.
const MAX_DOCUMENTS: usize = 1000;

/// Largest document that is taken; what the configuration file may have.
const MAX_TEXT: usize = 4 << 20;

/// An open document.
#[derive(Debug)]
pub(crate) struct Document {
    pub(crate) uri: Uri,
    /// Without links.
    pub(crate) path: PathBuf,
    pub(crate) text: String,
    pub(crate) version: i32,
}

/// The open documents.
#[derive(Debug, Default)]
pub(crate) struct Documents(HashMap<String, Document>);

impl Documents {
    /// Takes the text of a document. Gives its path, or why it is not taken.
    pub(crate) fn set(&mut self, uri: &Uri, version: i32, text: String) -> Result<PathBuf, String> {
        let path = path_of(uri).ok_or_else(|| format!("{} is not a file", uri.as_str()))?;
        if text.len() > MAX_TEXT {
            self.0.remove(uri.as_str());
            return Err(format!("{} is larger than {MAX_TEXT} bytes", path.display()));
        }
        if self.0.len() >= MAX_DOCUMENTS && !self.0.contains_key(uri.as_str()) {
            return Err(format!("more than {MAX_DOCUMENTS} documents are open"));
        }
        let document = Document { uri: uri.clone(), path: path.clone(), text, version };
        self.0.insert(uri.as_str().to_owned(), document);
        Ok(path)
    }

    pub(crate) fn close(&mut self, uri: &Uri) -> Option<PathBuf> {
        self.0.remove(uri.as_str()).map(|document| document.path)
    }

    pub(crate) fn get(&self, uri: &Uri) -> Option<&Document> {
        self.0.get(uri.as_str())
    }

    pub(crate) fn at(&self, path: &Path) -> Option<&Document> {
        self.0.values().find(|document| document.path == path)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Document> {
        self.0.values()
    }

    /// How the editor names a file.
    pub(crate) fn uri(&self, path: &Path) -> Option<Uri> {
        match self.at(path) {
            Some(document) => Some(document.uri.clone()),
            None => Uri::from_str(Url::from_file_path(path).ok()?.as_str()).ok(),
        }
    }
}

/// The file of a URI, without links.
pub(crate) fn path_of(uri: &Uri) -> Option<PathBuf> {
    let path = Url::parse(uri.as_str()).ok()?.to_file_path().ok()?;
    Some(canonical(&path))
}
