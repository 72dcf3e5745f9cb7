//! The start of a connection: TLS, startup message, authentication.

use std::sync::Arc;

use fanin_config::PostgresAuth;
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{ChannelBinding, SCRAM_SHA_256, SCRAM_SHA_256_PLUS, ScramSha256};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::channel_binding::tls_server_end_point;
use super::message_stream::MessageStream;
use super::messages::{Body, SSL_REQUEST, cancel, message, startup, text, unexpected};
use super::server_error::ServerError;
use crate::endpoint::Endpoint;
use crate::error::{ErrorKind, Failure};
use crate::transport::sql::access::Access;
use crate::transport::stream::{self, Stream};

/// Why a connection cannot be started.
enum StartupError {
    Server(ServerError),
    Failed(Failure),
    /// Something that this client or the server does not support, or a missing password.
    Because(String),
}

impl From<Failure> for StartupError {
    fn from(failure: Failure) -> StartupError {
        StartupError::Failed(failure)
    }
}

/// The key with which another connection can cancel this one's statement.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Key {
    process: u32,
    secret: u32,
}

/// Connects, signs on, and runs `settings`.
pub(super) async fn start_up(
    endpoint: &Arc<Endpoint>,
    access: &Access,
    settings: &str,
) -> Result<(MessageStream, Key), Failure> {
    let mut stream = MessageStream::new(open_stream(endpoint, access).await?, access.max_message);
    let result = async {
        send_startup(&mut stream, access)?;
        authenticate(&mut stream, access).await?;
        let key = until_ready(&mut stream).await?;
        stream.simple_query(settings);
        until_ready(&mut stream).await?;
        Ok(key)
    };
    let key = result.await.map_err(|refused| {
        let what = match refused {
            StartupError::Server(error) => format!("{}: {}", error.code(), error.message()),
            StartupError::Failed(failure) => failure.detail.into_owned(),
            StartupError::Because(what) => what,
        };
        failed(endpoint, &what)
    })?;
    Ok((stream, key))
}

/// Cancels the statement that runs on another connection. Returns once the server has sent the signal, so that it
/// cannot cancel a later statement.
pub(super) async fn cancel_statement(endpoint: &Endpoint, access: &Access, key: Key) -> Result<(), Failure> {
    let mut socket = open_stream(endpoint, access).await?;
    let sent = async {
        socket.write_all(&cancel(key.process, key.secret)).await?;
        socket.flush().await
    };
    sent.await.map_err(|error| failed(endpoint, &error.to_string()))?;
    // The server closes the connection when it has sent the signal.
    let _ = socket.read(&mut [0; 1]).await;
    Ok(())
}

#[cold]
fn failed(endpoint: &Endpoint, what: &str) -> Failure {
    Failure::new(ErrorKind::Connect, format!("{}: {what}", endpoint.address))
}

/// Connects, with TLS if configured.
async fn open_stream(endpoint: &Endpoint, access: &Access) -> Result<Stream, Failure> {
    let mut tcp = stream::connect(endpoint.address).await?;
    let Some(tls) = &access.tls else { return Ok(Stream::Tcp(tcp)) };
    tcp.write_all(&SSL_REQUEST).await.map_err(|error| failed(endpoint, &error.to_string()))?;
    // One byte and no more: anything before TLS could be injected.
    match tcp.read_u8().await {
        Ok(b'S') => Ok(Stream::Tls(Box::new(tls.handshake(tcp, endpoint.address).await?))),
        Ok(_) => Err(failed(endpoint, "the server does not offer TLS")),
        Err(error) => Err(failed(endpoint, &error.to_string())),
    }
}

fn send_startup(stream: &mut MessageStream, access: &Access) -> Result<(), StartupError> {
    let settings = [
        ("user", access.user.as_str()),
        ("database", &access.database),
        ("application_name", &access.application),
        ("client_encoding", "UTF8"),
    ];
    if let Some((name, _)) = settings.iter().find(|(_, value)| value.contains('\0')) {
        return Err(StartupError::Because(format!("{name} holds a zero byte")));
    }
    startup(stream.write_buffer(), &settings);
    Ok(())
}

/// The next authentication request: its number and its body.
async fn next_auth_request(stream: &mut MessageStream) -> Result<(u32, Body<'_>), StartupError> {
    match stream.next().await? {
        (b'R', mut body) => match body.u32() {
            Some(what) => Ok((what, body)),
            None => Err(unexpected(b'R').into()),
        },
        (b'E', body) => Err(StartupError::Server(ServerError::read(body))),
        (tag, _) => Err(unexpected(tag).into()),
    }
}

