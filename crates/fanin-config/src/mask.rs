//! Secrets never leave the process: `/config` shows this instead of them.

use http::HeaderName;
use serde_json::Value;
use url::Url;

use crate::{Config, backend};

/// What stands in place of a secret.
pub const MASK: &str = "***";

/// Parts of header names whose values are secrets.
const SECRET: [&str; 8] = ["auth", "cookie", "api-key", "apikey", "token", "secret", "password", "credential"];

/// Whether a header's value is a secret by its name.
pub(crate) fn is_secret(name: &HeaderName) -> bool {
    SECRET.iter().any(|part| name.as_str().contains(part))
}

/// A URL with the user and password masked.
pub(crate) fn url(url: &Url) -> String {
    if url.username().is_empty() && url.password().is_none() {
        return url.to_string();
    }
    let mut url = url.clone();
    // Both fail only for URLs that have no host; such a URL has no user either.
    let _ = url.set_username(MASK);
    let _ = url.set_password(None);
    url.to_string()
}

impl Config {
    /// The whole configuration as a JSON value in the shape of the file, every default filled in, for `/config`.
    ///
    /// Masked are: users and passwords in URLs, and values of headers that carry secrets by their name or that were taken
    /// from the environment. Private keys appear by their file's path only.
    pub fn masked(&self) -> Value {
        // Every type here serialises to strings, numbers, lists and tables with text keys, which can't fail.
        let mut value = serde_json::to_value(self).unwrap_or(Value::Null);
        for (name, upstream) in &self.upstreams {
            if let Some(keys) = value["upstreams"][name.as_str()].as_object_mut() {
                keys.retain(|key, _| backend::has(upstream.kind(), key));
            }
        }
        value
    }
}
