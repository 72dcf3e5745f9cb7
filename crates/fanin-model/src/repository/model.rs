//! A model and its state in the index.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;

use super::scan;
use super::version::Version;

/// A model: its ready versions, and why others are not ready.
pub struct Model {
    pub(super) name: Arc<str>,
    /// Ready versions, the highest first.
    pub(super) ready: ArcSwap<Vec<Arc<Version>>>,
    /// Why a version is not ready.
    pub(super) failed: Mutex<BTreeMap<u64, (scan::Fingerprint, String)>>,
    pub(super) queue: usize,
}

impl std::fmt::Debug for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "model {}", self.name)
    }
}

impl Model {
    /// The model's name.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Ready versions, the highest first.
    pub fn ready(&self) -> Arc<Vec<Arc<Version>>> {
        self.ready.load_full()
    }

    /// Versions that could not be loaded, with the reasons.
    pub fn failed(&self) -> Vec<(u64, String)> {
        // A poisoned lock is usable: the map is replaced as a whole.
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.iter().map(|(version, (_, why))| (*version, why.clone())).collect()
    }
}

/// One entry of the index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Indexed {
    /// The model's name.
    pub model: Arc<str>,
    /// The version's number, empty for a model without any.
    pub version: String,
    /// Whether it serves requests.
    pub ready: bool,
    /// Why not.
    pub reason: String,
}
