//! Methods that this process serves: their messages to JSON and back.

use bytes::Bytes;
use fanin_json::{Doc, Kind};
use prost::Message;
use prost_reflect::{DynamicMessage, SerializeOptions};

use super::describe;
use super::message::{parse_message, shown};
use super::method::{Method, Methods};

/// Deepest nesting of a list of messages.
const DEEPEST: usize = 1000;

/// The methods of the services that `[grpc]` describes.
#[derive(Debug)]
pub struct Served {
    methods: Methods,
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
        Ok(Served { methods, shown: shown(config.int64, config.field_names) })
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
        let invalid = |error: &dyn std::fmt::Display| format!("the message is not a valid {}: {error}", of.full_name());
        let decoded = DynamicMessage::decode(of.clone(), message).map_err(|error| invalid(&error))?;
        let mut json = Vec::new();
        decoded
            .serialize_with_options(&mut serde_json::Serializer::new(&mut json), &self.shown)
            .map_err(|error| invalid(&error))?;
        Ok(json.into())
    }

    /// What a flow returned as messages, each with its prefix: one, or those of a list if the method returns a stream.
    ///
    /// # Errors
    /// Which field does not fit.
    pub fn response(&self, method: &Method, json: &Bytes) -> Result<Vec<Bytes>, String> {
        if !method.is_server_streaming() {
            return Ok(vec![framed(method, json)?]);
        }
        let doc = Doc::parse(json.clone(), DEEPEST).map_err(|error| error.to_string())?;
        if doc.root().kind() != Kind::Array {
            return Err("the method returns a stream: the flow must return a list of messages".to_owned());
        }
        let messages = doc.root().elements().enumerate();
        messages.map(|(at, one)| framed(method, one.raw()).map_err(|what| format!("message {at}: {what}"))).collect()
    }
}

/// A message with its prefix: not compressed, and its length.
fn framed(method: &Method, json: &[u8]) -> Result<Bytes, String> {
    let message = parse_message(method.output(), json)?;
    let mut out = vec![0; super::PREFIX];
    // A vector always has room.
    message.encode(&mut out).map_err(|error| error.to_string())?;
    let length = u32::try_from(out.len() - super::PREFIX).map_err(|_| "is too large to be sent".to_owned())?;
    out[1..super::PREFIX].copy_from_slice(&length.to_be_bytes());
    Ok(out.into())
}
