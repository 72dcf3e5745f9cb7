//! What all cases of an exploration share.

use std::collections::BTreeMap;

use bytes::Bytes;
use fanin_lang::FunctionRef;

use super::exploration::ExploreOptions;
use crate::snapshots::Snapshots;
use crate::suite::{Suite, Test};

/// What all cases of an exploration share.
pub(crate) struct Context<'a> {
    pub(crate) suite: &'a Suite,
    pub(crate) test: &'a Test,
    pub(crate) snapshots: Snapshots,
    pub(crate) options: &'a ExploreOptions,
    /// `always(req, result)` of the file.
    pub(crate) always: Option<FunctionRef>,
    /// The run without deviations; `None` while it runs.
    pub(crate) healthy: Option<Healthy>,
    /// The most calls of a route, if its plan says so.
    pub(crate) plans: BTreeMap<String, Option<usize>>,
}

/// What the run without deviations gave.
pub(crate) struct Healthy {
    pub(crate) statuses: Vec<u16>,
    pub(crate) bodies: Vec<Bytes>,
    /// Whether two such runs gave the same.
    pub(crate) is_steady: bool,
}
