//! Methods that this process serves: their messages to JSON and back.

use bytes::Bytes;
use fanin_json::{Doc, Kind, Node};
use prost::Message;
use prost_reflect::{DescriptorPool, DeserializeOptions, DynamicMessage, MessageDescriptor, SerializeOptions};

use super::describe;
use super::message::{parse_message, shown};
use super::method::{Method, Methods};
use super::transcode::{Layouts, Style};
use super::wrong_field;

/// Deepest nesting of a list of messages.
const DEEPEST: usize = 1000;

/// The form of messages on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Protobuf.
    Binary,
    /// JSON, by the mapping of protobuf.
    Json,
}

/// The methods of the services that `[grpc]` describes.
#[derive(Debug)]
pub struct Served {
    methods: Methods,
    layouts: Layouts,
    shown: SerializeOptions,
    pool: DescriptorPool,
}

impl Served {
    /// Reads the descriptions.
    ///
    /// # Errors
    /// The key of `[grpc]` and what is wrong with it.
    pub fn load(config: &fanin_config::Grpc) -> Result<Served, (&'static str, String)> {
        let described = describe::files(config.descriptors.as_deref(), &config.proto, &config.proto_path)?;
        let served = Served::new(described.pool, Style { int64: config.int64, field_names: config.field_names });
        if served.methods.by_name.is_empty() {
            return Err((described.key, "describes no method of any service".to_owned()));
        }
        Ok(served)
    }

    /// The methods that a set of descriptors has, with messages by their default mapping.
    ///
    /// # Errors
    /// If it is no such set.
    pub fn decode(set: &[u8]) -> Result<Served, String> {
        let pool = DescriptorPool::decode(set).map_err(|error| error.to_string())?;
        Ok(Served::new(pool, Style::default()))
    }

    fn new(mut pool: DescriptorPool, style: Style) -> Served {
        // The details of errors are of this type, whether or not a message of the services has it.
        let any = DescriptorPool::global().get_file_by_name("google/protobuf/any.proto");
        if let (Some(any), None) = (any, pool.get_message_by_name(ANY)) {
            // It has no imports. If the pool has another file of this name, details stay without it.
            let _ = pool.add_file_descriptor_proto(any.file_descriptor_proto().clone());
        }
        let methods = Methods::new(pool.services(), &[]);
        let messages = methods.by_name.values().flat_map(|method| [method.input().clone(), method.output().clone()]);
        let layouts = Layouts::new(messages, style);
        Served { methods, layouts, shown: shown(style.int64, style.field_names), pool }
    }

    /// The descriptions, as a `FileDescriptorSet`.
    pub fn descriptors(&self) -> Vec<u8> {
        self.pool.encode_to_vec()
    }

    /// The method with that full name, `package.Service/Method`.
    ///
    /// # Errors
    /// What is wrong with the name.
    pub fn find(&self, full: &str) -> Result<&Method, String> {
        self.methods.get(full).ok_or_else(|| {
            let (message, hint) = self.methods.unknown_method(full);
            hint.map_or_else(|| message.clone(), |hint| format!("{message}; {hint}"))
        })
    }

    /// A request's messages as JSON: the only one, or a list of all if the method takes a stream.
    ///
    /// # Errors
    /// If one is not valid: which field, with its path, and why.
    pub fn request(&self, method: &Method, messages: &[Bytes], form: Form) -> Result<Bytes, String> {
        let mut json = Vec::new();
        if !method.is_client_streaming() {
            let only = messages.first().cloned().unwrap_or_default();
            if form == Form::Binary
                && let Some(json) = self.layouts.to_json(method.input(), &only)
            {
                return Ok(json);
            }
            self.show(method.input(), only, form, &mut json)?;
            return Ok(json.into());
        }
        json.push(b'[');
        for (at, message) in messages.iter().enumerate() {
            if at > 0 {
                json.push(b',');
            }
            if form == Form::Binary
                && let Some(shown) = self.layouts.to_json(method.input(), message)
            {
                json.extend_from_slice(&shown);
                continue;
            }
            self.show(method.input(), message.clone(), form, &mut json)
                .map_err(|what| format!("message {at}: {what}"))?;
        }
        json.push(b']');
        Ok(json.into())
    }

