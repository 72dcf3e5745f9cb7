//! What a partial response says about the answers that it lacks.

use fanin_json::Writer;

/// An answer that a partial response lacks.
pub(crate) struct Missing<'a> {
    pub(crate) upstream: &'a str,
    pub(crate) kind: &'a str,
    /// The upstream whose failure kept this call from being sent.
    pub(crate) because: Option<&'a str>,
}

/// The distinct upstreams that failed, separated by commas. Those of calls that were not sent are not among them.
pub(crate) fn failed_names<'a>(all: impl Iterator<Item = Missing<'a>>) -> String {
    let mut names: Vec<&str> = Vec::new();
    for missing in all.filter(|missing| missing.because.is_none()) {
        if !names.contains(&missing.upstream) {
            names.push(missing.upstream);
        }
    }
    names.join(",")
}

/// The list `errors` of a partial response.
pub(crate) fn errors<'a>(errors: impl Iterator<Item = Missing<'a>>) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = Writer::new(&mut out);
    writer.begin_array();
    for Missing { upstream, kind, because } in errors {
        writer.begin_object();
        writer.key("upstream");
        writer.str(upstream);
        writer.key("kind");
        writer.str(kind);
        if let Some(because) = because {
            writer.key("because");
            writer.str(because);
        }
        writer.end_object();
    }
    writer.end_array();
    out
}
