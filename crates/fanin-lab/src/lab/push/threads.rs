//! The blocking server: a thread for each connection, which waits for the next event and writes it.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::lab::error::LabError;

/// As the story's: "512 KB often enough".
const STACK: usize = 512 << 10;
/// The longest event.
const MOST: usize = 4096;

/// The channel: all threads wait for its next event.
#[derive(Default)]
struct Channel {
    events: Mutex<Vec<Arc<[u8]>>>,
    changed: Condvar,
}

impl Channel {
    /// Nothing can panic while it is locked.
    fn events(&self) -> MutexGuard<'_, Vec<Arc<[u8]>>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn publish(&self, data: &[u8]) {
        self.events().push([b"data: ", data, b"\n\n"].concat().into());
        self.changed.notify_all();
    }

    /// Waits for the event at a place.
    fn wait(&self, place: usize) -> Option<Arc<[u8]>> {
        let events = self.changed.wait_while(self.events(), |events| events.len() <= place);
        events.unwrap_or_else(PoisonError::into_inner).get(place).cloned()
    }
}

/// Serves until the process ends.
pub(super) fn serve(ready: impl FnOnce(SocketAddr) -> Result<(), LabError>) -> Result<(), LabError> {
    let failed = || LabError::io("opening a listener");
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed())?;
    ready(listener.local_addr().map_err(failed())?)?;
    let channel = Arc::new(Channel::default());
    for stream in listener.incoming() {
        let stream = stream.map_err(LabError::io("accepting"))?;
        let channel = channel.clone();
        let hold = move || {
            // A client that has left ends its thread.
            let _left = connection(stream, &channel);
        };
        // Without a thread the connection is closed, and its client reports that.
        let _ = std::thread::Builder::new().stack_size(STACK).spawn(hold);
    }
    Ok(())
}

fn connection(stream: TcpStream, channel: &Channel) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::with_capacity(1024, &stream);
    let (mut first, mut line, mut length) = (String::new(), String::new(), 0);
    reader.read_line(&mut first)?;
    while reader.read_line(&mut line)? > 2 {
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse::<usize>().unwrap_or(0).min(MOST);
        }
        line.clear();
    }
    if first.starts_with("POST ") {
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        channel.publish(&body);
        return (&stream).write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    }
    drop((reader, first, line));
    let mut place = channel.events().len();
    (&stream).write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\nretry: 2000\n\n")?;
    while let Some(event) = channel.wait(place) {
        place += 1;
        (&stream).write_all(&event)?;
    }
    Ok(())
}
