//! What answers the requests of a route: a flow, or what is configured in its place.

use crate::path_pattern::parameters;
use crate::reader::Table;
use crate::web::folder::Folder;
use crate::web::redirect::Redirect;
use crate::web::respond::Respond;

/// Keys of which a route has exactly one.
pub(crate) const KINDS: [&str; 5] = ["flow", "redirect", "respond", "folder", "proxy"];

/// Keys that only routes with a flow have, besides those of `[flow]`.
const OF_FLOWS: [&str; 9] = [
    "grpc",
    "stream_body",
    "errors",
    "progressive",
    "allowed_origins",
    "budget",
    "executor",
    "on_disconnect",
    "before",
];

/// What answers in place of a flow.
#[derive(Default)]
pub(crate) struct InPlace {
    pub redirect: Option<Redirect>,
    pub respond: Option<Respond>,
    pub folder: Option<Folder>,
}

impl InPlace {
    /// Reads what the route has, and reports keys that do not go together. `path` is the route's, if it is valid.
    pub(crate) fn read(table: &mut Table<'_, '_>, path: Option<&str>) -> InPlace {
        let mut kinds = KINDS.into_iter().filter(|kind| table.has(kind));
        let first = kinds.next();
        for second in kinds {
            let first = first.unwrap_or_default();
            table.error(second, format_args!("cannot be combined with `{first}`; a route is answered in one way"));
        }
        if first.is_none() {
            table.missing("flow", "flow = \"flows/file.star:function\", or redirect, respond, folder or proxy");
        }
        if let Some(kind) = first.filter(|kind| *kind != "flow") {
            for key in OF_FLOWS.into_iter().filter(|key| table.has(key)) {
                table.error(key, format_args!("needs a flow, and the route has `{kind}`; remove one of them"));
            }
        }
        let params = path.map(parameters).unwrap_or_default();
        let names: Vec<&str> = params.iter().map(|name| name.trim_start_matches('*')).collect();
        let redirect = table.table("redirect").and_then(|table| Redirect::read(table, &names));
        let respond = table.table("respond").map(Respond::read);
        let folder = Folder::of_route(table);
        if folder.is_some() && path.is_some() && !params.last().is_some_and(|name| name.starts_with('*')) {
            table.error("folder", "the route's path must end with the rest of the path, such as \"/assets/{*file}\"");
        }
        if folder.is_some() && table.has("method") {
            table.error("method", "a folder is read with GET and HEAD; remove this key");
        }
        InPlace { redirect, respond, folder }
    }
}