    fn show(&self, of: &MessageDescriptor, message: Bytes, form: Form, json: &mut Vec<u8>) -> Result<(), String> {
        let invalid = |error: &dyn std::fmt::Display| format!("the message is not a valid {}: {error}", of.full_name());
        let invalid_at = |path: Option<String>, error: &dyn std::fmt::Display| match path {
            Some(path) => invalid(&format_args!("{path}: {error}")),
            None => invalid(error),
        };
        let decoded = match form {
            Form::Binary => DynamicMessage::decode(of.clone(), message.clone())
                .map_err(|error| invalid_at(wrong_field::in_bytes(of, &message), &error))?,
            Form::Json => {
                let mut from = serde_json::Deserializer::from_slice(&message);
                // A client may know more fields than the server, as with protobuf.
                let options = DeserializeOptions::new().deny_unknown_fields(false);
                let decoded = DynamicMessage::deserialize_with_options(of.clone(), &mut from, &options);
                let decoded =
                    decoded.map_err(|error| invalid_at(wrong_field::in_json(of, &message, &options), &error))?;
                from.end().map_err(|error| invalid(&error))?;
                decoded
            }
        };
        decoded
            .serialize_with_options(&mut serde_json::Serializer::new(json), &self.shown)
            .map_err(|error| invalid(&error))
    }

    /// What a flow returned as messages: one, or those of a list if the method returns a stream.
    ///
    /// # Errors
    /// Which field does not fit.
    pub fn response(&self, method: &Method, json: &Bytes, form: Form) -> Result<Vec<Bytes>, String> {
        let doc = Doc::parse_indexed(json.clone(), DEEPEST).map_err(|error| error.to_string())?;
        if !method.is_server_streaming() {
            return Ok(vec![self.made(method, doc.root(), form)?]);
        }
        if doc.root().kind() != Kind::Array {
            return Err("the method returns a stream: the flow must return a list of messages".to_owned());
        }
        let messages = doc.root().elements().enumerate();
        let one = |(at, one)| self.made(method, one, form).map_err(|what| format!("message {at}: {what}"));
        messages.map(one).collect()
    }

    /// One message of a response.
    ///
    /// # Errors
    /// Which field does not fit.
    pub fn message(&self, method: &Method, json: Bytes, form: Form) -> Result<Bytes, String> {
        let doc = Doc::parse_indexed(json, DEEPEST).map_err(|error| error.to_string())?;
        self.made(method, doc.root(), form)
    }

    fn made(&self, method: &Method, json: Node<'_>, form: Form) -> Result<Bytes, String> {
        if form == Form::Binary {
            let mut out = Vec::with_capacity(json.raw().len());
            if self.layouts.append_message(method.output(), json, &mut out).is_some() {
                return Ok(out.into());
            }
        }
        let message = parse_message(method.output(), json.raw())?;
        match form {
            Form::Binary => Ok(message.encode_to_vec().into()),
            Form::Json => {
                let text = serde_json::to_vec(&message);
                text.map(Bytes::from).map_err(|error| format!("cannot be written as JSON: {error}"))
            }
        }
    }

    /// A detail of an error, from its JSON with `@type`: the full name of its type, and its bytes.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn detail(&self, json: &[u8]) -> Result<(String, Bytes), String> {
        let of = self.pool.get_message_by_name(ANY).ok_or("google.protobuf.Any is not described")?;
        let mut from = serde_json::Deserializer::from_slice(json);
        let any = DynamicMessage::deserialize(of, &mut from).map_err(|error| {
            let text = error.to_string();
            text.rsplit_once(" at line ").map_or(text.clone(), |(text, _)| text.to_owned())
        })?;
        let field = |number| any.get_field_by_number(number);
        let url = field(1).and_then(|url| url.as_str().map(str::to_owned)).unwrap_or_default();
        let value = field(2).and_then(|value| value.as_bytes().cloned()).unwrap_or_default();
        match url.rsplit_once('/') {
            Some((_, name)) if !name.is_empty() => Ok((name.to_owned(), value)),
            _ => Err("has no \"@type\" such as \"type.googleapis.com/package.Message\"".to_owned()),
        }
    }
}

const ANY: &str = "google.protobuf.Any";
