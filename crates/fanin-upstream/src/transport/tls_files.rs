//! Whether the files of `[upstreams.NAME.tls]` have changed while their paths stayed the same, as when a certificate is renewed.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

use fanin_config::ClientTls;

/// Hash of the files' contents. A file that cannot be read counts as changed content; reading it again names the error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TlsFiles(u64);

impl TlsFiles {
    /// Reads the files that the settings name.
    pub fn of(settings: Option<&ClientTls>) -> TlsFiles {
        let mut hasher = DefaultHasher::new();
        if let Some(ClientTls { ca, cert, key, server_name: _, min_version: _ }) = settings {
            for file in [ca, cert, key] {
                file.as_deref().map(read).hash(&mut hasher);
            }
        }
        TlsFiles(hasher.finish())
    }
}

fn read(file: &Path) -> Option<Vec<u8>> {
    std::fs::read(file).ok()
}
