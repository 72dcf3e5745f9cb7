//! The query of `/cache/purge`: what to purge.

use std::borrow::Cow;

use http::uri::PathAndQuery;

/// Most tags and paths of one request.
const MOST: usize = 1000;

/// What is to be purged.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Purge {
    pub(super) tags: Vec<String>,
    pub(super) targets: Vec<PathAndQuery>,
    pub(super) all: bool,
}

/// Reads the query.
pub(super) fn parse(query: &str) -> Result<Purge, Cow<'static, str>> {
    let mut purge = Purge::default();
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        match &*name {
            "tag" if value.is_empty() || value.contains([',', ' ']) => {
                return Err(format!("`{value}` is not a tag: tags have no commas and spaces").into());
            }
            "tag" => purge.tags.push(value.into_owned()),
            "path" => match value.parse() {
                Ok(target) if value.starts_with('/') => purge.targets.push(target),
                _ => return Err(format!("`{value}` is not a path such as /products/7?page=2").into()),
            },
            "all" if value == "true" => purge.all = true,
            "all" => return Err("write all=true to purge everything".into()),
            other => return Err(format!("`{other}` is not known; write tag, path or all").into()),
        }
        if purge.tags.len() + purge.targets.len() > MOST {
            return Err(format!("at most {MOST} tags and paths are purged at once").into());
        }
    }
    match purge == Purge::default() {
        true => Err("write what to purge: ?tag=TAG, ?path=PATH or ?all=true".into()),
        false => Ok(purge),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_to_be_purged() {
        let purge = parse("tag=product-7&path=/a%3Fb=1&tag=shop").unwrap();
        assert_eq!(purge.tags, ["product-7", "shop"]);
        assert_eq!(purge.targets, ["/a?b=1"]);
        assert!(!purge.all && parse("all=true").unwrap().all);
        for (query, problem) in [
            ("", "write what to purge"),
            ("tag=", "is not a tag"),
            ("tag=a%20b", "is not a tag"),
            ("path=a", "is not a path"),
            ("all=yes", "write all=true"),
            ("tags=a", "`tags` is not known"),
        ] {
            let told = parse(query).unwrap_err();
            assert!(told.contains(problem), "{query}: {told}");
        }
    }
}
