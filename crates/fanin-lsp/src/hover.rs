//! Hover: what a name is, and what a call costs.

use std::fmt::Write;

use fanin_config::Severity;
use fanin_flow::{RoutePlan, UpstreamDescription};
use fanin_lang::symbols::{self, SymbolKind, Symbols};
use lsp_types::{Hover, HoverContents, MarkupContent, MarkupKind};

use crate::place::Place;
use crate::position::range;

/// What is known of a name.
#[derive(Debug, Default)]
pub(crate) struct Known {
    pub(crate) signature: Option<String>,
    pub(crate) about: String,
}

/// The upstream that a name stands for.
pub(crate) fn upstream_of<'a>(place: &Place<'a>, symbols: &Symbols, name: &str) -> Option<&'a UpstreamDescription> {
    let symbol = symbols.symbols.iter().find(|symbol| symbol.top && symbol.name == name)?;
    match &symbol.kind {
        SymbolKind::Load { module, name } if module == "@upstreams" => place.folder.upstream(name),
        _ => None,
    }
}

/// What is known of the name that can be used at a place.
pub(crate) fn known(place: &Place<'_>, symbols: &Symbols, name: &str, at: u32) -> Option<Known> {
    let Some(symbol) = symbols.visible(at).filter(|symbol| symbol.name == name).last() else {
        let builtins = symbols::builtins(&fanin_flow::globals());
        let (_, signature) = builtins.into_iter().find(|(builtin, _)| builtin == name)?;
        return Some(Known { signature: signature.or(Some(name.to_owned())), about: "A builtin.".to_owned() });
    };
    of_symbol(place, symbol)
}

fn of_symbol(place: &Place<'_>, symbol: &symbols::Symbol) -> Option<Known> {
    let about = symbol.doc.clone().unwrap_or_default();
    Some(match &symbol.kind {
        SymbolKind::Function => Known { signature: symbol.signature.clone(), about },
        SymbolKind::Parameter => Known { signature: Some(symbol.name.clone()), about: "A parameter.".to_owned() },
        SymbolKind::Variable => Known { signature: Some(symbol.name.clone()), about: "A variable.".to_owned() },
        SymbolKind::Load { module, name } if module == "@upstreams" => {
            let upstream = place.folder.upstream(name)?;
            Known { signature: Some(upstream.name.clone()), about: upstream.about.clone() }
        }
        SymbolKind::Load { module, .. } if module.starts_with('@') => {
            Known { signature: Some(symbol.name.clone()), about: format!("From `{module}`.") }
        }
        SymbolKind::Load { module, name } => {
            let file = fanin_flow::resolve(module, &place.name).ok()?;
            let (_, symbols) = place.folder.symbols(&file, place.documents)?;
            let there = &symbols.symbols[symbols.top(name)?];
            let about = format!("{}\n\nFrom `{file}`.", there.doc.clone().unwrap_or_default());
            Known { signature: there.signature.clone().or_else(|| Some(name.clone())), about: about.trim().to_owned() }
        }
    })
}

/// What is known of what stands at a place.
pub(crate) fn hover(place: &Place<'_>) -> Option<Hover> {
    let (text, at) = (&place.document.text, place.offset as u32);
    let symbols = Symbols::of(text);
    if let Some(member) = symbols.member_at(at) {
        let upstream = member.symbol.and_then(|_| upstream_of(place, &symbols, &member.object))?;
        let method = upstream.methods.iter().find(|method| method.name == member.name)?;
        let mut about = method.about.clone();
        if method.writes {
            about += "\n\nAn effect: it starts when all calls above it have succeeded.";
        }
        about += &costs(place, member.span, &member.name);
        return Some(shown(&method.signature, &about, text, member.span));
    }
    let found = symbols.at(at)?;
    let known = match found.symbol {
        Some(number) => of_symbol(place, &symbols.symbols[number])?,
        None => known(place, &symbols, &found.name, at)?,
    };
    let mut about = known.about;
    for plan in current(place) {
        if found.symbol.is_some_and(|number| symbols.symbols[number].top)
            && plan.flow == format!("{}:{}", place.name, found.name)
        {
            let _ = write!(about, "\n\n`{}`: {}.", plan.route, plan.summary());
        }
    }
    Some(shown(&known.signature.unwrap_or_else(|| found.name.clone()), about.trim(), text, found.span))
}

/// The plans of the last check; none if that found errors, because they may be of other texts then.
fn current<'a>(place: &Place<'a>) -> impl Iterator<Item = &'a RoutePlan> {
    let checked = &place.folder.checked;
    let sound = !checked.diagnostics.iter().any(|one| one.severity == Severity::Error);
    checked.plans.iter().filter(move |_| sound)
}

/// What a call costs in each route that makes it.
fn costs(place: &Place<'_>, span: symbols::Span, method: &str) -> String {
    let mut out = String::new();
    for plan in current(place) {
        for call in &plan.plan.steps {
            let (start, end) = call.position.span;
            if call.position.file == place.name && call.method == method && start <= span.0 && span.1 <= end {
                let _ = write!(out, "\n\n`{}`: {}.", plan.route, RoutePlan::cost(call));
            }
        }
    }
    out
}

fn shown(signature: &str, about: &str, text: &str, span: symbols::Span) -> Hover {
    let value = format!("```python\n{signature}\n```\n\n{about}").trim_end().to_owned();
    Hover {
        contents: HoverContents::Markup(MarkupContent { kind: MarkupKind::Markdown, value }),
        range: Some(range(text, span.0 as usize, span.1 as usize)),
    }
}
