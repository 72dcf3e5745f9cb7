//! `[compression]`: which responses are compressed, and how.

use std::fmt;

use schemars::{JsonSchema, json_schema};
use serde::Serialize;

use crate::reader::{Table, TableOrWord};
use crate::schema::types::{self, leaf};
use crate::values::serialize;

leaf!(
    /// `"application/json"`, `"text/*"` or `"application/*+json"`.
    MediaTypeText,
    json_schema!({ "type": "string", "pattern": r"^[^/;\s]+/[^/;\s]+$|\$\{", "x-type": "media type" })
);

/// `[compression]`: responses are sent with `Content-Encoding` to clients that accept it. A route can have its own `compression`, which
/// replaces all of this. Without the section, responses are sent as they are.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Compression {
    /// Level of zstd: 1 is fast, 9 makes small bodies. Clients that accept several encodings alike get this one first. `"off"`: never.
    #[serde(serialize_with = "serialize::level_or_off")]
    #[schemars(with = "types::Or<types::Count<1, 9>, types::Off>")]
    pub zstd: Option<u8>,
    /// Level of brotli: 1 is fast, 6 makes small bodies. `"off"`: never.
    #[serde(serialize_with = "serialize::level_or_off")]
    #[schemars(with = "types::Or<types::Count<1, 6>, types::Off>")]
    pub brotli: Option<u8>,
    /// Level of gzip: 1 is fast, 9 makes small bodies. `"off"`: never.
    #[serde(serialize_with = "serialize::level_or_off")]
    #[schemars(with = "types::Or<types::Count<1, 9>, types::Off>")]
    pub gzip: Option<u8>,
    /// Smallest body that is compressed. A body that is made while it is sent has no known size, and is compressed in any case.
    #[serde(serialize_with = "serialize::size")]
    #[schemars(with = "types::Size<0>")]
    pub min_size: usize,
    /// Media types that are compressed. `*` stands for any subtype, `*+json` for any that ends so. `text/event-stream` is not in `text/*`:
    /// name it where streams of events shall be compressed, which costs memory for each client.
    #[serde(serialize_with = "serialize::list")]
    #[schemars(with = "Vec<MediaTypeText>")]
    pub types: Vec<MediaType>,
    /// Most responses on each worker that are compressed while they are sent: streams, and bodies above 32 KiB. Further ones are sent as
    /// they are. Each takes up to a megabyte.
    #[schemars(with = "types::Count<0, 100000>")]
    pub max_streams: usize,
}

/// A media type, or several that are named together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediaType {
    /// `application`.
    main: Box<str>,
    /// `json`, or what follows the `*`.
    sub: Box<str>,
    /// The subtype begins with `*`.
    is_open: bool,
}

/// Long streams, most of all: `text/*` leaves it out.
const EVENT_STREAM: (&str, &str) = ("text", "event-stream");

impl MediaType {
    fn new(main: &str, sub: &str) -> MediaType {
        let (sub, is_open) = sub.strip_prefix('*').map_or((sub, false), |end| (end, true));
        MediaType { main: main.into(), sub: sub.into(), is_open }
    }

    fn parse(text: &str) -> Result<MediaType, String> {
        let lower = text.to_ascii_lowercase();
        let is_token = |part: &str| {
            !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&byte))
        };
        let parsed = lower.split_once('/').filter(|(main, sub)| {
            let end = sub.strip_prefix('*');
            is_token(main) && end.map_or_else(|| is_token(sub), |end| end.is_empty() || is_token(end))
        });
        match parsed {
            Some((main, sub)) => Ok(MediaType::new(main, sub)),
            None => Err(format!("`{text}` is not a media type such as \"application/json\" or \"text/*\"")),
        }
    }

    /// Whether the value of a `Content-Type` is among them.
    pub fn matches(&self, content_type: &str) -> bool {
        let essence = content_type.split(';').next().unwrap_or("").trim();
        let Some((main, sub)) = essence.split_once('/') else { return false };
        if !main.eq_ignore_ascii_case(&self.main) {
            return false;
        }
        if !self.is_open {
            return sub.eq_ignore_ascii_case(&self.sub);
        }
        let begin = sub.len().checked_sub(self.sub.len());
        let is_event_stream = main.eq_ignore_ascii_case(EVENT_STREAM.0) && sub.eq_ignore_ascii_case(EVENT_STREAM.1);
        begin.and_then(|begin| sub.get(begin..)).is_some_and(|end| end.eq_ignore_ascii_case(&self.sub))
            && !is_event_stream
    }
}

