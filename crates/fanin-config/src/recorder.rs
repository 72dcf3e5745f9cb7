//! `[recorder]`: the last requests, for the admin pages.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Serialize;

use crate::reader::{Table, replace};
use crate::schema::types;
use crate::values::serialize;

/// `[recorder]`: the flight recorder. It keeps the last requests with the times and outcomes of their calls, for the admin page
/// `/requests` and the dashboard. Some are kept in full, with paths and answers, so that `fanin explain` can say what a shorter call would
/// gain.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Recorder {
    /// Requests that are kept, over all workers. A request with many calls counts as several. 0: none, and nothing is recorded.
    #[schemars(with = "types::Count<0, 1000000>")]
    pub requests: usize,
    /// Requests that each worker records in full, for each second. 0: only those of `fanin explain`.
    #[schemars(with = "types::Count<0, 1000>")]
    pub full_rate: u32,
    /// Most bytes of answers in full records, over all workers.
    #[serde(serialize_with = "serialize::size")]
    #[schemars(with = "types::Size<0>")]
    pub full_size: usize,
    /// A folder. The last requests are written to a file there after a panic, when a worker is stalled, and when a route misses its
    /// objective.
    #[serde(serialize_with = "serialize::optional_path", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub dump: Option<PathBuf>,
    /// Files that are kept in the folder. The oldest ones are deleted.
    #[schemars(with = "types::Count<1, 1000>")]
    pub dump_files: usize,
    /// Most bytes of a file. The oldest requests are left out.
    #[serde(serialize_with = "serialize::size")]
    #[schemars(with = "types::Size<65536>")]
    pub dump_size: usize,
    /// Headers whose values `fanin record` removes, besides those that it always removes.
    #[schemars(with = "Vec<types::Text>")]
    pub remove_headers: Vec<String>,
    /// Query parameters and fields of forms whose values it removes.
    #[schemars(with = "Vec<types::Text>")]
    pub remove_query: Vec<String>,
    /// Places in JSON whose values it removes: `user.email`, `**.card`. `*` is any member, `**` any number of them.
    #[schemars(with = "Vec<types::Text>")]
    pub remove_json: Vec<String>,
}

impl Default for Recorder {
    fn default() -> Recorder {
        Recorder {
            requests: 2000,
            full_rate: 2,
            full_size: 32 << 20,
            dump: None,
            dump_files: 10,
            dump_size: 4 << 20,
            remove_headers: Vec::new(),
            remove_query: Vec::new(),
            remove_json: Vec::new(),
        }
    }
}

impl Recorder {
    pub(crate) fn read(mut table: Table<'_, '_>) -> Recorder {
        let mut recorder = Recorder::default();
        replace(&mut recorder.requests, table.count("requests", 0..=1_000_000));
        replace(&mut recorder.full_rate, table.count("full_rate", 0..=1000).map(|rate| rate as u32));
        replace(&mut recorder.full_size, table.size("full_size", 0));
        recorder.dump = table.folder("dump");
        replace(&mut recorder.dump_files, table.count("dump_files", 1..=1000));
        replace(&mut recorder.dump_size, table.size("dump_size", 65_536));
        let mut names = |key, what, parse: fn(&str) -> Result<String, String>| {
            let found = table.list(key, what, false, parse);
            found.into_iter().flatten().map(|name| name.value).collect::<Vec<String>>()
        };
        recorder.remove_headers = names("remove_headers", "a name such as \"x-user\"", name);
        recorder.remove_query = names("remove_query", "a name such as \"card\"", name);
        recorder.remove_json = names("remove_json", "a place such as \"user.email\" or \"**.card\"", place);
        if recorder.dump.is_some() && recorder.requests == 0 {
            table.error("dump", "needs `requests` above 0: there is nothing to write");
        }
        table.finish();
        recorder
    }
}

/// The name of a header or a parameter.
fn name(text: &str) -> Result<String, String> {
    match text.is_empty() || text.chars().any(|char| char.is_whitespace() || char.is_control()) {
        true => Err("a name has no spaces".to_owned()),
        false => Ok(text.to_owned()),
    }
}

/// A place in JSON.
fn place(text: &str) -> Result<String, String> {
    let steps: Vec<&str> = text.split('.').collect();
    match steps.iter().any(|step| step.is_empty()) || steps.last() == Some(&"**") {
        true => Err("write names with dots between them, `*` for any one, `**` for any number of them".to_owned()),
        false => Ok(text.to_owned()),
    }
}
