//! Holds the conversions against the library's, for [`crate::fuzzing`] and the tests.

use std::sync::OnceLock;

use bytes::Bytes;
use fanin_config::{FieldNames, Int64};
use fanin_json::Doc;
use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor};
use protox::Compiler;
use protox::file::{ChainFileResolver, File, FileResolver, GoogleFileResolver};

use super::super::message::{parse_message, shown};
use super::{Layouts, Style};

const NAME: &str = "all.proto";
/// The first byte of an input chooses one.
const MESSAGES: [&str; 3] = ["t.All", "t.Inner", "t.Rare"];
const STYLE: Style = Style { int64: Int64::String, field_names: FieldNames::Json };

struct Source;

impl FileResolver for Source {
    fn open_file(&self, name: &str) -> Result<File, protox::Error> {
        match name {
            NAME => File::from_source(NAME, include_str!("all.proto")),
            other => Err(protox::Error::file_not_found(other)),
        }
    }
}

/// The messages of `all.proto`.
///
/// # Panics
/// If it is not valid.
pub(in crate::grpc) fn pool() -> DescriptorPool {
    let mut resolver = ChainFileResolver::new();
    resolver.add(Source);
    resolver.add(GoogleFileResolver::new());
    let mut compiler = Compiler::with_file_resolver(resolver);
    match compiler.open_file(NAME) {
        Ok(compiler) => compiler.descriptor_pool(),
        Err(error) => panic!("{error}"),
    }
}

/// What the library makes of a message.
///
/// # Panics
/// If it cannot.
pub(super) fn library(message: &DynamicMessage, style: Style) -> Vec<u8> {
    let mut json = Vec::new();
    let options = shown(style.int64, style.field_names);
    if let Err(error) = message.serialize_with_options(&mut serde_json::Serializer::new(&mut json), &options) {
        panic!("{error}");
    }
    json
}

/// The message that is valid JSON, behind a byte that was there before.
pub(super) fn back(layouts: &Layouts, of: &MessageDescriptor, json: &[u8]) -> Option<Vec<u8>> {
    let doc = Doc::parse_indexed(Bytes::copy_from_slice(json), 1000).ok()?;
    let mut out = vec![9];
    layouts.append_message(of, doc.root(), &mut out)?;
    Some(out.split_off(1))
}

/// Converts bytes as a message to JSON, and bytes as JSON to a message. Whether one of the conversions took them.
///
/// # Panics
/// If it differs from the library's.
pub fn transcode(bytes: &[u8]) -> bool {
    static ALL: OnceLock<(Layouts, Vec<MessageDescriptor>)> = OnceLock::new();
    let (layouts, messages) = ALL.get_or_init(|| {
        let pool = pool();
        let messages: Vec<_> = MESSAGES.iter().filter_map(|name| pool.get_message_by_name(name)).collect();
        (Layouts::new(messages.iter().cloned(), STYLE), messages)
    });
    let Some((which, bytes)) = bytes.split_first() else { return false };
    let of = &messages[usize::from(*which) % messages.len()];
    let json = layouts.to_json(of, bytes);
    if let Some(json) = &json {
        match DynamicMessage::decode(of.clone(), bytes) {
            Ok(message) => {
                let expected = library(&message, STYLE);
                assert_eq!(String::from_utf8_lossy(json), String::from_utf8_lossy(&expected));
            }
            Err(error) => panic!("the library refuses the message: {error}"),
        }
    }
    let wire = back(layouts, of, bytes);
    if let Some(wire) = &wire {
        // Of two values of one key the last one counts, as in flows. The library also checks the others.
        let last: serde_json::Result<serde_json::Value> = serde_json::from_slice(bytes);
        match parse_message(of, last.map(|json| json.to_string()).unwrap_or_default().as_bytes()) {
            Ok(message) if is_exact(bytes) => assert_eq!(wire, &message.encode_to_vec()),
            Ok(_) => {}
            Err(error) => panic!("the library refuses the JSON: {error}"),
        }
    }
    json.is_some() || wire.is_some()
}

/// Whether no number has so many digits, or a fraction or an exponent, that the library may read it less exactly than it is written.
fn is_exact(json: &[u8]) -> bool {
    let fraction = json.windows(2).any(|two| two[0].is_ascii_digit() && matches!(two[1], b'.' | b'e' | b'E'));
    !fraction && !json.split(|byte| !byte.is_ascii_digit()).any(|digits| digits.len() > 15)
}
