//! How long an answer was in the kernel before its worker read it: the worker was busy then, or another process had its core.
//!
//! The kernel notes when it has received a segment (`SO_TIMESTAMPNS`, socket(7)). Whoever looks at the bytes with `recvmsg` gets that
//! time. The bytes are only looked at here (`MSG_PEEK`), and read as always.

use std::io::IoSliceMut;
use std::os::fd::AsRawFd;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::cmsg_space;
use nix::sys::socket::sockopt::ReceiveTimestampns;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt};
use nix::sys::time::TimeSpec;
use tokio::net::TcpStream;

use super::stream::Stream;

/// From now on the kernel notes when segments arrive.
#[cold]
pub(super) fn watch(stream: &Stream) {
    // Without it, the time is not known.
    setsockopt(tcp(stream), ReceiveTimestampns, &true).ok();
}

/// How long the first unread bytes have been there. `None` if there are none, or if their time is not known.
#[cold]
pub(super) fn unread(stream: &Stream) -> Option<Duration> {
    let mut byte = [0];
    let mut parts = [IoSliceMut::new(&mut byte)];
    let mut control = cmsg_space!(TimeSpec);
    let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
    let message = recvmsg::<()>(tcp(stream).as_raw_fd(), &mut parts, Some(&mut control), flags).ok()?;
    let arrived = message.cmsgs().ok()?.find_map(|control| match control {
        ControlMessageOwned::ScmTimestampns(time) => {
            Some(Duration::new(u64::try_from(time.tv_sec()).ok()?, u32::try_from(time.tv_nsec()).ok()?))
        }
        _ => None,
    })?;
    SystemTime::now().duration_since(UNIX_EPOCH).ok()?.checked_sub(arrived)
}

fn tcp(stream: &Stream) -> &TcpStream {
    match stream {
        Stream::Tcp(stream) => stream,
        Stream::Tls(stream) => stream.get_ref().0,
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn bytes_that_lie_there_have_a_time_and_stay() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let mut stream = Stream::Tcp(TcpStream::connect(address).await.expect("it listens"));
        let (mut peer, _) = listener.accept().await.expect("it connects");
        watch(&stream);
        assert_eq!(unread(&stream), None);
        // The kernel begins to note times a moment after it was first asked to.
        let mut found = None;
        for _ in 0..200 {
            peer.write_all(b"x").await.expect("it is open");
            tcp(&stream).readable().await.expect("it is open");
            found = unread(&stream);
            assert_eq!(stream.read_u8().await.expect("the byte is still there"), b'x');
            if found.is_some() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(found.is_some_and(|time| time < Duration::from_secs(60)), "{found:?}");
    }
}
