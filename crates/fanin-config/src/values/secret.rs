//! Masking of secrets: `/config` shows `***` in their place.

use http::HeaderName;
use url::Url;

/// Shown in place of a secret.
pub const MASK: &str = "***";

/// A header whose name contains one of these holds a secret.
const SECRET: [&str; 8] = ["auth", "cookie", "api-key", "apikey", "token", "secret", "password", "credential"];

/// Whether the name of a header tells that its value is a secret.
pub(crate) fn is_secret(name: &HeaderName) -> bool {
    SECRET.iter().any(|part| name.as_str().contains(part))
}

/// A URL with the user and password masked.
pub(crate) fn masked_url(url: &Url) -> String {
    if url.username().is_empty() && url.password().is_none() {
        return url.to_string();
    }
    let mut url = url.clone();
    // Both fail only for URLs that have no host; such a URL has no user either.
    let _ = url.set_username(MASK);
    let _ = url.set_password(None);
    url.to_string()
}
