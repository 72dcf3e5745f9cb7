//! Renaming: names of a function within it, names of a file in all files that load them.

use std::collections::{BTreeSet, HashMap};

use fanin_lang::symbols::{self, SymbolKind, Symbols};
use lsp_types::{TextEdit, Uri, WorkspaceEdit};

use crate::place::Place;
use crate::position::range;

/// Gives what stands at a place another name, everywhere.
///
/// # Errors
/// The new name is none, or is in use; or nothing stands there that can have another name.
// The editor's type: its map is keyed by URIs.
#[allow(clippy::mutable_key_type, reason = "the protocol's own type, whose keys do not change")]
pub(crate) fn rename(place: &Place<'_>, new: &str) -> Result<WorkspaceEdit, String> {
    if !symbols::is_name(new) {
        return Err(format!("{new:?} is not a name"));
    }
    let symbols = Symbols::of(&place.document.text);
    let found = symbols.at(place.offset as u32).ok_or("there is no name at this place")?;
    let number = found.symbol.ok_or_else(|| format!("{} is not defined in this file", found.name))?;
    let symbol = &symbols.symbols[number];
    // Where the name comes from, and what it is called there.
    let (origin, old) = match &symbol.kind {
        SymbolKind::Load { module, name } if !module.starts_with('@') && (found.theirs || *name == symbol.name) => {
            (Some(fanin_flow::resolve(module, &place.name)?), name.clone())
        }
        SymbolKind::Load { .. } => (None, symbol.name.clone()),
        _ => (symbol.top.then(|| place.name.clone()), symbol.name.clone()),
    };
    let mut changes: HashMap<Uri, Vec<TextEdit>> = HashMap::new();
    let mut add = |name: &str, text: &str, edits: Edits| -> Result<(), String> {
        let path = place.folder.dir.join(name);
        let uri = place.documents.uri(&path).ok_or_else(|| format!("{} has no URI", path.display()))?;
        let edits = edits
            .into_iter()
            .map(|((start, end), new_text)| TextEdit { range: range(text, start as usize, end as usize), new_text });
        changes.insert(uri, edits.collect());
        Ok(())
    };
    let Some(origin) = origin else {
        add(&place.name, &place.document.text, within(&place.name, &symbols, number, new)?)?;
        return Ok(WorkspaceEdit { changes: Some(changes), ..WorkspaceEdit::default() });
    };
    let mut names: BTreeSet<String> = place.folder.checked.files.iter().map(|source| source.name.clone()).collect();
    names.extend([place.name.clone(), origin.clone()]);
    for name in names {
        let Some((text, symbols)) = place.folder.symbols(&name, place.documents) else { continue };
        let mut edits = Edits::new();
        if name == origin {
            let number = symbols.top(&old).ok_or_else(|| format!("{origin} has no {old}"))?;
            edits = within(&name, &symbols, number, new)?;
        }
        for (number, symbol) in symbols.symbols.iter().enumerate() {
            let SymbolKind::Load { module, name: theirs } = &symbol.kind else { continue };
            if *theirs != old || fanin_flow::resolve(module, &name).ok().as_ref() != Some(&origin) {
                continue;
            }
            if symbol.name == old {
                edits.extend(within(&name, &symbols, number, new)?);
            }
            let theirs = symbols.occurrences.iter().filter(|one| one.theirs && one.symbol == Some(number));
            edits.extend(theirs.map(|one| (one.span, new.to_owned())));
        }
        if !edits.is_empty() {
            add(&name, &text, edits)?;
        }
    }
    Ok(WorkspaceEdit { changes: Some(changes), ..WorkspaceEdit::default() })
}

type Edits = Vec<(symbols::Span, String)>;

/// The changes within a file.
fn within(file: &str, symbols: &Symbols, number: usize, new: &str) -> Result<Edits, String> {
    let symbol = &symbols.symbols[number];
    let taken = symbols.occurrences.iter().any(|one| !one.theirs && one.name == new);
    if taken && symbol.name != new {
        return Err(format!("{new} is already a name in {file}"));
    }
    let of_host = matches!(&symbol.kind, SymbolKind::Load { module, .. } if module.starts_with('@'));
    let renamed = matches!(&symbol.kind, SymbolKind::Load { name, .. } if *name != symbol.name);
    let places = symbols.occurrences.iter().filter(|one| one.symbol == Some(number) && !one.theirs);
    Ok(places
        .map(|one| match one.span == symbol.span && of_host && !renamed {
            // The host's name stays: `load("@upstreams", new = "catalog")`. The place is within the quotes.
            true => ((one.span.0 - 1, one.span.1 + 1), format!("{new} = \"{}\"", one.name)),
            false => (one.span, new.to_owned()),
        })
        .collect())
}
