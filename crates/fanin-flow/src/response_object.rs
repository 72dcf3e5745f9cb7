//! What a flow returns for a response that is more than a body.

use std::fmt;

use fanin_lang::value::Object;
use fanin_lang::{Stop, Value};
use http::StatusCode;

/// `response(status = 200, headers = {}, body = None, text = None, message = None, details = None, trailers = None)`
#[derive(Clone)]
pub(crate) struct ResponseObject {
    /// `None` if the flow sets none: 200, or that of a streamed answer.
    pub(crate) status: Option<StatusCode>,
    pub(crate) headers: Value,
    pub(crate) body: Value,
    pub(crate) text: Option<Value>,
    /// It has no body at all, and no content type.
    pub(crate) is_empty: bool,
    /// `None`, or a list of cookies.
    pub(crate) cookies: Value,
    /// What only clients get that call a method.
    pub(crate) rpc: Option<Box<RpcParts>>,
}

/// The parts of a response for clients that call a method.
#[derive(Clone, Default)]
pub(crate) struct RpcParts {
    /// The number of the code, if the status is one of gRPC.
    pub(crate) code: Option<u8>,
    pub(crate) message: Option<Value>,
    pub(crate) details: Option<Value>,
    pub(crate) trailers: Option<Value>,
}

impl RpcParts {
    pub(crate) fn values(&self) -> impl Iterator<Item = &Value> {
        [&self.message, &self.details, &self.trailers].into_iter().flatten()
    }
}

impl fmt::Debug for ResponseObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<response {}>", self.status().as_u16())
    }
}

impl ResponseObject {
    pub(crate) fn status(&self) -> StatusCode {
        self.status.unwrap_or(StatusCode::OK)
    }
}

impl Object for ResponseObject {
    fn type_name(&self) -> &'static str {
        "response"
    }

    fn attribute(&self, name: &str) -> Result<Option<Value>, Stop> {
        Ok(Some(match name {
            "status" => Value::Int(self.status().as_u16().into()),
            "headers" => self.headers.clone(),
            "body" => self.body.clone(),
            "text" => self.text.clone().unwrap_or_default(),
            _ => return Ok(None),
        }))
    }

    fn names(&self) -> Vec<&str> {
        vec!["body", "headers", "status", "text"]
    }

    fn visit(&self, visit: &mut dyn FnMut(&Value)) {
        visit(&self.headers);
        visit(&self.body);
        visit(&self.cookies);
        self.text.iter().for_each(&mut *visit);
        self.rpc.iter().flat_map(|rpc| rpc.values()).for_each(visit);
    }

    fn show(&self) -> String {
        format!("{self:?}")
    }
}
