//! How a connection begins: TLS if the upstream says so, who we are, and the proof of it.

use std::sync::Arc;

use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{ChannelBinding, SCRAM_SHA_256, ScramSha256};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::link::Link;
use super::messages::{Body, SSL_REQUEST, Said, cancel, message, startup, text, unexpected};
use crate::endpoint::Endpoint;
use crate::error::{ErrorKind, Failure};
use crate::transport::sql::access::Access;
use crate::transport::stream::{self, Stream};

/// Why there is no connection.
enum Refused {
    Said(Said),
    Failed(Failure),
    /// Something that we or the server cannot do.
    Because(String),
}

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Refused {
        Refused::Failed(failure)
    }
}

/// By which another connection can end this one's statement.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Key {
    process: u32,
    secret: u32,
}

/// Connects, signs on, and has the server run `settings`.
pub(super) async fn sign_on(endpoint: &Arc<Endpoint>, access: &Access, settings: &str) -> Result<(Link, Key), Failure> {
    let mut link = Link::new(wire(endpoint, access).await?, access.max_message);
    let result = async {
        greet(&mut link, access)?;
        authenticate(&mut link, access).await?;
        let key = until_ready(&mut link).await?;
        link.simple(settings);
        until_ready(&mut link).await?;
        Ok(key)
    };
    let key = result.await.map_err(|refused| {
        let what = match refused {
            Refused::Said(said) => format!("{}: {}", said.code(), said.message()),
            Refused::Failed(failure) => failure.detail.into_owned(),
            Refused::Because(what) => what,
        };
        failed(endpoint, &what)
    })?;
    Ok((link, key))
}

/// Ends the statement that runs on another connection, if one does. Returns once the server has sent the signal, so that it
/// cannot hit a later statement.
pub(super) async fn cancel_statement(endpoint: &Endpoint, access: &Access, key: Key) -> Result<(), Failure> {
    let mut stream = wire(endpoint, access).await?;
    let sent = async {
        stream.write_all(&cancel(key.process, key.secret)).await?;
        stream.flush().await
    };
    sent.await.map_err(|error| failed(endpoint, &error.to_string()))?;
    // The server closes the connection then, with or without words.
    let _ = stream.read(&mut [0; 1]).await;
    Ok(())
}

#[cold]
fn failed(endpoint: &Endpoint, what: &str) -> Failure {
    Failure::new(ErrorKind::Connect, format!("{}: {what}", endpoint.address))
}

/// A stream on which the protocol begins.
async fn wire(endpoint: &Endpoint, access: &Access) -> Result<Stream, Failure> {
    let mut tcp = stream::connect(endpoint).await?;
    let Some(tls) = &access.tls else { return Ok(Stream::Tcp(tcp)) };
    tcp.write_all(&SSL_REQUEST).await.map_err(|error| failed(endpoint, &error.to_string()))?;
    // One byte and no more: nothing that comes before TLS counts.
    match tcp.read_u8().await {
        Ok(b'S') => Ok(Stream::Tls(Box::new(tls.handshake(tcp, endpoint).await?))),
        Ok(_) => Err(failed(endpoint, "the server does not offer TLS")),
        Err(error) => Err(failed(endpoint, &error.to_string())),
    }
}

fn greet(link: &mut Link, access: &Access) -> Result<(), Refused> {
    let settings = [
        ("user", access.user.as_str()),
        ("database", &access.database),
        ("application_name", &access.application),
        ("client_encoding", "UTF8"),
    ];
    if let Some((name, _)) = settings.iter().find(|(_, value)| value.contains('\0')) {
        return Err(Refused::Because(format!("{name} holds a zero byte")));
    }
    startup(link.outbox(), &settings);
    Ok(())
}

/// The next message of signing on, as a number that says what it asks for.
async fn asked(link: &mut Link) -> Result<(u32, Body<'_>), Refused> {
    match link.next().await? {
        (b'R', mut body) => match body.u32() {
            Some(what) => Ok((what, body)),
            None => Err(unexpected(b'R').into()),
        },
        (b'E', body) => Err(Refused::Said(Said::read(body))),
        (tag, _) => Err(unexpected(tag).into()),
    }
}

/// Proves who we are in the way that the server asks for.
async fn authenticate(link: &mut Link, access: &Access) -> Result<(), Refused> {
    const OK: u32 = 0;
    const PLAIN: u32 = 3;
    const MD5: u32 = 5;
    const SASL: u32 = 10;
    let password = || {
        let none = || Refused::Because("the server asks for a password, and none is configured".to_owned());
        access.password.as_deref().ok_or_else(none)
    };
    let (what, body) = asked(link).await?;
    let proof = match what {
        OK => return Ok(()),
        PLAIN => Some(password()?.to_owned()),
        MD5 => {
            let Some(salt) = body.0.first_chunk() else { return Err(unexpected(b'R').into()) };
            Some(md5_hash(access.user.as_bytes(), password()?.as_bytes(), *salt))
        }
        SASL => {
            // Names, each with its zero.
            if !body.0.split(|byte| *byte == 0).any(|name| name == SCRAM_SHA_256.as_bytes()) {
                return Err(Refused::Because("the server offers no SCRAM-SHA-256".to_owned()));
            }
            scram(link, password()?).await?;
            None
        }
        _ => {
            let what = format!("the server wants to be signed on to in a way that is not known here ({what})");
            return Err(Refused::Because(what));
        }
    };
    if let Some(proof) = proof {
        if proof.contains('\0') {
            return Err(Refused::Because("the password holds a zero byte".to_owned()));
        }
        message(link.outbox(), b'p', |out| text(out, &proof));
    }
    match asked(link).await?.0 {
        OK => Ok(()),
        _ => Err(unexpected(b'R').into()),
    }
}

/// SCRAM-SHA-256 (RFC 7677). The server proves that it knows the password too; it is not believed before.
async fn scram(link: &mut Link, password: &str) -> Result<(), Refused> {
    const CONTINUE: u32 = 11;
    const FINAL: u32 = 12;
    let broken = |error: std::io::Error| Refused::Because(format!("signing on by SCRAM: {error}"));
    let mut scram = ScramSha256::new(password.as_bytes(), ChannelBinding::unsupported());
    message(link.outbox(), b'p', |out| {
        text(out, SCRAM_SHA_256);
        let first = scram.message();
        out.extend_from_slice(&(first.len() as u32).to_be_bytes());
        out.extend_from_slice(first);
    });
    match asked(link).await? {
        (CONTINUE, body) => scram.update(body.0).map_err(broken)?,
        _ => return Err(unexpected(b'R').into()),
    }
    message(link.outbox(), b'p', |out| out.extend_from_slice(scram.message()));
    match asked(link).await? {
        (FINAL, body) => scram.finish(body.0).map_err(broken),
        _ => Err(unexpected(b'R').into()),
    }
}

/// Reads until the server is ready for a statement.
async fn until_ready(link: &mut Link) -> Result<Key, Refused> {
    let mut key = Key::default();
    loop {
        match link.next().await? {
            (b'K', mut body) => {
                let (Some(process), Some(secret)) = (body.u32(), body.u32()) else {
                    return Err(unexpected(b'K').into());
                };
                key = Key { process, secret };
            }
            (b'E', body) => return Err(Refused::Said(Said::read(body))),
            (b'Z', _) => return Ok(key),
            // Of statements that set something.
            (b'C', _) => {}
            (tag, _) => return Err(unexpected(tag).into()),
        }
    }
}
