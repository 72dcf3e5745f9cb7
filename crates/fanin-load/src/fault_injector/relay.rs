//! One connection through the fault injector: a copy loop for each direction. The one towards the client applies faults.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::watch;
use tokio::time::sleep;

use super::fault::Fault;
use super::state::{Counters, State};

const BUFFER: usize = 64 * 1024;
/// A limited bandwidth is spent in pieces this far apart.
const TICK: Duration = Duration::from_millis(10);

/// From now on dropping the stream sends a reset instead of a FIN.
pub(super) fn reset_when_dropped(stream: &TcpStream) {
    // It fails only for a socket that is closed already.
    drop(SockRef::from(stream).set_linger(Some(Duration::ZERO)));
}

/// Relays until both sides have ended, or one of them broke.
pub(super) async fn relay(
    mut client: TcpStream,
    mut upstream: TcpStream,
    state: &watch::Receiver<State>,
    counters: &Counters,
    seed: u64,
) {
    // Pieces are to arrive as they are written.
    if client.set_nodelay(true).and(upstream.set_nodelay(true)).is_err() {
        return;
    }
    let ended = {
        let (client_read, client_write) = client.split();
        let (upstream_read, upstream_write) = upstream.split();
        let to_upstream = CopyLoop {
            from: client_read,
            to: upstream_write,
            state: state.clone(),
            count: &counters.requested,
            answers: None,
        };
        let answers = Answers { random: fastrand::Rng::with_seed(seed), cut: None };
        let to_client = CopyLoop {
            from: upstream_read,
            to: client_write,
            state: state.clone(),
            count: &counters.answered,
            answers: Some(answers),
        };
        tokio::try_join!(to_upstream.run(), to_client.run()).map(drop)
    };
    match ended {
        // An orderly end, or one after so many bytes, is a FIN.
        Ok(()) => drop(SockRef::from(&client).set_linger(None)),
        Err(End::Cut) => {
            drop(SockRef::from(&client).set_linger(None));
            drop(client.shutdown().await);
        }
        // What broke on one side shows as a reset on the other.
        Err(End::Broken) => reset_when_dropped(&upstream),
    }
}

/// Why a copy loop stops before its source has ended.
#[derive(Debug)]
enum End {
    Broken,
    Cut,
}

impl From<io::Error> for End {
    fn from(_: io::Error) -> Self {
        Self::Broken
    }
}

/// State that only the direction towards the client has.
struct Answers {
    random: fastrand::Rng,
    /// The bytes that [`Fault::Cut`] was set with, and those left.
    cut: Option<(u64, u64)>,
}

struct CopyLoop<'a> {
    from: ReadHalf<'a>,
    to: WriteHalf<'a>,
    state: watch::Receiver<State>,
    count: &'a AtomicU64,
    answers: Option<Answers>,
}

impl CopyLoop<'_> {
    async fn run(mut self) -> Result<(), End> {
        let mut buffer = vec![0; BUFFER];
        loop {
            let read = self.from.read(&mut buffer).await;
            // Neither bytes nor an end nor a reset pass while the host is gone.
            self.wait_while_hanging().await?;
            match read? {
                0 => {
                    self.to.shutdown().await?;
                    return Ok(());
                }
                read => self.forward(&mut buffer[..read]).await?,
            }
        }
    }

    async fn wait_while_hanging(&mut self) -> Result<(), End> {
        // The sender lives as long as the injector.
        self.state.wait_for(|state| state.fault != Fault::Hang).await.map(drop).map_err(|_| End::Broken)
    }

    async fn forward(&mut self, mut bytes: &mut [u8]) -> Result<(), End> {
        // The fault may change between two pieces.
        while !bytes.is_empty() {
            self.wait_while_hanging().await?;
            let fault = if self.answers.is_some() { self.state.borrow().fault } else { Fault::Pass };
            let piece = match fault {
                Fault::Slice { bytes: size, .. } => size.max(1),
                Fault::Bandwidth(rate) => usize::try_from(rate / 100).unwrap_or(usize::MAX).max(1),
                Fault::Cut(after) => self.left(after)?,
                _ => bytes.len(),
            };
            let (now, later) = bytes.split_at_mut(piece.min(bytes.len()));
            if let Fault::Delay(delay) = fault {
                sleep(delay).await;
            }
            if let Fault::Corrupt { one_in } = fault {
                self.corrupt(now, one_in);
            }
            self.to.write_all(now).await?;
            let written = now.len() as u64;
            self.count.fetch_add(written, Ordering::Relaxed);
            match fault {
                Fault::Slice { pause, .. } => sleep(pause).await,
                // Rates below 100 bytes a second take longer for their one byte.
                Fault::Bandwidth(rate) => {
                    sleep(TICK.max(Duration::from_secs(1) / u32::try_from(rate.max(1)).unwrap_or(u32::MAX))).await
                }
                Fault::Cut(_) => {
                    if let Some(Answers { cut: Some((_, left)), .. }) = &mut self.answers {
                        *left -= written;
                    }
                }
                _ => {}
            }
            bytes = later;
        }
        let fault = self.state.borrow().fault;
        if let Fault::Cut(after) = fault {
            self.left(after)?;
        }
        Ok(())
    }

    /// Bytes left until the cut; an end once there are none.
    fn left(&mut self, after: u64) -> Result<usize, End> {
        let Some(answers) = &mut self.answers else { return Ok(usize::MAX) };
        let left = match answers.cut {
            Some((of, left)) if of == after => left,
            _ => after,
        };
        answers.cut = Some((after, left));
        if left == 0 { Err(End::Cut) } else { Ok(usize::try_from(left).unwrap_or(usize::MAX)) }
    }

    fn corrupt(&mut self, bytes: &mut [u8], one_in: u32) {
        let Some(answers) = &mut self.answers else { return };
        for byte in bytes {
            if answers.random.u32(0..one_in.max(1)) == 0 {
                *byte ^= 1 << answers.random.u32(0..8);
            }
        }
    }
}