impl fmt::Display for MediaType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}{}", self.main, if self.is_open { "*" } else { "" }, self.sub)
    }
}

impl Default for Compression {
    fn default() -> Compression {
        let types = [
            ("text", "*"),
            ("application", "json"),
            ("application", "*+json"),
            ("application", "jsonl"),
            ("application", "x-ndjson"),
            ("application", "xml"),
            ("application", "*+xml"),
            ("application", "javascript"),
            ("application", "wasm"),
            ("image", "svg+xml"),
        ];
        Compression {
            zstd: Some(3),
            brotli: Some(5),
            gzip: Some(6),
            min_size: 1 << 10,
            types: types.into_iter().map(|(main, sub)| MediaType::new(main, sub)).collect(),
            max_streams: 64,
        }
    }
}

impl Compression {
    /// Reads `[compression]`, or `compression` of a route.
    pub(crate) fn read(mut table: Table<'_, '_>) -> Compression {
        let default = Compression::default();
        let mut level = |key, max, default| table.level_or_off(key, 1..=max).unwrap_or(default);
        let (zstd, brotli, gzip) =
            (level("zstd", 9, default.zstd), level("brotli", 6, default.brotli), level("gzip", 9, default.gzip));
        if zstd.or(brotli).or(gzip).is_none() {
            table.error("gzip", "every encoding is off; to compress nothing, remove the table");
        }
        let types = table.list("types", "a media type such as \"text/*\"", false, MediaType::parse);
        let compression = Compression {
            zstd,
            brotli,
            gzip,
            min_size: table.size("min_size", 0).unwrap_or(default.min_size),
            types: types.map_or(default.types, |list| list.into_iter().map(|at| at.value).collect()),
            max_streams: table.count("max_streams", 0..=100_000).unwrap_or(default.max_streams),
        };
        table.finish();
        compression
    }

    /// Reads `compression` of a route. `default` is that of the file.
    pub(crate) fn of_route(table: &mut Table<'_, '_>, default: Option<&Compression>) -> Option<Compression> {
        match table.table_or_word("compression", "a table such as { gzip = 6 }, or \"off\"", "off") {
            TableOrWord::Absent => default.cloned(),
            TableOrWord::Word => None,
            TableOrWord::Table(table) => Some(Compression::read(table)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn media_types_match_without_their_parameters() {
        for (pattern, content_type, matches) in [
            ("application/json", "application/json", true),
            ("application/json", "Application/JSON; charset=utf-8", true),
            ("application/json", "application/jsonl", false),
            ("application/*+json", "application/problem+json", true),
            ("application/*+json", "application/json", false),
            ("text/*", "text/html", true),
            ("text/*", "text/event-stream", false),
            ("text/event-stream", "text/event-stream; charset=utf-8", true),
            ("text/*", "application/text", false),
            ("text/*", "text", false),
            ("application/*+json", "application/é", false),
        ] {
            assert_eq!(MediaType::parse(pattern).unwrap().matches(content_type), matches, "{pattern} {content_type}");
            assert_eq!(MediaType::parse(pattern).unwrap().to_string(), pattern);
        }
        for text in ["", "json", "a/", "/b", "a/b/c", "text/html; charset=utf-8", "te xt/html", "text/**"] {
            assert!(MediaType::parse(text).is_err(), "{text}");
        }
    }
}
