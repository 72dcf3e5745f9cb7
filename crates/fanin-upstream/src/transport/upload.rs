//! Request bodies that are sent while they come from a client.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;

/// A request's body as it comes. It is polled when the upstream has room for more.
pub trait Upload: 'static {
    /// The next part; `None` at the end. Not polled after that, or after an error.
    ///
    /// # Errors
    /// The body will not be complete. Whoever made the upload knows why.
    fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, UploadBroken>>>;

    /// Bytes of the whole body, if they are announced.
    fn announced(&self) -> Option<u64>;
}

/// An upload ended before it was complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the client's body ended before it was complete")]
pub struct UploadBroken;

/// A body that one request can be sent with.
pub struct UploadSlot {
    upload: RefCell<Option<Box<dyn Upload>>>,
    announced: Option<u64>,
    broken: Cell<bool>,
}

impl fmt::Debug for UploadSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "upload of {:?} bytes", self.announced)
    }
}

impl UploadSlot {
    /// A body that has not been sent yet.
    pub fn new(upload: Box<dyn Upload>) -> Rc<UploadSlot> {
        let announced = upload.announced();
        Rc::new(UploadSlot { upload: RefCell::new(Some(upload)), announced, broken: Cell::new(false) })
    }

    pub(crate) fn announced(&self) -> Option<u64> {
        self.announced
    }

    /// Whether an attempt has begun to send it, so that no other can.
    pub fn is_taken(&self) -> bool {
        self.upload.borrow().is_none()
    }

    pub(crate) fn take(&self) -> Option<Box<dyn Upload>> {
        self.upload.borrow_mut().take()
    }

    pub(crate) fn set_broken(&self) {
        self.broken.set(true);
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.broken.get()
    }
}
