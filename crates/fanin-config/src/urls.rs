//! URLs of endpoints, as they stand in an upstream's table.

use url::Url;

use crate::read::At;
use crate::table::Table;

/// The URLs of an upstream over HTTP, under `url` or `urls`.
pub(crate) fn read_urls(table: &mut Table<'_, '_>) -> Vec<Url> {
    let one = table.parsed("url", "a URL such as \"http://host:8080\"", read_url);
    endpoints(table, "urls", one)
}

/// The URLs of `key`, one or a list, after `first`.
pub(crate) fn endpoints(table: &mut Table<'_, '_>, key: &'static str, first: Option<At<Url>>) -> Vec<Url> {
    let many = table.list(key, "a URL such as \"http://host:8080\"", true, read_url);
    if many.as_ref().is_some_and(Vec::is_empty) && table.is_empty_list(key) {
        table.error(key, "is empty; an upstream needs at least one endpoint");
    }
    let mut urls: Vec<Url> = Vec::new();
    for url in first.into_iter().chain(many.into_iter().flatten()) {
        if urls.contains(&url.value) {
            table.reader().error(&url.span, format!("{}: the endpoint {} is there twice", table.name(), url.value));
        } else {
            urls.push(url.value);
        }
    }
    urls
}

fn read_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| format!("`{text}` is not a URL: {error}"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!("`{}` is not a scheme for an upstream; use http or https", url.scheme()));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("a URL must not hold a user or password; set headers.authorization instead".into());
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(format!("`{text}` has a query or fragment; a base URL ends with its path"));
    }
    Ok(url)
}
