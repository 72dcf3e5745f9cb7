//! Clients that ask one after the other: a connection each, the next request when the answer is there.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderValue, Request};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use prost::Message;
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::task::spawn_local;

use super::messages::{InferRequest, InferResponse, InputTensor, PATH, WantedOutput};
use super::trees::Numbers;
use crate::Failure;

/// Connections to a server.
pub struct Clients {
    runtime: LocalRuntime,
    asked: Rc<Cell<u64>>,
    wrong: Rc<Cell<u64>>,
}

/// A message after its five bytes.
pub fn framed(message: &impl Message) -> Bytes {
    let mut frame = BytesMut::new();
    frame.put_u8(0);
    frame.put_u32(message.encoded_len() as u32);
    // The buffer grows as it has to.
    let _ = message.encode(&mut frame);
    frame.freeze()
}

/// A message that asks about so many rows of so many features, for these outputs.
pub fn message(model: &str, rows: usize, features: usize, outputs: &[&str]) -> InferRequest {
    let mut numbers = Numbers::new(3);
    let all: Vec<u8> = (0..rows * features).flat_map(|_| numbers.unit().to_le_bytes()).collect();
    let shape = vec![rows as i64, features as i64];
    InferRequest {
        model_name: model.into(),
        inputs: vec![InputTensor { name: "input".into(), datatype: "FP64".into(), shape }],
        outputs: outputs.iter().map(|name| WantedOutput { name: (*name).into() }).collect(),
        raw_input_contents: vec![all.into()],
    }
}

/// The same as the body of a call.
pub fn request(model: &str, rows: usize, features: usize, outputs: &[&str]) -> Bytes {
    framed(&message(model, rows, features, outputs))
}

/// A connection to ask on.
pub type Sender = hyper::client::conn::http2::SendRequest<Full<Bytes>>;

/// Connects.
pub async fn connect(addr: SocketAddr) -> Result<Sender, String> {
    let stream = tokio::net::TcpStream::connect(addr).await.map_err(|error| error.to_string())?;
    stream.set_nodelay(true).map_err(|error| error.to_string())?;
    let handshake = hyper::client::conn::http2::handshake(hyper_util::rt::TokioExecutor::new(), TokioIo::new(stream));
    let (sender, connection) = handshake.await.map_err(|error| error.to_string())?;
    spawn_local(connection);
    Ok(sender)
}

/// Asks a model once.
pub async fn ask(sender: &mut Sender, addr: SocketAddr, body: &Bytes) -> Result<InferResponse, String> {
    let bytes = call(sender, addr, PATH, body).await?;
    InferResponse::decode(bytes.slice(5.min(bytes.len())..)).map_err(|error| error.to_string())
}

/// Calls a method once; the body of the answer.
async fn call(sender: &mut Sender, addr: SocketAddr, path: &str, body: &Bytes) -> Result<Bytes, String> {
    let mut request = Request::new(Full::new(body.clone()));
    *request.method_mut() = http::Method::POST;
    *request.uri_mut() = format!("http://{addr}{path}").parse().map_err(|error| format!("{error}"))?;
    request.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    request.headers_mut().insert("te", HeaderValue::from_static("trailers"));
    request.headers_mut().insert("grpc-timeout", HeaderValue::from_static("60S"));
    let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
    let whole = response.into_body().collect().await.map_err(|error| error.to_string())?;
    let status = whole.trailers().and_then(|trailers| trailers.get("grpc-status").cloned());
    if status != Some(HeaderValue::from_static("0")) {
        return Err(format!("status {status:?}"));
    }
    Ok(whole.to_bytes())
}

impl Clients {
    /// Connects and begins to ask models; connections take the bodies in turns.
    pub fn start(addr: SocketAddr, connections: usize, bodies: &[Bytes]) -> Result<Clients, Failure> {
        Self::connect(addr, connections, PATH, bodies, |bytes| {
            let answer = InferResponse::decode(&bytes[5.min(bytes.len())..]).map_err(|error| error.to_string())?;
            match answer.raw_output_contents.iter().any(|raw| raw.is_empty() || raw.len() % 8 != 0) {
                true => Err(format!("{answer:?}")),
                false => Ok(()),
            }
        })
    }

    /// The same with any method, whose answers are checked.
    pub fn connect(
        addr: SocketAddr,
        connections: usize,
        path: &'static str,
        bodies: &[Bytes],
        check: impl Fn(&[u8]) -> Result<(), String> + Clone + 'static,
    ) -> Result<Clients, Failure> {
        let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default())?;
        let (asked, wrong) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        let clients = Clients { runtime, asked, wrong };
        clients.runtime.block_on(async {
            for body in bodies.iter().cycle().take(connections) {
                let mut sender = connect(addr).await.map_err(|error| Failure::Wrong(format!("{addr}: {error}")))?;
                let first = call(&mut sender, addr, path, body).await;
                first.and_then(|bytes| check(&bytes)).map_err(|error| Failure::Wrong(format!("{addr}: {error}")))?;
                let (asked, wrong, body) = (clients.asked.clone(), clients.wrong.clone(), body.clone());
                let check = check.clone();
                spawn_local(async move {
                    loop {
                        match call(&mut sender, addr, path, &body).await.and_then(|bytes| check(&bytes)) {
                            Ok(_) => asked.set(asked.get() + 1),
                            Err(_) => {
                                wrong.set(wrong.get() + 1);
                                tokio::time::sleep(Duration::from_millis(10)).await;
                            }
                        }
                    }
                });
            }
            Ok::<(), Failure>(())
        })?;
        Ok(clients)
    }

    /// Asks for so long; answers and failures in that time. Between windows nothing is asked.
    pub fn window(&self, time: Duration) -> (u64, u64) {
        let (asked, wrong) = (self.asked.get(), self.wrong.get());
        let end = Instant::now() + time;
        // Within the runtime: outside of it there is no clock to sleep by.
        self.runtime.block_on(async { tokio::time::sleep_until(end.into()).await });
        (self.asked.get() - asked, self.wrong.get() - wrong)
    }
}
