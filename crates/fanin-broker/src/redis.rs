//! Redis and Valkey: PUBLISH on one connection, SUBSCRIBE on another, as every version has them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use redis::aio::{MultiplexedConnection, PubSub, PubSubStream};
use redis::{AsyncConnectionConfig, ErrorKind, RedisConnectionInfo, RedisError, ServerErrorKind};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::error::LinkError;
use crate::metered::{Meter, Metered};
use crate::target::Target;
use crate::tls;
use crate::transport::{self, Transport};

/// Most bytes of answers to PUBLISH that have not been used: each has some ten.
const ANSWERS: usize = 256 << 10;
/// Bytes of messages that may wait for the receiver, beside the largest one.
const WAITING: usize = 1 << 20;

/// How long the handshake of TLS may take, less than all of connecting may.
const HANDSHAKE: Duration = Duration::from_secs(4);

pub(crate) struct Redis;

pub(crate) struct Sender {
    connection: MultiplexedConnection,
    driver: AbortHandle,
    channel: String,
    meter: Arc<Meter>,
}

pub(crate) struct Receiver {
    stream: PubSubStream,
    meter: Arc<Meter>,
    channel: usize,
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

impl Transport for Redis {
    type Sender = Sender;
    type Receiver = Receiver;

    async fn connect(target: &Target, most: usize) -> Result<(Sender, Receiver), LinkError> {
        let mut user = RedisConnectionInfo::default().set_skip_set_lib_name();
        if let Some(name) = &target.user {
            user = user.set_username(name);
        }
        if let Some(password) = &target.password {
            user = user.set_password(password);
        }
        let channel = format!("{}:events", target.prefix);

        let meter = Meter::new(most + WAITING);
        let stream = Metered::new(open(target).await?, &meter);
        let mut messages = PubSub::new(&user, stream).await.map_err(failed)?;
        messages.subscribe(&channel).await.map_err(failed)?;
        meter.used(usize::MAX);
        let receiver = Receiver { stream: messages.into_on_message(), meter, channel: channel.len() };

        let meter = Meter::new(ANSWERS);
        let stream = Metered::new(open(target).await?, &meter);
        // The link has timeouts of its own.
        let config = AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(None);
        let connection = MultiplexedConnection::new_with_config(&user, stream, config).await;
        let (connection, driver) = connection.map_err(failed)?;
        let driver = tokio::spawn(driver).abort_handle();
        Ok((Sender { connection, driver, channel, meter }, receiver))
    }
}

async fn open(target: &Target) -> Result<Box<dyn Stream>, LinkError> {
    let connect = |error: std::io::Error| LinkError::Connect(error.to_string());
    // Names are resolved on the runtime's few threads for this. They are bounded, and no worker waits for them.
    let stream = TcpStream::connect((target.host.as_str(), target.port)).await.map_err(connect)?;
    stream.set_nodelay(true).map_err(connect)?;
    let Some(settings) = &target.tls else { return Ok(Box::new(stream)) };
    // Read again each time: a renewed certificate counts from the next connection on.
    let config = tls::client_config(settings).map_err(|(key, problem)| LinkError::Tls(format!("{key}: {problem}")))?;
    let name = settings.server_name.as_ref().unwrap_or(&target.host).clone();
    let name = ServerName::try_from(name).map_err(|error| LinkError::Tls(error.to_string()))?;
    // A server without TLS may wait for more of what it takes for a command.
    let stream = timeout(HANDSHAKE, TlsConnector::from(config).connect(name, stream)).await;
    let stream = stream.map_err(|_| LinkError::Tls(format!("no answer within {} s", HANDSHAKE.as_secs())))?;
    Ok(Box::new(stream.map_err(|error| LinkError::Tls(error.to_string()))?))
}

fn failed(error: RedisError) -> LinkError {
    let text = error.to_string();
    match error.kind() {
        ErrorKind::AuthenticationFailed => LinkError::Refused(text),
        _ if matches!(error.code(), Some("WRONGPASS" | "NOAUTH")) => LinkError::Refused(text),
        ErrorKind::Server(ServerErrorKind::NoPerm) => LinkError::Refused(text),
        ErrorKind::Server(_) | ErrorKind::Extension => LinkError::Broker(text),
        _ => LinkError::Broken(text),
    }
}

impl transport::Sender for Sender {
    async fn send(&mut self, messages: &[Bytes]) -> Result<usize, LinkError> {
        let mut pipe = redis::Pipeline::with_capacity(messages.len());
        for message in messages {
            pipe.cmd("PUBLISH").arg(&self.channel).arg(&message[..]).ignore();
        }
        let answers: Result<(), _> = pipe.query_async(&mut self.connection).await;
        self.meter.used(usize::MAX);
        answers.map(|()| 0).map_err(failed)
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        // It may be writing to a broker that takes nothing.
        self.driver.abort();
    }
}

impl transport::Receiver for Receiver {
    async fn next(&mut self) -> Result<Bytes, LinkError> {
        let message = tokio::select! {
            // First: a full meter is an error only if no message is complete.
            biased;
            message = self.stream.next() => message.ok_or(LinkError::Closed)?,
            () = self.meter.full() => return Err(LinkError::TooLarge(self.meter.most())),
        };
        let payload = message.get_payload_bytes();
        // `*3`, `message`, the channel and the payload, each with its length.
        let framing = 32 + digits(self.channel) + digits(payload.len()) + self.channel;
        self.meter.used(framing + payload.len());
        Ok(Bytes::copy_from_slice(payload))
    }
}

fn digits(number: usize) -> usize {
    number.checked_ilog10().unwrap_or(0) as usize + 1
}
