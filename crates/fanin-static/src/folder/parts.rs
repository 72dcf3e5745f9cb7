//! A body that is read from a file while it is sent: at most one chunk of it is in memory.

use std::any::Any;
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use cap_std::fs::{File, FileExt};
use fanin_server::{Aborted, BodyStream};
use http_body::Frame;

use super::threads;

/// Bytes that are read at a time.
const CHUNK: u64 = 128 << 10;

/// A part of a body.
#[derive(Debug)]
pub(super) enum Part {
    /// Bytes of the file.
    File(Range<u64>),
    /// What stands between them.
    Text(Bytes),
}

type Reading = Pin<Box<dyn Future<Output = Option<io::Result<Bytes>>>>>;

/// The parts that are left to be sent.
pub(super) struct Parts {
    file: Arc<File>,
    left: VecDeque<Part>,
    len: u64,
    reading: Option<Reading>,
    _keep: Option<Box<dyn Any>>,
}

impl Parts {
    pub(super) fn new(file: Arc<File>, parts: Vec<Part>, keep: Option<Box<dyn Any>>) -> Parts {
        let len = |part: &Part| match part {
            Part::File(range) => range.end - range.start,
            Part::Text(text) => text.len() as u64,
        };
        Parts { file, len: parts.iter().map(len).sum(), left: parts.into(), reading: None, _keep: keep }
    }
}

impl BodyStream for Parts {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Aborted>>> {
        loop {
            if let Some(reading) = &mut self.reading {
                let read = ready!(reading.as_mut().poll(cx));
                self.reading = None;
                return Poll::Ready(Some(match read {
                    Some(Ok(bytes)) => Ok(Frame::data(bytes)),
                    Some(Err(_)) => Err(Aborted("the file could not be read to its end")),
                    None => Err(Aborted("there is no thread that reads files")),
                }));
            }
            match self.left.pop_front() {
                None => return Poll::Ready(None),
                Some(Part::Text(text)) => return Poll::Ready(Some(Ok(Frame::data(text)))),
                Some(Part::File(range)) if range.is_empty() => {}
                Some(Part::File(range)) => {
                    let end = range.end.min(range.start + CHUNK);
                    if end < range.end {
                        self.left.push_front(Part::File(end..range.end));
                    }
                    let (file, chunk) = (self.file.clone(), range.start..end);
                    self.reading = Some(Box::pin(threads::run(move || read(&file, chunk))));
                }
            }
        }
    }

    fn exact_len(&self) -> Option<u64> {
        Some(self.len)
    }
}

/// Reads a range. An error if the file has become shorter.
pub(super) fn read(file: &File, range: Range<u64>) -> io::Result<Bytes> {
    let mut bytes = BytesMut::zeroed(usize::try_from(range.end - range.start).unwrap_or(0));
    file.read_exact_at(&mut bytes, range.start)?;
    Ok(bytes.freeze())
}
