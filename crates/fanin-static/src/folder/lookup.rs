//! From the rest of a path to an open file. Blocks.
//!
//! No path leads outside: `cap-std` has the kernel resolve each path below the folder, so neither `..` nor a link escapes. The folder is
//! opened for each request, so that a folder that a deployment replaces is seen.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use cap_std::ambient_authority;
use cap_std::fs::{Dir, File, OpenOptions, OpenOptionsExt};
use fanin_server::preferred_encoding;
use http::{HeaderMap, HeaderValue};
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::parts;

/// Files up to this size are read when they are opened.
const SMALL: u64 = 64 << 10;

/// What a path names.
pub(super) enum Found {
    File(Box<Opened>),
    /// A folder, named without the slash at the end.
    Folder,
    Nothing,
    Failed(io::Error),
}

/// An open file, and what its response says of it.
pub(super) struct Opened {
    pub(super) file: Arc<File>,
    pub(super) size: u64,
    pub(super) modified: SystemTime,
    pub(super) tag: HeaderValue,
    pub(super) kind: HeaderValue,
    /// The encoding of a precompressed file.
    pub(super) coding: Option<&'static str>,
    /// Another client may get the file in another encoding.
    pub(super) has_variants: bool,
    /// All bytes of a small file.
    pub(super) whole: Option<Bytes>,
}

impl Opened {
    /// The time of the last change, which is never later than now.
    pub(super) fn modified_header(&self) -> HeaderValue {
        let shown = self.modified.min(SystemTime::now());
        // A date is ASCII.
        HeaderValue::try_from(httpdate::fmt_http_date(shown)).unwrap_or(HeaderValue::from_static(""))
    }
}

/// Opens what the rest of a path names. `accepted` has the client's `Accept-Encoding`.
pub(super) fn find(config: &fanin_config::Folder, file: &str, accepted: &HeaderMap) -> Found {
    if !is_public(file) {
        return Found::Nothing;
    }
    match find_in(config, file, accepted) {
        Ok(Found::Nothing) | Err(Missing::Nothing) => match fallback(config, file) {
            Some(name) => find_in(config, name, accepted).unwrap_or_else(Missing::found),
            None => Found::Nothing,
        },
        found => found.unwrap_or_else(Missing::found),
    }
}

/// Why there is no file.
enum Missing {
    Nothing,
    Failed(io::Error),
}

impl Missing {
    fn found(self) -> Found {
        match self {
            Missing::Nothing => Found::Nothing,
            Missing::Failed(error) => Found::Failed(error),
        }
    }
}

impl From<io::Error> for Missing {
    fn from(error: io::Error) -> Missing {
        let is_missing = matches!(
            error.kind(),
            ErrorKind::NotFound
                // `cap-std` reports a path that leads outside in this way.
                | ErrorKind::PermissionDenied
                | ErrorKind::NotADirectory
                | ErrorKind::IsADirectory
                | ErrorKind::InvalidInput
                | ErrorKind::InvalidFilename
        ) || error.raw_os_error() == Some(Errno::LOOP.raw_os_error());
        if is_missing { Missing::Nothing } else { Missing::Failed(error) }
    }
}

/// The file in place of one that is not there. A path that names a file by its ending means that file.
fn fallback<'c>(config: &'c fanin_config::Folder, file: &str) -> Option<&'c str> {
    let last = file.rsplit('/').next().unwrap_or_default();
    config.fallback.as_deref().filter(|_| !last.contains('.'))
}

/// Whether all parts of a path are names, and none of them hidden. `.well-known` is public by definition (RFC 8615).
fn is_public(file: &str) -> bool {
    let names = file.strip_suffix('/').unwrap_or(file);
    names.is_empty() && file.is_empty()
        || names.split('/').enumerate().all(|(at, name)| {
            let is_hidden = name.starts_with('.') && !(at == 0 && name == ".well-known");
            !name.is_empty() && !is_hidden && !name.contains(|char: char| char == '\\' || char.is_control())
        })
}

