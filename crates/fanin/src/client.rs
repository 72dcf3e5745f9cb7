//! One request over HTTP/1.1, for the demo and for `fanin explain`.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST};
use http::{HeaderMap, HeaderValue, Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use thiserror::Error;

/// How long a request may take in all.
const TIMEOUT: Duration = Duration::from_secs(60);
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
    Connect(String, std::io::Error),
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

/// A request. A body makes it JSON, unless the headers name another type.
#[derive(Debug, Default)]
pub struct Outgoing<'a> {
    /// Method.
    pub method: &'a str,
    /// Path and query.
    pub target: &'a str,
    /// Headers. `Host` is the address, unless it is here.
    pub headers: HeaderMap,
    /// Body.
    pub body: Bytes,
}

/// Sends a request to a host and port, on a connection of its own.
///
/// # Errors
/// When there is no whole answer in time.
pub async fn send(to: &str, request: Outgoing<'_>) -> Result<Answer, ClientError> {
    match tokio::time::timeout(TIMEOUT, exchange(to, request)).await {
        Ok(result) => result,
        Err(_) => Err(ClientError::Timeout),
    }
}

async fn exchange(to: &str, outgoing: Outgoing<'_>) -> Result<Answer, ClientError> {
    let Outgoing { method, target, mut headers, body } = outgoing;
    let stream =
        tokio::net::TcpStream::connect(to).await.map_err(|error| ClientError::Connect(to.to_owned(), error))?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    if !headers.contains_key(HOST) {
        headers.insert(HOST, HeaderValue::try_from(to).map_err(http::Error::from)?);
    }
    if !body.is_empty() && !headers.contains_key(CONTENT_TYPE) {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    let mut request = Request::builder().method(method).uri(target).body(Full::new(body))?;
    *request.headers_mut() = headers;
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
