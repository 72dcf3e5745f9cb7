//! A connection that is read only as far as what was read before has been used: the client library in between has queues without a bound.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;

/// How much has been read and not been used.
#[derive(Debug)]
pub(crate) struct Meter {
    unused: AtomicUsize,
    most: usize,
    /// The reader, if it waits for room.
    waiting: Mutex<Option<Waker>>,
    full: Notify,
}

impl Meter {
    pub(crate) fn new(most: usize) -> Arc<Meter> {
        Arc::new(Meter { unused: AtomicUsize::new(0), most, waiting: Mutex::default(), full: Notify::new() })
    }

    pub(crate) fn most(&self) -> usize {
        self.most
    }

    fn is_full(&self) -> bool {
        self.unused.load(Ordering::Acquire) >= self.most
    }

    /// So many bytes of what was read have been used.
    pub(crate) fn used(&self, bytes: usize) {
        // `Some` always: it cannot fail.
        let _ =
            self.unused.fetch_update(Ordering::AcqRel, Ordering::Acquire, |unused| Some(unused.saturating_sub(bytes)));
        if !self.is_full()
            && let Some(waker) = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).take()
        {
            waker.wake();
        }
    }

    /// Waits until so much has been read that nothing more will be.
    pub(crate) async fn full(&self) {
        while !self.is_full() {
            self.full.notified().await;
        }
    }
}

#[derive(Debug)]
pub(crate) struct Metered<S> {
    stream: S,
    meter: Arc<Meter>,
}

impl<S> Metered<S> {
    pub(crate) fn new(stream: S, meter: &Arc<Meter>) -> Metered<S> {
        Metered { stream, meter: meter.clone() }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Metered<S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.meter.is_full() {
            *this.meter.waiting.lock().unwrap_or_else(PoisonError::into_inner) = Some(context.waker().clone());
            // What was used meanwhile had nobody to wake.
            if this.meter.is_full() {
                this.meter.full.notify_one();
                return Poll::Pending;
            }
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(context, buffer))?;
        this.meter.unused.fetch_add(buffer.filled().len() - before, Ordering::AcqRel);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Metered<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::time::{Duration, timeout};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn reading_stops_until_what_was_read_is_used() {
        let (near, mut far) = duplex(1000);
        let meter = Meter::new(8);
        let mut near = Metered::new(near, &meter);
        far.write_all(&[7; 20]).await.unwrap();
        let mut buffer = [0; 8];
        near.read_exact(&mut buffer).await.unwrap();
        meter.full().await;
        assert!(timeout(Duration::from_secs(9), near.read_u8()).await.is_err());
        let reads = tokio::spawn(async move { near.read_u8().await });
        tokio::task::yield_now().await;
        meter.used(1);
        assert_eq!(reads.await.unwrap().unwrap(), 7);
    }
}