/// Authenticates in the way that the server asks for.
async fn authenticate(stream: &mut MessageStream, access: &Access) -> Result<(), StartupError> {
    const OK: u32 = 0;
    const PLAIN: u32 = 3;
    const MD5: u32 = 5;
    const SASL: u32 = 10;
    let password = || {
        let none = || StartupError::Because("the server asks for a password, and none is configured".to_owned());
        access.password.as_deref().ok_or_else(none)
    };
    let allowed = |method: PostgresAuth, name: &str, key: &str| match method >= access.auth {
        true => Ok(()),
        false => Err(StartupError::Because(format!(
            "the server asks for {name}, which this connection does not allow: use SCRAM, or set auth = \"{key}\""
        ))),
    };
    let end_point = stream.certificate().and_then(tls_server_end_point);
    let (what, body) = next_auth_request(stream).await?;
    let proof = match what {
        OK => return Ok(()),
        PLAIN => {
            allowed(PostgresAuth::Cleartext, "the password in clear text", "cleartext")?;
            Some(password()?.to_owned())
        }
        MD5 => {
            allowed(PostgresAuth::Md5, "an MD5 hash of the password", "md5")?;
            let Some(salt) = body.0.first_chunk() else { return Err(unexpected(b'R').into()) };
            Some(md5_hash(access.user.as_bytes(), password()?.as_bytes(), *salt))
        }
        SASL => {
            // Names, each with a terminating zero byte.
            let offers = |name: &str| body.0.split(|byte| *byte == 0).any(|offered| offered == name.as_bytes());
            let (mechanism, binding) = match end_point {
                Some(hash) if offers(SCRAM_SHA_256_PLUS) => {
                    (SCRAM_SHA_256_PLUS, ChannelBinding::tls_server_end_point(hash))
                }
                // The server detects whether somebody has removed the other mechanism from its offer.
                Some(_) => (SCRAM_SHA_256, ChannelBinding::unrequested()),
                None => (SCRAM_SHA_256, ChannelBinding::unsupported()),
            };
            if !offers(mechanism) {
                return Err(StartupError::Because("the server offers no SCRAM-SHA-256".to_owned()));
            }
            scram(stream, password()?, mechanism, binding).await?;
            None
        }
        _ => {
            let what = format!("the server requires an authentication method that is not supported ({what})");
            return Err(StartupError::Because(what));
        }
    };
    if let Some(proof) = proof {
        if proof.contains('\0') {
            return Err(StartupError::Because("the password holds a zero byte".to_owned()));
        }
        message(stream.write_buffer(), b'p', |out| text(out, &proof));
    }
    match next_auth_request(stream).await?.0 {
        OK => Ok(()),
        _ => Err(unexpected(b'R').into()),
    }
}

/// SCRAM-SHA-256 (RFC 7677). The server proves that it knows the password too.
async fn scram(
    stream: &mut MessageStream,
    password: &str,
    mechanism: &str,
    binding: ChannelBinding,
) -> Result<(), StartupError> {
    const CONTINUE: u32 = 11;
    const FINAL: u32 = 12;
    let broken = |error: std::io::Error| StartupError::Because(format!("SCRAM authentication: {error}"));
    let mut scram = ScramSha256::new(password.as_bytes(), binding);
    message(stream.write_buffer(), b'p', |out| {
        text(out, mechanism);
        let first = scram.message();
        out.extend_from_slice(&(first.len() as u32).to_be_bytes());
        out.extend_from_slice(first);
    });
    match next_auth_request(stream).await? {
        (CONTINUE, body) => scram.update(body.0).map_err(broken)?,
        _ => return Err(unexpected(b'R').into()),
    }
    message(stream.write_buffer(), b'p', |out| out.extend_from_slice(scram.message()));
    match next_auth_request(stream).await? {
        (FINAL, body) => scram.finish(body.0).map_err(broken),
        _ => Err(unexpected(b'R').into()),
    }
}

/// Reads until the server is ready for a statement.
async fn until_ready(stream: &mut MessageStream) -> Result<Key, StartupError> {
    let mut key = Key::default();
    loop {
        match stream.next().await? {
            (b'K', mut body) => {
                let (Some(process), Some(secret)) = (body.u32(), body.u32()) else {
                    return Err(unexpected(b'K').into());
                };
                key = Key { process, secret };
            }
            (b'E', body) => return Err(StartupError::Server(ServerError::read(body))),
            (b'Z', _) => return Ok(key),
            // Settings have completed.
            (b'C', _) => {}
            (tag, _) => return Err(unexpected(tag).into()),
        }
    }
}
