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

/// The text of a file with `*` for each byte of passwords, and of users in URLs. All else stays at its place, so that lines can be
/// underlined.
pub(crate) fn masked_text(text: &str) -> String {
    let mut bytes = text.as_bytes().to_vec();
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        for (from, to) in secrets(line) {
            bytes[at + from..at + to].fill(b'*');
        }
        at += line.len();
    }
    // Whole characters were replaced: the borders are ASCII characters.
    String::from_utf8(bytes).unwrap_or_default()
}

/// From where to where there are secrets in a line.
fn secrets(line: &str) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    for (at, scheme) in line.match_indices("://") {
        let from = at + scheme.len();
        let rest = &line[from..];
        // A password that should have been percent-encoded may hold anything but a quote.
        let rest = &rest[..rest.find(['"', '\'']).unwrap_or(rest.len())];
        if let Some(host) = rest.rfind('@') {
            found.push((from, from + host));
        }
    }
    for (at, key) in line.match_indices("password") {
        let value = line[at + key.len()..].trim_start_matches(['"', '\'']).trim_start();
        let Some(value) = value.strip_prefix('=').map(str::trim_start) else { continue };
        let Some(quote) = value.chars().next().filter(|quote| matches!(quote, '"' | '\'')) else { continue };
        let from = line.len() - value.len() + 1;
        // Without the closing quote, to the end of the line.
        let end = line[from..].rfind(quote).unwrap_or(value.trim_end().len() - 1);
        let value = &line[from..from + end];
        // The name of a variable is no secret; its default may be one.
        let is_variable = value.starts_with("${") && value.ends_with('}') && !value.contains(":-");
        if !is_variable {
            found.push((from, from + end));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_in_a_file_are_masked_in_place() {
        for (line, masked) in [
            ("url = 'http://h/a'\nb = 1\n", "url = 'http://h/a'\nb = 1\n"),
            ("a = 1\nurl = \"redis://u:p/é@h\"\nb = 1", "a = 1\nurl = \"redis://******@h\"\nb = 1"),
            ("urls = ['http://u:p@h', 'http://t@h']", "urls = ['http://***@h', 'http://*@h']"),
            ("password = \"p\"", "password = \"*\""),
            ("\"broker_password\"='p\"w' # why", "\"broker_password\"='***' # why"),
            ("password = '${PASSWORD}'", "password = '${PASSWORD}'"),
            ("password = '${P:-x}'", "password = '*******'"),
            ("{ password = 'open", "{ password = '****"),
            ("password = 7\npassword\npassword = '", "password = 7\npassword\npassword = '"),
        ] {
            assert_eq!(masked_text(line), masked);
        }
    }
}
