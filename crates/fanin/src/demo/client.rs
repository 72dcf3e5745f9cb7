//! One request to the server of the demo.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST};
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use thiserror::Error;

/// How long a sample may take in all.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of an answer.
const MOST: usize = 16 << 20;

/// An answer.
#[derive(Debug)]
pub struct Answer {
    /// HTTP status.
    pub status: StatusCode,
    /// The body.
    pub body: Bytes,
}

/// Why there is no answer.
#[derive(Debug, Error)]
pub enum ClientError {
    /// No connection.
    #[error("cannot connect to {0}: {1}")]
    Connect(SocketAddr, std::io::Error),
    /// Not a request.
    #[error("cannot be sent: {0}")]
    Request(#[from] http::Error),
    /// The connection broke.
    #[error("the connection broke: {0}")]
    Http(#[from] hyper::Error),
    /// The body could not be read.
    #[error("the body could not be read: {0}")]
    Body(Box<dyn std::error::Error + Send + Sync>),
    /// It took too long.
    #[error("no answer within {} s", TIMEOUT.as_secs())]
    Timeout,
}

/// Sends a request on a connection of its own. A body makes it JSON.
///
/// # Errors
/// When there is no whole answer in time.
pub async fn send(to: SocketAddr, method: &str, target: &str, body: &'static str) -> Result<Answer, ClientError> {
    match tokio::time::timeout(TIMEOUT, exchange(to, method, target, body)).await {
        Ok(result) => result,
        Err(_) => Err(ClientError::Timeout),
    }
}

async fn exchange(to: SocketAddr, method: &str, target: &str, body: &'static str) -> Result<Answer, ClientError> {
    let stream = tokio::net::TcpStream::connect(to).await.map_err(|error| ClientError::Connect(to, error))?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let mut request = Request::builder().method(method).uri(target).header(HOST, to.to_string());
    if !body.is_empty() {
        request = request.header(CONTENT_TYPE, "application/json");
    }
    let request = request.body(Full::new(Bytes::from_static(body.as_bytes())))?;
    let answer = async {
        let response = sender.send_request(request).await?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MOST).collect().await.map_err(ClientError::Body)?.to_bytes();
        Ok(Answer { status, body })
    };
    tokio::pin!(connection);
    tokio::pin!(answer);
    tokio::select! {
        result = &mut answer => result,
        result = &mut connection => {
            result?;
            // The connection's end does not lose an answer that has come whole.
            answer.await
        }
    }
}
