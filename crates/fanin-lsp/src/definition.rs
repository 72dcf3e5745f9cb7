//! Go to definition: functions and variables, across files; upstreams and operations in `fanin.toml`.

use fanin_config::{FILE_NAME, locate};
use fanin_lang::symbols::{SymbolKind, Symbols};
use lsp_types::Location;

use crate::place::Place;
use crate::position::range;

/// Where what stands at a place is defined.
pub(crate) fn definition(place: &Place<'_>) -> Option<Location> {
    let (text, at) = (&place.document.text, place.offset as u32);
    let symbols = Symbols::of(text);
    if let Some((module, _)) = symbols.loads.iter().find(|(_, span)| span.0 <= at && at <= span.1) {
        return match module.strip_prefix('@') {
            Some("upstreams") => in_config(place, &["upstreams"]),
            Some(_) => None,
            None => in_file(place, &fanin_flow::resolve(module, &place.name).ok()?, None),
        };
    }
    if let Some(member) = symbols.member_at(at) {
        let SymbolKind::Load { module, name } = &symbols.symbols[member.symbol?].kind else { return None };
        if module != "@upstreams" {
            return None;
        }
        let of = |kind| in_config(place, &["upstreams", name, kind, &member.name]);
        return of("operations").or_else(|| of("statements")).or_else(|| in_config(place, &["upstreams", name]));
    }
    let symbol = &symbols.symbols[symbols.at(at)?.symbol?];
    match &symbol.kind {
        SymbolKind::Load { module, name } if module == "@upstreams" => in_config(place, &["upstreams", name]),
        SymbolKind::Load { module, name } if !module.starts_with('@') => {
            in_file(place, &fanin_flow::resolve(module, &place.name).ok()?, Some(name))
        }
        _ => {
            let (start, end) = symbol.span;
            Some(Location::new(place.document.uri.clone(), range(text, start as usize, end as usize)))
        }
    }
}

fn in_config(place: &Place<'_>, path: &[&str]) -> Option<Location> {
    let text = place.folder.text(FILE_NAME, place.documents)?;
    let found = locate(&text, path)?;
    let uri = place.documents.uri(&place.folder.dir.join(FILE_NAME))?;
    Some(Location::new(uri, range(&text, found.start, found.end)))
}

/// A name of another file, or its start.
fn in_file(place: &Place<'_>, file: &str, name: Option<&str>) -> Option<Location> {
    let (text, symbols) = place.folder.symbols(file, place.documents)?;
    let (start, end) = match name {
        Some(name) => symbols.symbols[symbols.top(name)?].span,
        None => (0, 0),
    };
    let uri = place.documents.uri(&place.folder.dir.join(file))?;
    Some(Location::new(uri, range(&text, start as usize, end as usize)))
}
