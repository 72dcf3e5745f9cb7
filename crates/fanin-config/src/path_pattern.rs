//! Path patterns of routes and path templates of operations.

use crate::values::names::is_identifier;

/// Checks a route's path pattern.
pub(crate) fn check_pattern(path: &str) -> Result<(), String> {
    check_path(path, true)
}

/// Checks an operation's path template: as a route's, without `{*name}`.
pub(crate) fn check_template(path: &str) -> Result<(), String> {
    check_path(path, false)
}

/// The parameters of a valid path: `name`, or `*name` for the rest of the path.
pub(crate) fn parameters(path: &str) -> Vec<&str> {
    path.split('/').filter_map(|segment| segment.strip_prefix('{')?.strip_suffix('}')).collect()
}

/// A segment such as `:id`, which other routers take for a parameter.
pub(crate) fn colon_segment(path: &str) -> Option<&str> {
    path.split('/').find(|segment| segment.strip_prefix(':').is_some_and(is_identifier))
}

fn check_path(path: &str, rest_allowed: bool) -> Result<(), String> {
    let Some(inner) = path.strip_prefix('/') else {
        return Err(format!("`{path}` must begin with /"));
    };
    if let Some(bad) = path.chars().find(|c| c.is_whitespace() || c.is_control() || matches!(c, '?' | '#' | '\\')) {
        return Err(format!("`{path}` must not hold {bad:?}"));
    }
    let mut names: Vec<&str> = Vec::new();
    let mut segments = inner.split('/').peekable();
    while let Some(segment) = segments.next() {
        if segment.is_empty() && (segments.peek().is_some() || path.ends_with("//")) {
            return Err(format!("`{path}` has an empty segment, //"));
        }
        if matches!(segment, "." | "..") {
            return Err(format!("`{path}` must not hold the segment {segment}"));
        }
        if !segment.contains(['{', '}']) {
            continue;
        }
        let name = segment
            .strip_prefix('{')
            .and_then(|segment| segment.strip_suffix('}'))
            .ok_or_else(|| format!("`{segment}`: a parameter is a whole segment, such as /{{id}}/"))?;
        let (name, rest) = match name.strip_prefix('*') {
            Some(name) => (name, true),
            None => (name, false),
        };
        if !is_identifier(name) {
            return Err(format!("`{segment}`: `{name}` is not a parameter's name"));
        }
        if rest && !rest_allowed {
            return Err(format!("`{segment}`: only a route's path can have a parameter for all that is left"));
        }
        if rest && segments.peek().is_some() {
            return Err(format!("`{segment}` takes all that is left, so it must come last"));
        }
        if names.contains(&name) {
            return Err(format!("`{path}` has the parameter `{name}` twice"));
        }
        names.push(name);
    }
    Ok(())
}
