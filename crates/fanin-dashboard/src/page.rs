//! The page, put together from its parts.

use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

const HTML: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/style.css");

/// In the order in which they run, as one script.
const SCRIPTS: [&str; 6] = [
    include_str!("page/units.js"),
    include_str!("page/charts.js"),
    include_str!("page/tables.js"),
    include_str!("page/requests.js"),
    include_str!("page/plan.js"),
    include_str!("page/main.js"),
];

/// The page and the policy that it needs.
#[derive(Debug)]
pub struct Page {
    /// The document. It asks for nothing but data of this server.
    pub html: String,
    /// Its `Content-Security-Policy`: exactly its own style and script, and requests to its own server.
    pub policy: String,
}

/// The page.
pub fn page() -> &'static Page {
    static PAGE: LazyLock<Page> = LazyLock::new(|| {
        let script = format!("\"use strict\";\n(() => {{\n{}\n}})();\n", SCRIPTS.join("\n"));
        let hash = |text: &str| STANDARD.encode(Sha256::digest(text));
        let policy = format!(
            "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; connect-src 'self'; img-src data:; \
             base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
            hash(&script),
            hash(STYLE)
        );
        Page { html: HTML.replace("/*STYLE*/", STYLE).replace("/*SCRIPT*/", &script), policy }
    });
    &PAGE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_small_and_needs_nothing_from_outside() {
        let page = page();
        assert!(page.html.len() < 200 << 10, "{} bytes", page.html.len());
        assert!(!page.html.contains("/*STYLE*/") && !page.html.contains("/*SCRIPT*/"));
        for outside in ["src=", "@import", "url(", "https://", "<link rel=\"stylesheet\""] {
            assert!(!page.html.contains(outside), "{outside}");
        }
        assert_eq!(page.html.matches("</script>").count(), 1);
        assert_eq!(page.html.matches("</style>").count(), 1);
    }
}
