//! Methods that this process serves: their messages to JSON and back.

use bytes::Bytes;
use fanin_json::{Doc, Kind, Node};
use prost::Message;
use prost_reflect::{DynamicMessage, SerializeOptions};

use super::describe;
use super::message::{parse_message, shown};
use super::method::{Method, Methods};
use super::transcode::{Layouts, Style};

/// Deepest nesting of a list of messages.
const DEEPEST: usize = 1000;

/// The methods of the services that `[grpc]` describes.
#[derive(Debug)]
pub struct Served {
    methods: Methods,
    layouts: Layouts,
    shown: SerializeOptions,
}

impl Served {
    /// Reads the descriptions.
    ///
    /// # Errors
    /// The key of `[grpc]` and what is wrong with it.
    pub fn load(config: &fanin_config::Grpc) -> Result<Served, (&'static str, String)> {
        let described = describe::files(config.descriptors.as_deref(), &config.proto, &config.proto_path)?;
        let methods = Methods::new(described.pool.services(), &[]);
        if methods.by_name.is_empty() {
            return Err((described.key, "describes no method of any service".to_owned()));
        }
        let messages = methods.by_name.values().flat_map(|method| [method.input().clone(), method.output().clone()]);
        let layouts = Layouts::new(messages, Style { int64: config.int64, field_names: config.field_names });
        Ok(Served { methods, layouts, shown: shown(config.int64, config.field_names) })
    }

    /// The method with that full name, `package.Service/Method`.
    ///
    /// # Errors
    /// What is wrong with the name, or why the method cannot be served.
    pub fn find(&self, full: &str) -> Result<&Method, String> {
        let Some(method) = self.methods.get(full) else {
            let (message, hint) = self.methods.unknown_method(full);
            return Err(hint.map_or_else(|| message.clone(), |hint| format!("{message}; {hint}")));
        };
        if method.is_client_streaming() {
            return Err(format!("{full} takes a stream of messages; a flow serves methods that take one"));
        }
        Ok(method)
    }

    /// A request's message as JSON.
    ///
    /// # Errors
    /// If it is not a valid message.
    pub fn request(&self, method: &Method, message: Bytes) -> Result<Bytes, String> {
        let of = method.input();
        if let Some(json) = self.layouts.to_json(of, &message) {
            return Ok(json);
        }
        let invalid = |error: &dyn std::fmt::Display| format!("the message is not a valid {}: {error}", of.full_name());
        let decoded = DynamicMessage::decode(of.clone(), message).map_err(|error| invalid(&error))?;
        let mut json = Vec::new();
        decoded
            .serialize_with_options(&mut serde_json::Serializer::new(&mut json), &self.shown)
            .map_err(|error| invalid(&error))?;
        Ok(json.into())
    }

    /// One message of a stream, with its prefix.
    ///
    /// # Errors
    /// Which field does not fit.
    pub fn message(&self, method: &Method, json: Bytes) -> Result<Bytes, String> {
        let doc = Doc::parse_indexed(json, DEEPEST).map_err(|error| error.to_string())?;
        self.framed(method, doc.root())
    }

    /// What a flow returned as messages, each with its prefix: one, or those of a list if the method returns a stream.
    ///
    /// # Errors
    /// Which field does not fit.
    pub fn response(&self, method: &Method, json: &Bytes) -> Result<Vec<Bytes>, String> {
        let doc = Doc::parse_indexed(json.clone(), DEEPEST).map_err(|error| error.to_string())?;
        if !method.is_server_streaming() {
            return Ok(vec![self.framed(method, doc.root())?]);
        }
        if doc.root().kind() != Kind::Array {
            return Err("the method returns a stream: the flow must return a list of messages".to_owned());
        }
        let messages = doc.root().elements().enumerate();
        messages.map(|(at, one)| self.framed(method, one).map_err(|what| format!("message {at}: {what}"))).collect()
    }

    /// A message with its prefix: not compressed, and its length.
    fn framed(&self, method: &Method, json: Node<'_>) -> Result<Bytes, String> {
        let mut out = Vec::with_capacity(super::PREFIX + json.raw().len());
        out.resize(super::PREFIX, 0);
        if self.layouts.append_message(method.output(), json, &mut out).is_none() {
            out.truncate(super::PREFIX);
            // A vector always has room.
            parse_message(method.output(), json.raw())?.encode(&mut out).map_err(|error| error.to_string())?;
        }
        let length = u32::try_from(out.len() - super::PREFIX).map_err(|_| "is too large to be sent".to_owned())?;
        out[1..super::PREFIX].copy_from_slice(&length.to_be_bytes());
        Ok(out.into())
    }
}
