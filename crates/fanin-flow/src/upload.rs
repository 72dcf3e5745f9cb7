//! `req.stream`: a request's body that is not collected, for one call to pass on.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use fanin_lang::value::Object;
use fanin_lang::{Failure as Error, Kind, Stop, Value};
use fanin_upstream::{Upload, UploadBroken, UploadSlot};

use crate::flow_error::FlowError;

/// A request's body as it comes from the client. It is polled when the upstream has room for more. Dropped, the rest is not read.
pub trait ClientUpload: 'static {
    /// The next part; `None` at the end. Not polled after that, or after an error.
    ///
    /// # Errors
    /// What the client receives if its body is not complete.
    fn poll_part(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, FlowError>>>;

    /// Bytes of the whole body, if they are announced.
    fn announced(&self) -> Option<u64>;
}

type Failure = Rc<RefCell<Option<FlowError>>>;

/// The body of a request whose route has `stream_body`.
pub(crate) struct UploadedBody {
    slot: Rc<UploadSlot>,
    /// Set once it has failed.
    failure: Failure,
    used: Cell<bool>,
}

impl UploadedBody {
    pub(crate) fn new(body: Box<dyn ClientUpload>) -> Rc<UploadedBody> {
        let failure = Failure::default();
        let slot = UploadSlot::new(Box::new(Passed { body, failure: failure.clone() }));
        Rc::new(UploadedBody { slot, failure, used: Cell::new(false) })
    }

    /// The body for a call. `None` if another has it.
    pub(crate) fn take(&self) -> Option<Rc<UploadSlot>> {
        (!self.used.replace(true)).then(|| self.slot.clone())
    }

    /// Why the body was not complete.
    pub(crate) fn failure(&self) -> Option<FlowError> {
        self.failure.borrow().clone()
    }
}

/// `req.stream`
///
/// # Errors
/// The route collects the body.
pub(crate) fn stream(upload: Option<&Rc<UploadedBody>>) -> Result<Value, Stop> {
    let missing = || Stop::fail(Kind::Attribute, "req.stream is there only if the route has stream_body = true");
    upload.map(|upload| Value::object(ClientBody(upload.clone()))).ok_or_else(missing)
}

/// The error of `req.body` and `req.text`.
#[cold]
pub(crate) fn not_read(name: &str) -> Stop {
    let message = format!("req.{name} is not read: the route has stream_body, and its body can only be passed on");
    Error::new(Kind::Attribute, message).with_hint("body = req.stream of a call").into()
}

struct Passed {
    body: Box<dyn ClientUpload>,
    failure: Failure,
}

impl Upload for Passed {
    fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, UploadBroken>>> {
        self.body.poll_part(cx).map_err(|error| {
            self.failure.replace(Some(error));
            UploadBroken
        })
    }

    fn announced(&self) -> Option<u64> {
        self.body.announced()
    }
}

/// The value of `req.stream`.
pub(crate) struct ClientBody(pub(crate) Rc<UploadedBody>);

impl fmt::Debug for ClientBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<body of the request>")
    }
}

impl Object for ClientBody {
    fn type_name(&self) -> &'static str {
        "body of the request"
    }

    fn attribute(&self, _: &str) -> Result<Option<Value>, Stop> {
        Ok(None)
    }

    fn names(&self) -> Vec<&str> {
        Vec::new()
    }

    fn show(&self) -> String {
        format!("{self:?}")
    }
}
