//! The place that a request is about.

use crate::documents::{Document, Documents};
use crate::workspace::Folder;

/// What a request about a flow needs.
pub(crate) struct Place<'a> {
    pub(crate) documents: &'a Documents,
    pub(crate) document: &'a Document,
    pub(crate) folder: &'a Folder,
    /// The file's name from the folder.
    pub(crate) name: String,
    pub(crate) offset: usize,
}
