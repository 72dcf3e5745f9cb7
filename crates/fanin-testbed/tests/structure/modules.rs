//! The modules of a crate, what each defines, and which items each file names.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};

/// The segments of a module's path below the crate.
type ModulePath = Vec<String>;

/// For each file the files whose items it names, and these names.
pub type Dependencies = BTreeMap<PathBuf, BTreeMap<PathBuf, BTreeSet<String>>>;

#[derive(Default)]
struct Module {
    file: PathBuf,
    /// Items defined here, child modules apart.
    items: BTreeSet<String>,
    /// Names brought in by `use`, re-exports among them, with the paths that they stand for.
    imports: HashMap<String, Vec<String>>,
    /// Modules of which everything is brought in.
    globs: Vec<Vec<String>>,
    /// Paths named by items of this module, re-exports apart.
    named: Vec<Vec<String>>,
}

/// A crate's modules by path.
pub struct Crate {
    modules: HashMap<ModulePath, Module>,
}

impl Crate {
    /// Reads a crate from its `lib.rs` or `main.rs`.
    pub fn parse(root: &Path) -> Crate {
        let mut parsed = Crate { modules: HashMap::new() };
        let folder = root.parent().expect("a file is in a folder");
        parsed.file(Vec::new(), root, folder);
        parsed
    }

    /// `folder`: where the files of child modules are.
    fn file(&mut self, path: ModulePath, file: &Path, folder: &Path) {
        let text = std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let parsed = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        self.items(path, file, folder, &parsed.items);
    }

    fn items(&mut self, path: ModulePath, file: &Path, folder: &Path, items: &[syn::Item]) {
        let mut module = Module { file: file.to_owned(), ..Module::default() };
        for item in items {
            if is_test(item) {
                continue;
            }
            if let Some(name) = name_of(item) {
                module.items.insert(name);
            }
            match item {
                syn::Item::Mod(child) => {
                    let name = child.ident.to_string();
                    let below: ModulePath = path.iter().cloned().chain([name.clone()]).collect();
                    match &child.content {
                        Some((_, items)) => self.items(below, file, &folder.join(&name), items),
                        None => {
                            let flat = folder.join(format!("{name}.rs"));
                            let found = if flat.exists() { flat } else { folder.join(&name).join("mod.rs") };
                            self.file(below, &found, &folder.join(&name));
                        }
                    }
                }
                syn::Item::Use(used) => {
                    let exported = !matches!(used.vis, syn::Visibility::Inherited);
                    let mut leaves = Vec::new();
                    flatten(&used.tree, &mut Vec::new(), &mut leaves);
                    for (name, path) in leaves {
                        if !exported {
                            module.named.push(path.clone());
                        }
                        match name {
                            Some(name) => _ = module.imports.insert(name, path),
                            None => module.globs.push(path),
                        }
                    }
                }
                _ => {
                    let mut names = Names(Vec::new());
                    names.visit_item(item);
                    module.named.extend(names.0);
                }
            }
        }
        self.modules.insert(path, module);
    }

    /// Which file names items of which others.
    pub fn dependencies(&self) -> Dependencies {
        let mut found = Dependencies::new();
        for (path, module) in &self.modules {
            for named in &module.named {
                let Some((file, item)) = self.resolve(path, named, 0) else { continue };
                // A submodule is a part of its parent and may use what that defines.
                let of_ancestor =
                    (0..path.len()).any(|len| self.modules.get(&path[..len]).is_some_and(|up| up.file == file));
                if file != module.file && !of_ancestor {
                    found.entry(module.file.clone()).or_default().entry(file).or_default().insert(item);
                }
            }
        }
        found
    }

    /// The file that defines the item at `named`, seen from the module `from`, and the item's name. `None`: an item of another crate, a
    /// local name, or a module as such.
    fn resolve(&self, from: &[String], named: &[String], depth: usize) -> Option<(PathBuf, String)> {
        // Imports may lead back to themselves.
        if depth > 16 {
            return None;
        }
        let mut at: ModulePath = from.to_vec();
        let mut rest = named;
        while let Some((first, after)) = rest.split_first() {
            match first.as_str() {
                "crate" => at.clear(),
                "self" => {}
                "super" => _ = at.pop(),
                name => {
                    let module = self.modules.get(&at)?;
                    let below: ModulePath = at.iter().cloned().chain([name.to_owned()]).collect();
                    if self.modules.contains_key(&below) {
                        at = below;
                    } else if module.items.contains(name) {
                        return Some((module.file.clone(), name.to_owned()));
                    } else if let Some(path) = module.imports.get(name) {
                        let path: Vec<String> = path.iter().chain(after).cloned().collect();
                        return (path != named).then(|| self.resolve(&at, &path, depth + 1)).flatten();
                    } else {
                        return module.globs.iter().find_map(|glob| {
                            let path: Vec<String> = glob.iter().chain(rest).cloned().collect();
                            (path != named).then(|| self.resolve(&at, &path, depth + 1)).flatten()
                        });
                    }
                }
            }
            rest = after;
        }
        None
    }
}

/// Paths that an item names.
struct Names(Vec<Vec<String>>);

impl<'ast> Visit<'ast> for Names {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() {
            self.0.push(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        }
        visit::visit_path(self, path);
    }

    fn visit_item_use(&mut self, used: &'ast syn::ItemUse) {
        let mut leaves = Vec::new();
        flatten(&used.tree, &mut Vec::new(), &mut leaves);
        self.0.extend(leaves.into_iter().map(|(_, path)| path));
    }

    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}
}

/// The names that a `use` brings in, `None` for all of a module, with their paths.
fn flatten(tree: &syn::UseTree, prefix: &mut Vec<String>, leaves: &mut Vec<(Option<String>, Vec<String>)>) {
    let with = |prefix: &[String], name: &syn::Ident| -> Vec<String> {
        prefix.iter().cloned().chain((name != "self").then(|| name.to_string())).collect()
    };
    match tree {
        syn::UseTree::Path(path) => {
            prefix.push(path.ident.to_string());
            flatten(&path.tree, prefix, leaves);
            prefix.pop();
        }
        syn::UseTree::Name(name) => {
            let path = with(prefix, &name.ident);
            leaves.push((path.last().cloned(), path));
        }
        syn::UseTree::Rename(renamed) => {
            leaves.push((Some(renamed.rename.to_string()), with(prefix, &renamed.ident)));
        }
        syn::UseTree::Glob(_) => leaves.push((None, prefix.clone())),
        syn::UseTree::Group(group) => group.items.iter().for_each(|item| flatten(item, prefix, leaves)),
    }
}

fn name_of(item: &syn::Item) -> Option<String> {
    let name = match item {
        syn::Item::Const(item) => &item.ident,
        syn::Item::Enum(item) => &item.ident,
        syn::Item::Fn(item) => &item.sig.ident,
        syn::Item::Macro(item) => item.ident.as_ref()?,
        syn::Item::Static(item) => &item.ident,
        syn::Item::Struct(item) => &item.ident,
        syn::Item::Trait(item) => &item.ident,
        syn::Item::TraitAlias(item) => &item.ident,
        syn::Item::Type(item) => &item.ident,
        syn::Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(name.to_string())
}

/// Compiled for tests only.
fn is_test(item: &syn::Item) -> bool {
    let attributes = match item {
        syn::Item::Const(item) => &item.attrs,
        syn::Item::Enum(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Static(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Trait(item) => &item.attrs,
        syn::Item::Type(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        _ => return false,
    };
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::List(list) if list.path.is_ident("cfg") => {
            list.tokens.to_string().split_whitespace().next() == Some("test")
        }
        _ => false,
    })
}
