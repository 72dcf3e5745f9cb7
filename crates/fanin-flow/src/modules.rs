//! Resolves `load`: files in the configuration's folder, `@upstreams`, `@push`, and the modules of the language.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use arcstr::ArcStr;
use fanin_config::{Editing, Source};
use fanin_lang::{Effect, FrozenValue, HostObject, HostRef, Loaded, Loader};

use crate::kinds::UpstreamObject;
use crate::placeholder::Placeholder;
use crate::push::{self, ChannelsCell, PushObject};

/// The module of `fanin test`.
const TESTS: &str = "test";
/// Maximal size of a flow file, in bytes.
const MAX_FILE: u64 = 1 << 20;

/// A module of whoever loads a program: its name without `@`, and its values.
pub type Module = (&'static str, Vec<(ArcStr, FrozenValue)>);

/// The files of one configuration.
pub(crate) struct Modules<'a> {
    dir: &'a Path,
    editing: Editing,
    upstreams: Vec<(ArcStr, HostRef)>,
    push: HostRef,
    /// Modules that only some programs may load, with their values.
    more: &'a [Module],
    /// The texts of loaded files, for error messages.
    pub(crate) sources: RefCell<BTreeMap<String, Arc<Source>>>,
    /// Which file loads which.
    loads: RefCell<Vec<(String, String)>>,
}

impl<'a> Modules<'a> {
    pub(crate) fn new(
        dir: &'a Path,
        upstreams: impl Iterator<Item = UpstreamObject>,
        placeholders: &[String],
        channels: ChannelsCell,
        editing: Editing,
    ) -> Modules<'a> {
        let valid = upstreams.map(|object| (ArcStr::from(object.name()), HostRef::new(object)));
        let placeholders = placeholders.iter().map(|name| (ArcStr::from(name), HostRef::new(Placeholder::new(name))));
        let upstreams = valid.chain(placeholders).collect();
        let push = HostRef::new(PushObject(channels));
        Modules { dir, editing, upstreams, push, more: &[], sources: RefCell::default(), loads: RefCell::default() }
    }

    /// The same with further modules.
    pub(crate) fn with(self, more: &'a [Module]) -> Modules<'a> {
        Modules { more, ..self }
    }

    /// Whether a file or one that it loads has this word in it.
    pub(crate) fn mention(&self, file: &str, word: &str) -> bool {
        let (sources, loads) = (self.sources.borrow(), self.loads.borrow());
        let mut files = vec![file];
        let mut at = 0;
        while let Some(file) = files.get(at).copied() {
            if sources.get(file).is_some_and(|source| source.text.contains(word)) {
                return true;
            }
            for (from, name) in loads.iter() {
                if from == file && !files.contains(&name.as_str()) {
                    files.push(name);
                }
            }
            at += 1;
        }
        false
    }

    /// The upstreams as values of flows.
    pub(crate) fn upstreams(&self) -> Vec<HostRef> {
        self.upstreams.iter().map(|(_, object)| object.clone()).collect()
    }

    /// The files that were read.
    pub(crate) fn into_sources(self) -> Vec<Arc<Source>> {
        self.sources.into_inner().into_values().collect()
    }

    fn read(&self, name: &str) -> Result<String, String> {
        let path = self.dir.join(name);
        if let Some(text) = self.editing.text(&path) {
            return match text.len() as u64 > MAX_FILE {
                true => Err(format!("{name} is larger than {MAX_FILE} bytes")),
                false => Ok(text.to_owned()),
            };
        }
        // A symbolic link may lead outside although the name does not.
        let outside = || format!("{name} is outside the configuration's folder");
        let real = path.canonicalize().map_err(|error| format!("{name} cannot be read: {error}"))?;
        let root = self.dir.canonicalize().map_err(|error| format!("{}: {error}", self.dir.display()))?;
        if !real.starts_with(&root) {
            return Err(outside());
        }
        let mut bytes = Vec::new();
        std::fs::File::open(&real)
            .and_then(|file| file.take(MAX_FILE + 1).read_to_end(&mut bytes))
            .map_err(|error| format!("{name} cannot be read: {error}"))?;
        if bytes.len() as u64 > MAX_FILE {
            return Err(format!("{name} is larger than {MAX_FILE} bytes"));
        }
        String::from_utf8(bytes).map_err(|_| format!("{name} is not UTF-8"))
    }
}

