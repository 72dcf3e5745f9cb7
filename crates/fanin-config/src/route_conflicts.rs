//! Routes that would match the same requests.

use std::collections::HashMap;

use http::Method;

use crate::values::host::HostPattern;

/// Paths seen so far, as the server will route them. Routes of different hosts do not collide: the most exact host counts.
#[derive(Default)]
pub(crate) struct Paths {
    by_host: HashMap<Option<HostPattern>, OfHost>,
}

/// The paths of one host, or of routes without a host.
#[derive(Default)]
struct OfHost {
    seen: Vec<(Method, String, u32)>,
    router: matchit::Router<()>,
}

impl Paths {
    /// Adds a route's path, or says with which earlier one it collides, and what to do.
    pub(crate) fn add(
        &mut self,
        hosts: &[HostPattern],
        method: &Method,
        path: &str,
        line: u32,
    ) -> Result<(), (String, String)> {
        if hosts.is_empty() {
            return self.by_host.entry(None).or_default().add(method, path, line);
        }
        for host in hosts {
            let of_host = self.by_host.entry(Some(host.clone())).or_default();
            of_host.add(method, path, line).map_err(|(message, hint)| (format!("host {host}: {message}"), hint))?;
        }
        Ok(())
    }
}

impl OfHost {
    fn add(&mut self, method: &Method, path: &str, line: u32) -> Result<(), (String, String)> {
        let shape_of = shape(path);
        let alike = |(_, other, _): &&(Method, String, u32)| shape(other) == shape_of;
        if let Some((.., first)) = self.seen.iter().filter(alike).find(|(other, ..)| other == method) {
            return Err((
                format!("{method} {path} occurs twice"),
                format!("the first one is in line {first}; names of parameters do not distinguish routes"),
            ));
        }
        match self.seen.iter().find(alike) {
            Some((_, other, first)) if other != path => {
                return Err((
                    format!("{path} matches the same paths as {other}, line {first}"),
                    "give the parameters the same names".to_owned(),
                ));
            }
            Some(_) => {}
            None => {
                if let Err(error) = self.router.insert(path, ()) {
                    // The router may name the parameters in another way.
                    let with = match error {
                        matchit::InsertError::Conflict { with } => shape(&with),
                        other => return Err((format!("{path}: {other}"), "write it in another way".to_owned())),
                    };
                    let first = self.seen.iter().find(|(_, other, _)| shape(other) == with);
                    let place = first.map_or(String::new(), |(_, other, line)| format!(" with {other}, line {line}"));
                    return Err((
                        format!("{path} collides{place}"),
                        "a parameter for one segment and one for the rest of the path cannot be in the same position"
                            .to_owned(),
                    ));
                }
            }
        }
        self.seen.push((method.clone(), path.to_owned(), line));
        Ok(())
    }
}

/// A pattern without the names of its parameters: two patterns of one shape match the same paths.
fn shape(path: &str) -> String {
    let plain = |segment: &str| match segment.strip_prefix('{') {
        Some(inner) if inner.starts_with('*') => "{*}".to_owned(),
        Some(_) => "{}".to_owned(),
        None => segment.to_owned(),
    };
    path.split('/').map(plain).collect::<Vec<_>>().join("/")
}
