//! An export over HTTP: protobuf, posted on a connection of its own. There is at most one a second.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST};
use http::{HeaderMap, HeaderValue, Request};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use url::Url;

/// Most bytes of an answer that are read.
const MAX_ANSWER: usize = 64 << 10;

/// How a collector is reached.
#[derive(Clone, Debug)]
pub(crate) struct Http {
    pub(crate) endpoint: Url,
    pub(crate) headers: HeaderMap,
    pub(crate) tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
}

impl Http {
    /// Posts a message to a path below the endpoint.
    pub(crate) async fn post(&self, path: &str, message: Vec<u8>) -> Result<(), String> {
        let (Some(host), Some(port)) = (self.endpoint.host_str(), self.endpoint.port_or_known_default()) else {
            return Err("the endpoint has no host".to_owned());
        };
        let stream = TcpStream::connect((host.trim_matches(['[', ']']), port)).await;
        let stream = stream.map_err(|error| format!("{host}:{port}: {error}"))?;
        let request = self.request(path, host, message)?;
        match &self.tls {
            None => exchange(stream, request).await,
            Some((config, name)) => {
                let connected = TlsConnector::from(config.clone()).connect(name.clone(), stream).await;
                exchange(connected.map_err(|error| format!("TLS: {error}"))?, request).await
            }
        }
    }

    fn request(&self, path: &str, host: &str, message: Vec<u8>) -> Result<Request<Full<Bytes>>, String> {
        let base = self.endpoint.path().trim_end_matches('/');
        let mut request = Request::post(format!("{base}{path}"))
            .body(Full::new(Bytes::from(message)))
            .map_err(|error| error.to_string())?;
        let host = match self.endpoint.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        };
        let headers = request.headers_mut();
        headers.extend(self.headers.clone());
        headers.insert(HOST, HeaderValue::from_str(&host).map_err(|error| error.to_string())?);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        Ok(request)
    }
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Full<Bytes>>,
) -> Result<(), String> {
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|error| error.to_string())?;
    let answer = async {
        let answer = sender.send_request(request).await.map_err(|error| error.to_string())?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), MAX_ANSWER).collect().await;
        body.map_err(|error| error.to_string())?;
        if status.is_success() { Ok(()) } else { Err(format!("the collector answers with {status}")) }
    };
    tokio::select! {
        answer = answer => answer,
        ended = connection => Err(ended.err().map_or_else(|| "the connection was closed".to_owned(), |error| error.to_string())),
    }
}
