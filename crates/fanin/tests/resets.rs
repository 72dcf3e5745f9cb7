//! A client that resets its HTTP/2 requests costs few connections to upstreams: an HTTP/1.1 connection whose call is given up is closed.

mod common;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread::{self, JoinHandle};

use common::{Serving, TIMEOUT};
use tempfile::TempDir;

/// Sent by the test itself on its last connection.
const LAST: u8 = b'!';

/// Takes connections and never answers.
struct Silent {
    address: SocketAddr,
    accepted: Arc<AtomicUsize>,
    thread: JoinHandle<()>,
}

impl Silent {
    fn start() -> Silent {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let address = listener.local_addr().expect("an address");
        let accepted = Arc::new(AtomicUsize::new(0));
        let count = accepted.clone();
        let thread = thread::spawn(move || {
            let mut open = Vec::new();
            for mut stream in listener.incoming().map_while(Result::ok) {
                let mut first = [0];
                if stream.read(&mut first).is_ok() && first[0] == LAST {
                    return;
                }
                count.fetch_add(1, SeqCst);
                open.push(stream);
            }
        });
        Silent { address, accepted, thread }
    }

    /// How many connections there were. They are accepted in the order in which they were made.
    fn end(self) -> usize {
        TcpStream::connect_timeout(&self.address, TIMEOUT).expect("connected").write_all(&[LAST]).expect("sent");
        self.thread.join().expect("no panic");
        self.accepted.load(SeqCst)
    }
}

fn serve(upstream: SocketAddr, resets: &str) -> (TempDir, Serving) {
    let dir = tempfile::tempdir().expect("a folder");
    let config = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\nadmin = \"off\"\nworkers = 1\nqueueing = \"off\"\n\
         max_resets_per_client = {resets}\n[upstreams.silent]\nurl = \"http://{upstream}\"\ntimeout = \"60s\"\n\
         [[routes]]\npath = \"/\"\nflow = \"flows.star:page\"\ntimeout = \"60s\"\n"
    );
    std::fs::write(dir.path().join("fanin.toml"), config).expect("written");
    let flow = "load(\"@upstreams\", \"silent\")\n\ndef page(req):\n    return silent.get(\"/\")\n";
    std::fs::write(dir.path().join("flows.star"), flow).expect("written");
    let serving = Serving::start(dir.path());
    (dir, serving)
}

fn http2(serving: &Serving) -> TcpStream {
    let address = serving.listen.parse().expect("an address");
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT).expect("connected");
    stream.set_read_timeout(Some(TIMEOUT)).expect("set");
    stream.set_nodelay(true).expect("set");
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").expect("sent");
    stream
}

/// GET / on a stream.
fn headers(stream: u32) -> Vec<u8> {
    [&[0, 0, 6, 1, 5][..], &stream.to_be_bytes(), &[0x82, 0x84, 0x86, 0x01, 1, b'a']].concat()
}

fn reset(stream: u32) -> Vec<u8> {
    [&[0, 0, 4, 3, 0][..], &stream.to_be_bytes(), &[0, 0, 0, 8]].concat()
}

/// Reads frames up to the answer to a PING. `false` if the connection ends before.
fn is_answered(stream: &mut TcpStream) -> bool {
    let ping = [0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
    if stream.write_all(&ping).is_err() {
        return false;
    }
    loop {
        let mut head = [0; 9];
        match stream.read_exact(&mut head) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => panic!("no answer: {error}"),
            Err(_) => return false,
        }
        let mut payload = vec![0; usize::from(head[1]) << 8 | usize::from(head[2])];
        if stream.read_exact(&mut payload).is_err() {
            return false;
        }
        if head[3..5] == [6, 1] {
            return true;
        }
    }
}

#[test]
fn requests_that_are_reset_at_once_open_no_connections() {
    let upstream = Silent::start();
    let (_dir, serving) = serve(upstream.address, "\"off\"");
    let mut client = http2(&serving);
    for request in 0..500 {
        let stream = request * 2 + 1;
        client.write_all(&[headers(stream), reset(stream)].concat()).expect("sent");
        assert!(is_answered(&mut client), "{request}");
    }
    drop(client);
    serving.signal("-TERM");
    serving.end();
    let connections = upstream.end();
    assert!(connections <= 2, "{connections} connections");
}

#[test]
fn requests_that_are_reset_later_open_as_many_connections_as_may_be_reset() {
    let upstream = Silent::start();
    let (_dir, serving) = serve(upstream.address, "20");
    let mut client = http2(&serving);
    for request in 0..200 {
        let (stream, before) = (request * 2 + 1, upstream.accepted.load(SeqCst));
        if client.write_all(&headers(stream)).is_err() {
            break;
        }
        // The call is on its way, or the connection has ended.
        let mut open = is_answered(&mut client);
        while open && upstream.accepted.load(SeqCst) == before {
            open = is_answered(&mut client);
        }
        if !open || client.write_all(&reset(stream)).is_err() {
            break;
        }
    }
    drop(client);
    serving.signal("-TERM");
    serving.end();
    let connections = upstream.end();
    // The one beyond the bound ends the connection.
    assert!((20..=22).contains(&connections), "{connections} connections");
}
