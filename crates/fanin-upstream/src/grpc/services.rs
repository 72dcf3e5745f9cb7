//! The services of an upstream, as its configuration describes them.

use prost_reflect::{DescriptorPool, SerializeOptions};

use super::describe::Described;
use super::message::shown;
use super::method::{Method, Methods, is_safe};
use super::reflection::Reflection;
use super::shape::nearest;
use crate::error::BuildError;

/// The services of an upstream, as configured.
#[derive(Debug)]
pub struct Services {
    pub(crate) known: Methods,
    /// For methods that come from server reflection.
    pub(crate) reflection: Option<Reflection>,
    /// The descriptors of `known`, for comparison.
    source: Vec<u8>,
    safe: Vec<String>,
    pub(crate) shown: SerializeOptions,
}

impl PartialEq for Services {
    /// Whether both describe the same services, whatever a server has described since.
    fn eq(&self, other: &Services) -> bool {
        self.source == other.source && self.reflection.is_some() == other.reflection.is_some()
    }
}

impl Services {
    /// Reads the descriptors of a gRPC upstream; `None` for other upstreams.
    pub(crate) fn load(config: &fanin_config::Upstream) -> Result<Option<Services>, BuildError> {
        if config.kind() != fanin_config::UpstreamKind::Grpc {
            return Ok(None);
        }
        let error = |key, detail| BuildError { upstream: config.name.clone(), key, detail };
        let Described { pool, key } = super::describe::describe(config).map_err(|(key, detail)| error(key, detail))?;
        let services = Services::of(config, &pool);
        if services.reflection.is_none() {
            if services.known.by_name.is_empty() {
                return Err(error(key, "describes no method of any service".to_owned()));
            }
            if let Some(wrong) = config.safe_methods.iter().find(|safe| !services.names(safe)) {
                let names = services.known.by_name.values().flat_map(|method| [method.full_name(), method.name()]);
                let near = nearest(wrong, names).map(|near| format!("; did you mean {near}?"));
                let detail = format!("{wrong} is neither a method nor a service{}", near.unwrap_or_default());
                return Err(error("safe_methods", detail));
            }
        }
        Ok(Some(services))
    }

    fn of(config: &fanin_config::Upstream, pool: &DescriptorPool) -> Services {
        Services {
            known: Methods::new(pool.services(), &config.safe_methods),
            reflection: config.reflection.then(Reflection::default),
            source: pool.encode_to_vec(),
            safe: config.safe_methods.clone(),
            shown: shown(config.int64, config.field_names),
        }
    }

    fn names(&self, safe: &str) -> bool {
        self.known.by_name.keys().any(|full| is_safe(&[safe.to_owned()], full))
    }

    /// Whether the methods are known before a call, without server reflection.
    pub fn are_known(&self) -> bool {
        self.reflection.is_none()
    }

    /// The method with that full name (`package.Service/Method`, with or without a leading slash), and its index.
    pub fn find(&self, full: &str) -> Option<(usize, &Method)> {
        let (at, _, method) = self.known.by_name.get_full(full.trim_start_matches('/'))?;
        Some((at, method))
    }

    /// The only method with that short name.
    ///
    /// # Errors
    /// The full names if there are several; nothing if there is none.
    pub fn find_short(&self, name: &str) -> Result<(usize, &Method), Vec<&str>> {
        let mut found = self.known.by_name.values().enumerate().filter(|(_, method)| method.name == name);
        match (found.next(), found.next()) {
            (Some(only), None) => Ok(only),
            (None, _) => Err(Vec::new()),
            (Some(one), Some(two)) => {
                Err([one, two].into_iter().chain(found).map(|(_, method)| method.full_name()).collect())
            }
        }
    }

    /// The method with that index.
    pub fn at(&self, at: usize) -> Option<&Method> {
        self.known.by_name.get_index(at).map(|(_, method)| method)
    }

    /// All known methods in the order of their indexes.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Method> {
        self.known.by_name.values()
    }

    /// A message and a hint for an unknown method.
    pub fn unknown_method(&self, full: &str) -> (String, Option<String>) {
        self.known.unknown_method(full)
    }

    /// Whether the configuration declares a method safe, by its full name.
    pub fn is_declared_safe(&self, full: &str) -> bool {
        is_safe(&self.safe, full.trim_start_matches('/'))
    }

    pub(crate) fn safe(&self) -> &[String] {
        &self.safe
    }
}
