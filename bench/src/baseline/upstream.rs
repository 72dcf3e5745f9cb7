//! Calls of the baseline: a stack of idle hyper connections, each driven by a task of its own.

use std::cell::RefCell;
use std::net::SocketAddr;

use bytes::{Bytes, BytesMut};
use http::header::{HOST, InvalidHeaderValue};
use http::{HeaderValue, Request, Uri};
use http_body::Body as _;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::spawn_local;

/// Why a request cannot be answered.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error("no such route")]
    NoRoute,
    #[error("cannot connect: {0}")]
    Connect(std::io::Error),
    #[error("{0}")]
    Http(#[from] hyper::Error),
    #[error("a path that is none: {0}")]
    Path(#[from] http::uri::InvalidUri),
    #[error("status {0}")]
    Status(u16),
    #[error("not JSON")]
    NotJson,
}

type Sender = SendRequest<Empty<Bytes>>;

/// The backend and its idle connections, the last used on top.
#[derive(Debug)]
pub struct Upstream {
    addr: SocketAddr,
    host: HeaderValue,
    idle: RefCell<Vec<Sender>>,
}

impl Upstream {
    /// The backend at `addr`, to which nothing is connected yet.
    pub fn new(addr: SocketAddr) -> std::io::Result<Self> {
        let host = addr.to_string().try_into().map_err(|bad: InvalidHeaderValue| std::io::Error::other(bad))?;
        Ok(Self { addr, host, idle: RefCell::default() })
    }

    /// The body of a 200 answer to a GET of `path`.
    pub async fn get(&self, path: String) -> Result<Bytes, Failure> {
        let mut sender = self.connection().await?;
        let mut request = Request::new(Empty::new());
        *request.uri_mut() = Uri::from_maybe_shared(Bytes::from(path))?;
        request.headers_mut().insert(HOST, self.host.clone());
        let response = sender.send_request(request).await?;
        let status = response.status();
        let body = collect(response.into_body()).await?;
        self.idle.borrow_mut().push(sender);
        if status == 200 { Ok(body) } else { Err(Failure::Status(status.as_u16())) }
    }

    async fn connection(&self) -> Result<Sender, Failure> {
        loop {
            let idle = self.idle.borrow_mut().pop();
            let Some(mut sender) = idle else { return self.connect().await };
            // The connection's task may not have noticed the end of the last body yet, or may be gone.
            if sender.is_ready() || sender.ready().await.is_ok() {
                return Ok(sender);
            }
        }
    }

    async fn connect(&self) -> Result<Sender, Failure> {
        let stream = TcpStream::connect(self.addr).await.map_err(Failure::Connect)?;
        stream.set_nodelay(true).map_err(Failure::Connect)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        spawn_local(async { drop(connection.await) });
        Ok(sender)
    }
}

/// A body that came in one piece, as nearly all do, is not copied.
async fn collect(mut body: hyper::body::Incoming) -> Result<Bytes, Failure> {
    let mut first = Bytes::new();
    let mut joined = BytesMut::new();
    while !body.is_end_stream() {
        let Some(frame) = body.frame().await else { break };
        let Ok(data) = frame?.into_data() else { continue };
        if first.is_empty() {
            first = data;
        } else {
            if joined.is_empty() {
                let length = usize::try_from(body.size_hint().lower()).unwrap_or_default();
                joined.reserve(first.len() + data.len() + length);
                joined.extend_from_slice(&first);
            }
            joined.extend_from_slice(&data);
        }
    }
    Ok(if joined.is_empty() { first } else { joined.freeze() })
}
