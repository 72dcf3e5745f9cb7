//! Converts large messages on the offload thread, so that no worker is held for them.

use crate::error::Failure;
use crate::offload;

/// Larger messages take longer to convert than a worker should be held.
const LARGE: usize = 256 << 10;

/// Does some work on the messages of a method that is served, of so many bytes: at once if they are few, on the offload thread otherwise.
/// `None`: the thread has ended, which is a defect.
pub async fn off_worker<T: Send + 'static>(bytes: usize, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    convert(bytes, work).await.ok()
}

/// Does some work on so many bytes: at once if they are few, on the offload thread otherwise.
pub(crate) async fn convert<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    if bytes > LARGE
        && let Some(slot) = offload::next_slot().await
    {
        return offload::run(slot, |_| work()).await;
    }
    Ok(work())
}
