//! Converts messages from JSON and to JSON by the rules of protobuf.

use std::io::Write;

use bytes::{BufMut, Bytes};
use fanin_config::{FieldNames, Int64};
use fanin_json::{Doc, Kind};
use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;
use prost_reflect::{DynamicMessage, MessageDescriptor, SerializeOptions};

use super::PREFIX;
use super::method::Method;
use super::shape::{Shape, find_mismatch};
use crate::error::{ErrorKind, Failure};

/// Deepest nesting of a request's JSON.
const DEEPEST: usize = 1000;

/// The body of a request: each message with its prefix (one byte for whether it is compressed, four for its length). `gzip`: messages are
/// compressed.
///
/// # Errors
/// Which field of the message does not fit.
pub(crate) fn encode(method: &Method, json: &Bytes, gzip: bool) -> Result<Bytes, String> {
    let mut out = Vec::with_capacity(json.len() + 8);
    if !method.is_client_streaming() {
        one(method.input(), json, gzip, &mut out)?;
        return Ok(out.into());
    }
    let doc = Doc::parse(json.clone(), DEEPEST).map_err(|error| error.to_string())?;
    if doc.root().kind() != Kind::Array {
        return Err("takes a stream of messages: give it a list of them".to_owned());
    }
    for (at, message) in doc.root().elements().enumerate() {
        one(method.input(), message.raw(), gzip, &mut out).map_err(|what| format!("message {at}: {what}"))?;
    }
    Ok(out.into())
}

fn one(of: &MessageDescriptor, json: &[u8], gzip: bool, out: &mut Vec<u8>) -> Result<(), String> {
    let message = parse_message(of, json)?;
    let at = out.len();
    out.put_u8(gzip.into());
    out.put_u32(0);
    // A vector always has room.
    match gzip {
        false => message.encode(&mut *out).map_err(|error| error.to_string())?,
        true => {
            let mut encoder = GzEncoder::new(&mut *out, Compression::fast());
            encoder.write_all(&message.encode_to_vec()).map_err(|error| error.to_string())?;
            encoder.finish().map_err(|error| error.to_string())?;
        }
    }
    let length = u32::try_from(out.len() - at - PREFIX).map_err(|_| "is too large to be sent".to_owned())?;
    out[at + 1..at + PREFIX].copy_from_slice(&length.to_be_bytes());
    Ok(())
}

/// A message from JSON.
///
/// # Errors
/// Which field does not fit.
pub(super) fn parse_message(of: &MessageDescriptor, json: &[u8]) -> Result<DynamicMessage, String> {
    let mut from = serde_json::Deserializer::from_slice(json);
    DynamicMessage::deserialize(of.clone(), &mut from).map_err(|error| explain(of, json, &error))
}

/// How messages are written as JSON. Fields with their default are written: a key that is sometimes absent would be an error in a flow
/// that reads it.
pub(super) fn shown(int64: Int64, field_names: FieldNames) -> SerializeOptions {
    SerializeOptions::new()
        .skip_default_fields(false)
        .stringify_64_bit_integers(int64 == Int64::String)
        .use_proto_field_name(field_names == FieldNames::Proto)
}

/// Names the field that does not fit. If only the conversion knows it, its own text is used.
#[cold]
fn explain(of: &MessageDescriptor, json: &[u8], error: &serde_json::Error) -> String {
    let found =
        serde_json::from_slice(json).ok().and_then(|value: serde_json::Value| find_mismatch(of, &Shape::from(&value)));
    match found {
        Some(found) => match found.hint {
            Some(hint) => format!("{} ({hint})", found.message),
            None => found.message,
        },
        None => {
            let text = error.to_string();
            // Line and column would be of JSON that nobody has written.
            let text = text.rsplit_once(" at line ").map_or(text.as_str(), |(text, _)| text);
            format!("does not fit {}: {text}", of.full_name())
        }
    }
}

/// The messages of an answer as JSON: a single one, or a list.
///
/// # Errors
/// The wrong number of messages, an invalid one, or more than `max_bytes` of JSON.
pub(crate) fn decode(
    method: &Method,
    messages: Vec<Bytes>,
    shown: &SerializeOptions,
    max_bytes: usize,
) -> Result<Bytes, Failure> {
    let list = method.is_server_streaming();
    match messages.len() {
        0 if !list => {
            return Err(Failure::new(ErrorKind::Protocol, "success without a message"));
        }
        2.. if !list => {
            return Err(Failure::new(ErrorKind::Protocol, "several messages from a method that returns one"));
        }
        _ => {}
    }
    let mut json = Vec::with_capacity(messages.iter().map(Bytes::len).sum::<usize>() * 2);
    if list {
        json.push(b'[');
    }
    for (at, message) in messages.into_iter().enumerate() {
        if at > 0 {
            json.push(b',');
        }
        write_json(method.output(), message, shown, max_bytes, &mut json)?;
    }
    if list {
        json.push(b']');
    }
    Ok(json.into())
}

/// One message of an answer as JSON.
///
/// # Errors
/// An invalid message, or more than `max_bytes` of JSON.
pub(crate) fn decode_one(
    method: &Method,
    message: Bytes,
    shown: &SerializeOptions,
    max_bytes: usize,
) -> Result<Bytes, Failure> {
    let mut json = Vec::with_capacity(message.len() * 2);
    write_json(method.output(), message, shown, max_bytes, &mut json)?;
    Ok(json.into())
}

fn write_json(
    of: &MessageDescriptor,
    message: Bytes,
    shown: &SerializeOptions,
    max_bytes: usize,
    json: &mut Vec<u8>,
) -> Result<(), Failure> {
    let decoded = DynamicMessage::decode(of.clone(), message).map_err(|error| {
        Failure::new(ErrorKind::Decode, format!("the answer is not a valid {}: {error}", of.full_name()))
    })?;
    decoded.serialize_with_options(&mut serde_json::Serializer::new(&mut *json), shown).map_err(|error| {
        Failure::new(ErrorKind::Decode, format!("a {} cannot be written as JSON: {error}", of.full_name()))
    })?;
    if json.len() > max_bytes {
        let detail = format!("the answer as JSON has more than {max_bytes} bytes (max_answer)");
        return Err(Failure::new(ErrorKind::TooLarge, detail));
    }
    Ok(())
}