fn find_in(config: &fanin_config::Folder, file: &str, accepted: &HeaderMap) -> Result<Found, Missing> {
    // Without its folder, every request would look like one for a file that is not there.
    let root = Dir::open_ambient_dir(&config.path, ambient_authority()).map_err(Missing::Failed)?;
    let index = |folder: &str| config.index.as_ref().map(|index| format!("{folder}{index}"));
    if file.is_empty() || file.ends_with('/') {
        let Some(index) = index(file) else { return Ok(Found::Nothing) };
        return opened(config, &root, &index, accepted);
    }
    let found = open(&root, file)?;
    if !found.metadata()?.is_dir() {
        return opened(config, &root, file, accepted);
    }
    // A folder without an index is not there.
    let has_index = index(&format!("{file}/")).is_some_and(|index| root.metadata(index).is_ok_and(|it| it.is_file()));
    Ok(if has_index { Found::Folder } else { Found::Nothing })
}

fn open(root: &Dir, path: &str) -> io::Result<File> {
    let mut options = OpenOptions::new();
    // Otherwise a pipe without a writer would block the thread for ever.
    options.read(true).custom_flags(OFlags::NONBLOCK.bits() as i32);
    root.open_with(path, &options)
}

/// The file, or what was compressed of it before.
fn opened(config: &fanin_config::Folder, root: &Dir, path: &str, accepted: &HeaderMap) -> Result<Found, Missing> {
    let plain = open(root, path)?;
    if !plain.metadata()?.is_file() {
        return Ok(Found::Nothing);
    }
    let variant = |ending: &str| {
        let file = open(root, &format!("{path}{ending}")).ok()?;
        file.metadata().is_ok_and(|it| it.is_file()).then_some(file)
    };
    let (brotli, gzip) = if config.precompressed { (variant(".br"), variant(".gz")) } else { (None, None) };
    let has_variants = brotli.is_some() || gzip.is_some();
    let coding = preferred_encoding(accepted, brotli.is_some(), gzip.is_some());
    let chosen = match coding {
        Some("br") => brotli,
        Some(_) => gzip,
        None => None,
    };
    let file = chosen.unwrap_or(plain);
    let metadata = file.metadata()?;
    let (size, modified) = (metadata.len(), metadata.modified()?.into_std());
    let whole = if size <= SMALL { Some(parts::read(&file, 0..size)?) } else { None };
    Ok(Found::File(Box::new(Opened {
        tag: tag(size, modified, coding),
        kind: kind(path),
        file: Arc::new(file),
        size,
        modified,
        coding,
        has_variants,
        whole,
    })))
}

/// The strong tag of a file: when it was changed, to the nanosecond, and how long it is.
fn tag(size: u64, modified: SystemTime, coding: Option<&str>) -> HeaderValue {
    let changed = modified.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let coding = coding.map_or(String::new(), |coding| format!("-{coding}"));
    // Hexadecimal digits.
    HeaderValue::try_from(format!("\"{changed:x}-{size:x}{coding}\"")).unwrap_or(HeaderValue::from_static("\"\""))
}

/// The content type by the file's ending. Browsers take text for UTF-8 only if that is said.
fn kind(path: &str) -> HeaderValue {
    let guessed = mime_guess::from_path(Path::new(path)).first_raw().unwrap_or("application/octet-stream");
    let is_text = guessed.starts_with("text/") || matches!(guessed, "application/javascript" | "image/svg+xml");
    let text = if is_text { format!("{guessed}; charset=utf-8") } else { guessed.to_owned() };
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("application/octet-stream"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_and_odd_names_are_not_public() {
        for file in ["", "a", "a/", "a/b.css", ".well-known/acme-challenge/x", "a..b", "ü"] {
            assert!(is_public(file), "{file}");
        }
        for file in
            ["/", "//a", "a//b", ".git/config", "a/.env", "a/../b", "..", ".", "a/.well-known/x", "a\\b", "a\0", "a\nb"]
        {
            assert!(!is_public(file), "{file:?}");
        }
    }

    #[test]
    fn kinds_by_ending() {
        for (path, expected) in [
            ("a.html", "text/html; charset=utf-8"),
            ("a.CSS", "text/css; charset=utf-8"),
            ("a.js", "text/javascript; charset=utf-8"),
            ("a.svg", "image/svg+xml; charset=utf-8"),
            ("a.json", "application/json"),
            ("a.png", "image/png"),
            ("a.woff2", "font/woff2"),
            ("a.wasm", "application/wasm"),
            ("a", "application/octet-stream"),
        ] {
            assert_eq!(kind(path), expected, "{path}");
        }
    }
}
