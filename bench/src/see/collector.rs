//! A collector that takes all and keeps nothing, on a thread of the benchmark.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;

use crate::Failure;

/// It runs until the process ends.
pub struct Collector {
    pub addr: SocketAddr,
    requests: Arc<AtomicU64>,
}

impl Collector {
    pub fn start() -> Result<Collector, Failure> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let (addr, requests) = (listener.local_addr()?, Arc::<AtomicU64>::default());
        let counted = requests.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let counted = counted.clone();
                thread::spawn(move || serve(stream, &counted));
            }
        });
        Ok(Collector { addr, requests })
    }

    /// Exports that it has taken.
    pub fn taken(&self) -> u64 {
        self.requests.load(Relaxed)
    }
}

/// Answers each request of a connection, until it ends or is not understood.
fn serve(stream: TcpStream, counted: &AtomicU64) -> Option<()> {
    let mut answers = stream.try_clone().ok()?;
    let mut reader = BufReader::new(stream);
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).ok()? == 0 {
                return None;
            }
            let line = line.trim().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().ok()?;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        counted.fetch_add(1, Relaxed);
        answers
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n")
            .ok()?;
    }
}