/// The name of a file below the configuration's folder: `./x` and `../x` start from the loading file's folder, everything else
/// from the configuration's.
///
/// # Errors
/// The name leads outside or is none of a flow file.
pub fn resolve(module: &str, from: &str) -> Result<String, String> {
    let relative = module.starts_with("./") || module.starts_with("../");
    let base = if relative { Path::new(from).parent().unwrap_or(Path::new("")) } else { Path::new("") };
    let mut parts: Vec<String> = Vec::new();
    let whole: PathBuf = base.join(module);
    for component in whole.components() {
        match component {
            Component::Normal(part) => parts.push(part.to_string_lossy().into_owned()),
            Component::CurDir => {}
            Component::ParentDir if parts.pop().is_some() => {}
            _ => return Err(format!("{module} is outside the configuration's folder")),
        }
    }
    if !parts.last().is_some_and(|file| file.ends_with(".star")) {
        return Err(format!("{module} is not a flow file: its name must end with .star"));
    }
    Ok(parts.join("/"))
}

impl Loader for Modules<'_> {
    fn load(&self, module: &str, from: &str) -> Result<Loaded, String> {
        if let Some(builtin) = module.strip_prefix('@') {
            return match builtin {
                "upstreams" => Ok(Loaded::Values(
                    self.upstreams.iter().map(|(name, it)| (name.clone(), FrozenValue::Host(it.clone()))).collect(),
                )),
                "push" => Ok(Loaded::Values(vec![("push".into(), FrozenValue::Host(self.push.clone()))])),
                _ if self.more.iter().any(|(name, _)| *name == builtin) => {
                    let values = self.more.iter().filter(|(name, _)| *name == builtin).flat_map(|(_, values)| values);
                    Ok(Loaded::Values(values.cloned().collect()))
                }
                TESTS => Err(format!(
                    "{module} is for tests: files that end in _test.star, and what they load; `fanin test` runs them"
                )),
                _ => match fanin_lang::modules::find(builtin) {
                    Some(values) => Ok(Loaded::Values(values)),
                    None => {
                        let names = fanin_lang::modules::NAMES.map(|name| format!("\"@{name}\"")).join(", ");
                        Err(format!(
                            "there is no module {module}; load a .star file, \"@upstreams\", \"@push\" or one of {names}"
                        ))
                    }
                },
            };
        }
        let name = resolve(module, from)?;
        let text = self.read(&name)?;
        self.loads.borrow_mut().push((from.to_owned(), name.clone()));
        self.sources.borrow_mut().insert(name.clone(), Arc::new(Source::new(name.clone(), text.clone())));
        Ok(Loaded::Source { name: name.into(), text })
    }

    fn effect(&self, method: &str) -> Option<Effect> {
        let mut worst = push::effect(method);
        if worst == Some(Effect::Write) {
            return worst;
        }
        for (_, object) in &self.upstreams {
            match object.downcast::<UpstreamObject>().and_then(|object| object.effect(method)) {
                Some(Effect::Write) => return Some(Effect::Write),
                Some(other) => worst = Some(other),
                None => {}
            }
        }
        worst
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_inside_the_folder() {
        assert_eq!(resolve("flows/a.star", "flows/b.star").unwrap(), "flows/a.star");
        assert_eq!(resolve("./a.star", "flows/b.star").unwrap(), "flows/a.star");
        assert_eq!(resolve("../a.star", "flows/b.star").unwrap(), "a.star");
        assert_eq!(resolve("flows/../a.star", "").unwrap(), "a.star");
        for bad in ["../../a.star", "/etc/a.star", "flows/../../a.star", "a.py", ""] {
            assert!(resolve(bad, "flows/b.star").is_err(), "{bad}");
        }
    }
}
