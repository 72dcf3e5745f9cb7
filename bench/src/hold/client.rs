//! Runs an attack: connections from an address of their own, which do what its script says until they are told to stop.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::attacks::{Attack, Script};

/// Where attackers come from, so that bounds per client tell them from the others.
const ATTACKER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 66));

/// How long a client waits before it connects again.
const AGAIN: Duration = Duration::from_millis(500);

/// How long one read or write may take before the script goes on.
const PATIENCE: Duration = Duration::from_secs(5);

/// What an attack has done so far.
#[derive(Debug, Default)]
pub struct Progress {
    /// Connections made.
    pub connected: AtomicU64,
    /// Connections that the server ended.
    pub ended: AtomicU64,
    /// Requests or floods' pieces sent.
    pub sent: AtomicU64,
    stop: AtomicBool,
}

impl Progress {
    /// Ends the attack.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }
}

/// Runs an attack until it is stopped, on a thread of its own.
pub fn spawn(attack: Attack, target: SocketAddr, progress: Arc<Progress>) -> std::thread::JoinHandle<io::Result<()>> {
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(run(&attack, target, &progress));
        Ok(())
    })
}

async fn run(attack: &Attack, target: SocketAddr, progress: &Arc<Progress>) {
    let mut clients = JoinSet::new();
    let attack = Arc::new(attack.clone());
    for _ in 0..attack.connections {
        let (attack, progress) = (attack.clone(), progress.clone());
        clients.spawn(async move {
            while progress.goes_on() {
                // The server refuses or ends connections: that is what it is for.
                let _ended = one(&attack, target, &progress).await;
                sleep(AGAIN).await;
            }
        });
    }
    while progress.goes_on() {
        sleep(Duration::from_millis(50)).await;
    }
    clients.shutdown().await;
}

/// One connection from its begin to its end.
async fn one(attack: &Attack, target: SocketAddr, progress: &Progress) -> io::Result<()> {
    let share = |rate: f64| Duration::from_secs_f64(attack.connections as f64 / rate);
    match &attack.script {
        Script::Hold { first, drip, read, every } => {
            let mut stream = connect(target, progress, *read > 0).await?;
            stream.write_all(first).await?;
            while progress.goes_on() {
                sleep(*every).await;
                stream.write_all(drip).await?;
                let mut buffer = vec![0; (*read).max(1)];
                // Without anything to read it only looks whether the server has ended the connection.
                let found = match read {
                    0 => match stream.try_read(&mut buffer) {
                        Ok(read) => Some(read),
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
                        Err(error) => return Err(error),
                    },
                    _ => timeout(*every, stream.read(&mut buffer)).await.ok().transpose()?,
                };
                if found == Some(0) {
                    progress.ended.fetch_add(1, Ordering::Relaxed);
                    return Ok(());
                }
            }
        }
        Script::Flood { first, next, rate } => {
            let stream = connect(target, progress, false).await?;
            let (mut from, mut to) = stream.into_split();
            let ended = tokio::spawn(async move { tokio::io::copy(&mut from, &mut tokio::io::sink()).await });
            let flood = async {
                to.write_all(first).await?;
                for n in 0.. {
                    if !progress.goes_on() {
                        break;
                    }
                    to.write_all(&next(n)).await?;
                    progress.sent.fetch_add(1, Ordering::Relaxed);
                    sleep(share(*rate)).await;
                }
                io::Result::Ok(())
            };
            let flooded = flood.await;
            ended.abort();
            if flooded.is_err() {
                progress.ended.fetch_add(1, Ordering::Relaxed);
            }
        }
        Script::Repeat { request, rate } => {
            while progress.goes_on() {
                let due = Instant::now() + share(*rate);
                let mut stream = connect(target, progress, false).await?;
                let exchange = async {
                    // A refused request may be answered before it has been sent.
                    let _sent = stream.write_all(request).await;
                    tokio::io::copy(&mut stream, &mut tokio::io::sink()).await
                };
                let _answered = timeout(PATIENCE, exchange).await;
                progress.sent.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep_until(due).await;
            }
        }
    }
    Ok(())
}

/// `slow`: with a small receive buffer, so that the server feels that nobody reads.
async fn connect(target: SocketAddr, progress: &Progress, slow: bool) -> io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    if slow {
        socket.set_recv_buffer_size(4096)?;
    }
    socket.bind(SocketAddr::new(ATTACKER, 0))?;
    let stream = timeout(PATIENCE, socket.connect(target)).await??;
    progress.connected.fetch_add(1, Ordering::Relaxed);
    Ok(stream)
}
