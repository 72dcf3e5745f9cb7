//! What a call has given, as the suite wants it told.

use base64::Engine;
use base64::prelude::BASE64_STANDARD_NO_PAD;
use fanin_upstream::ErrorKind;
use http::HeaderMap;
use prost::Message;
use prost_reflect::{DynamicMessage, Value};

use crate::messages::{Messages, set};

/// An error, by the name of its status code.
pub struct Failed {
    pub code: String,
    pub message: String,
}

impl Failed {
    /// A failure that has no status, by the code that fits its kind.
    pub fn of(kind: ErrorKind, detail: &str) -> Failed {
        let code = match kind {
            ErrorKind::Timeout => "DEADLINE_EXCEEDED",
            ErrorKind::TooLarge => "RESOURCE_EXHAUSTED",
            ErrorKind::Cancelled => "CANCELLED",
            ErrorKind::Decode | ErrorKind::Protocol => "INTERNAL",
            ErrorKind::Refused | ErrorKind::Connect | ErrorKind::Limit | ErrorKind::Breaker => "UNAVAILABLE",
            ErrorKind::Status => "UNKNOWN",
        };
        Failed { code: code.to_owned(), message: detail.to_owned() }
    }

    pub fn cancelled() -> Failed {
        Failed::of(ErrorKind::Cancelled, "cancelled by the caller")
    }

    /// The body of an answer with an error.
    pub fn from_body(body: &[u8]) -> Failed {
        let body: serde_json::Value = serde_json::from_slice(body).expect("JSON");
        let text = |key: &str| body[key].as_str().expect("a string").to_owned();
        Failed { code: text("code"), message: text("message") }
    }
}

/// All that a call has given.
#[derive(Default)]
pub struct Outcome {
    pub headers: HeaderMap,
    pub trailers: HeaderMap,
    /// JSON of the messages.
    pub messages: Vec<Vec<u8>>,
    pub failed: Option<Failed>,
}

/// `google.rpc.Status`, as `grpc-status-details-bin` has it.
#[derive(Clone, PartialEq, Message)]
struct RpcStatus {
    #[prost(message, repeated, tag = "3")]
    details: Vec<prost_reflect::prost_types::Any>,
}

impl Outcome {
    /// As a `ClientResponseResult`. `output`: the message that the method returns.
    pub fn result(&self, messages: &Messages, output: &str) -> DynamicMessage {
        let mut result = messages.empty("ClientResponseResult");
        set(&mut result, "response_headers", headers(messages, &self.headers));
        set(&mut result, "response_trailers", headers(messages, &self.trailers));
        let payloads = self.messages.iter().map(|json| {
            let message = messages.read_json(output, json);
            Value::Message(crate::messages::message(&message, "payload"))
        });
        set(&mut result, "payloads", Value::List(payloads.collect()));
        if let Some(failed) = &self.failed {
            let mut error = messages.empty("Error");
            set(&mut error, "code", Value::EnumNumber(messages.code(&failed.code)));
            set(&mut error, "message", Value::String(failed.message.clone()));
            set(&mut error, "details", self.details(messages));
            set(&mut result, "error", Value::Message(error));
        }
        result
    }

    fn details(&self, messages: &Messages) -> Value {
        const DETAILS: &str = "grpc-status-details-bin";
        let found = self.trailers.get(DETAILS).or_else(|| self.headers.get(DETAILS));
        let Some(details) = found else { return Value::List(Vec::new()) };
        let text = details.to_str().expect("base64").trim_end_matches('=');
        let bytes = BASE64_STANDARD_NO_PAD.decode(text).expect("base64");
        let status = RpcStatus::decode(bytes.as_slice()).expect("a status");
        let any = |any: &prost_reflect::prost_types::Any| messages.decode("google.protobuf.Any", &any.encode_to_vec());
        Value::List(status.details.iter().map(|detail| Value::Message(any(detail))).collect())
    }
}

fn headers(messages: &Messages, headers: &HeaderMap) -> Value {
    let header = |name: &http::HeaderName| {
        let values = headers.get_all(name).iter();
        let values = values.map(|value| Value::String(String::from_utf8_lossy(value.as_bytes()).into_owned()));
        let mut header = messages.empty("Header");
        set(&mut header, "name", Value::String(name.to_string()));
        set(&mut header, "value", Value::List(values.collect()));
        Value::Message(header)
    };
    Value::List(headers.keys().map(header).collect())
}
