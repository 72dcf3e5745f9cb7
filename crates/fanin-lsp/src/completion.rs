//! Completion: upstreams, their methods, parameters, fields of messages, builtins and names.

use fanin_lang::symbols::{self, SymbolKind, Symbols};
use lsp_types::{CompletionItem, CompletionItemKind};

use crate::context::{Context, context};
use crate::hover::{Known, known, upstream_of};
use crate::place::Place;

const KEYWORDS: [&str; 13] =
    ["and", "break", "continue", "def", "elif", "else", "for", "if", "in", "lambda", "not", "or", "return"];

fn item(name: &str, kind: CompletionItemKind, detail: Option<String>) -> CompletionItem {
    CompletionItem { label: name.to_owned(), kind: Some(kind), detail, ..CompletionItem::default() }
}

/// What can be written at a place.
pub(crate) fn complete(place: &Place<'_>) -> Vec<CompletionItem> {
    let text = &place.document.text;
    let before = &text[..place.offset];
    let symbols = Symbols::of(text);
    match context(before) {
        Context::Nothing => Vec::new(),
        Context::Module => modules(place),
        Context::Loaded(module) => loaded(place, &module),
        Context::Member(object) => members(place, &symbols, &object),
        Context::Key { callee, path, quoted } => {
            let keys = keys(place, &symbols, &callee, &path, quoted);
            if keys.is_empty() && !quoted { names(place, &symbols) } else { keys }
        }
        Context::Name(call) => {
            let mut all = call.map_or_else(Vec::new, |callee| parameters(place, &symbols, &callee));
            all.extend(names(place, &symbols));
            all
        }
    }
}

fn modules(place: &Place<'_>) -> Vec<CompletionItem> {
    let builtin = fanin_lang::modules::NAMES.iter().map(|name| format!("@{name}"));
    let builtin = ["@upstreams".to_owned(), "@push".to_owned()].into_iter().chain(builtin);
    let files = place.folder.checked.files.iter().map(|source| source.name.clone()).filter(|name| *name != place.name);
    builtin.chain(files).map(|name| item(&name, CompletionItemKind::MODULE, None)).collect()
}

fn loaded(place: &Place<'_>, module: &str) -> Vec<CompletionItem> {
    if module == "@upstreams" {
        let all = place.folder.upstreams.iter();
        return all.map(|one| item(&one.name, CompletionItemKind::MODULE, Some(one.about.clone()))).collect();
    }
    if let Some(builtin) = module.strip_prefix('@') {
        let values = fanin_lang::modules::find(builtin).unwrap_or_default();
        let push = (builtin == "push").then(|| item("push", CompletionItemKind::MODULE, None));
        let values = values.iter().map(|(name, _)| item(name, CompletionItemKind::MODULE, None));
        return values.chain(push).collect();
    }
    let Ok(file) = fanin_flow::resolve(module, &place.name) else { return Vec::new() };
    let Some((_, symbols)) = place.folder.symbols(&file, place.documents) else { return Vec::new() };
    let top = symbols.symbols.iter().filter(|symbol| symbol.top && !matches!(symbol.kind, SymbolKind::Load { .. }));
    top.map(of_symbol).collect()
}

fn of_symbol(symbol: &symbols::Symbol) -> CompletionItem {
    let kind = match &symbol.kind {
        SymbolKind::Function => CompletionItemKind::FUNCTION,
        SymbolKind::Load { .. } => CompletionItemKind::MODULE,
        SymbolKind::Parameter | SymbolKind::Variable => CompletionItemKind::VARIABLE,
    };
    item(&symbol.name, kind, symbol.signature.clone())
}

fn members(place: &Place<'_>, symbols: &Symbols, object: &str) -> Vec<CompletionItem> {
    if let Some(upstream) = upstream_of(place, symbols, object) {
        let methods = upstream.methods.iter();
        return methods
            .map(|method| CompletionItem {
                documentation: Some(lsp_types::Documentation::String(method.about.clone())),
                ..item(&method.name, CompletionItemKind::METHOD, Some(method.signature.clone()))
            })
            .collect();
    }
    if object == "json" {
        let names = ["decode", "encode", "encode_indent", "indent"];
        return names.iter().map(|name| item(name, CompletionItemKind::METHOD, None)).collect();
    }
    if object.is_empty() {
        return Vec::new();
    }
    let methods = symbols::methods(&fanin_flow::globals());
    methods.into_iter().map(|name| item(name, CompletionItemKind::METHOD, None)).collect()
}

/// Names of arguments of a call.
fn parameters(place: &Place<'_>, symbols: &Symbols, callee: &str) -> Vec<CompletionItem> {
    let written = |name: &str, detail: &str| CompletionItem {
        insert_text: Some(format!("{name} = ")),
        ..item(name, CompletionItemKind::FIELD, Some(detail.to_owned()))
    };
    if let Some((object, name)) = callee.split_once('.') {
        let upstream = upstream_of(place, symbols, object);
        let method = upstream.and_then(|upstream| upstream.methods.iter().find(|method| method.name == name));
        let Some(method) = method else { return Vec::new() };
        let params = method.params.iter().map(|name| written(name, "a parameter"));
        return params.chain(method.options.iter().map(|name| written(name, "an option of calls"))).collect();
    }
    let signature = match known(place, symbols, callee, place.offset as u32) {
        Some(Known { signature: Some(signature), .. }) => signature,
        _ => return Vec::new(),
    };
    let inside =
        signature.split_once('(').map_or("", |(_, rest)| rest.rsplit_once(')').map_or(rest, |(inside, _)| inside));
    let names = inside.split(',').map(|part| part.split([':', '=', '?']).next().unwrap_or_default().trim());
    names.filter(|name| symbols::is_name(name)).map(|name| written(name, "a parameter")).collect()
}

fn keys(place: &Place<'_>, symbols: &Symbols, callee: &str, path: &[String], quoted: bool) -> Vec<CompletionItem> {
    let Some((object, name)) = callee.split_once('.') else { return Vec::new() };
    let upstream = upstream_of(place, symbols, object);
    let method = upstream.and_then(|upstream| upstream.methods.iter().find(|method| method.name == name));
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    let fields = method.map_or_else(Vec::new, |method| method.fields(&path));
    fields
        .into_iter()
        .map(|(name, ty)| CompletionItem {
            insert_text: (!quoted).then(|| format!("{name:?}: ")),
            ..item(&name, CompletionItemKind::FIELD, Some(ty))
        })
        .collect()
}

fn names(place: &Place<'_>, symbols: &Symbols) -> Vec<CompletionItem> {
    let mut all: Vec<CompletionItem> = symbols.visible(place.offset as u32).map(of_symbol).collect();
    for (name, signature) in symbols::builtins(&fanin_flow::globals()) {
        all.push(item(&name, CompletionItemKind::FUNCTION, signature));
    }
    all.extend(KEYWORDS.iter().map(|word| item(word, CompletionItemKind::KEYWORD, None)));
    all
}
