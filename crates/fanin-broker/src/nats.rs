//! NATS: a subject of its core, without JetStream.

use std::error::Error;
use std::io;
use std::time::Duration;

use async_nats::client::PublishErrorKind;
use async_nats::{Client, ConnectError, ConnectErrorKind, ConnectOptions, Event, ServerError, Subscriber};
use bytes::Bytes;
use futures_util::StreamExt;
use tokio::sync::watch;
use tokio::task::unconstrained;

use crate::error::LinkError;
use crate::target::Target;
use crate::transport::{self, Transport};

/// Messages that may wait for the receiver. More than the client reads in one turn, which the runtime ends after 128 reads; beyond it they
/// are dropped, which their numbers show.
const WAITING: usize = 65_536;
/// Bytes of one read.
const READ: u16 = 16 << 10;
/// Commands that may wait for the connection.
const COMMANDS: usize = 64;
/// How often an idle connection is tried.
const PING: Duration = Duration::from_secs(10);

pub(crate) struct Nats;

pub(crate) struct Sender {
    client: Client,
    subject: String,
}

pub(crate) struct Receiver {
    messages: Subscriber,
    problem: watch::Receiver<Option<LinkError>>,
}

impl Transport for Nats {
    type Sender = Sender;
    type Receiver = Receiver;

    async fn connect(target: &Target, _most: usize) -> Result<(Sender, Receiver), LinkError> {
        let (tell, problem) = watch::channel(None);
        // A link that broke is replaced as a whole, so that what it missed is known. The client's own attempt after that finds nothing to do.
        let mut options = ConnectOptions::new()
            .name("fanin")
            .max_reconnects(1)
            .ignore_discovered_servers()
            .subscription_capacity(WAITING)
            .client_capacity(COMMANDS)
            .read_buffer_capacity(READ)
            .ping_interval(PING)
            .event_callback(move |event| {
                if let Some(found) = problem_of(event) {
                    // The first one is the cause of the others.
                    tell.send_if_modified(|problem| problem.replace_if_none(found));
                }
                std::future::ready(())
            });
        options = match (&target.user, &target.password) {
            (user, Some(password)) => options.user_and_password(user.clone().unwrap_or_default(), password.clone()),
            (Some(token), None) => options.token(token.clone()),
            (None, None) => options,
        };
        if let Some(settings) = &target.tls {
            options = options.require_tls(true);
            if let Some(ca) = &settings.ca {
                options = options.add_root_certificates(ca.clone());
            }
            if let (Some(cert), Some(key)) = (&settings.cert, &settings.key) {
                options = options.add_client_certificate(cert.clone(), key.clone());
            }
        }
        // Without user and password.
        let client = options.connect(target.to_string()).await.map_err(|error| refused(&error))?;
        let subject = format!("{}.events", target.prefix);
        let broken = |error: &dyn std::fmt::Display| LinkError::Broken(error.to_string());
        let messages = client.subscribe(subject.clone()).await.map_err(|error| broken(&error))?;
        client.flush().await.map_err(|error| broken(&error))?;
        Ok((Sender { client, subject }, Receiver { messages, problem }))
    }
}

/// Why it does not connect.
fn refused(error: &ConnectError) -> LinkError {
    let text = error.to_string();
    match error.kind() {
        ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => LinkError::Refused(text),
        ConnectErrorKind::Tls => LinkError::Tls(text),
        _ if is_tls(error) => LinkError::Tls(text),
        _ => LinkError::Connect(text),
    }
}

/// Whether the cause is an error of TLS, which the client takes for one of the connection.
fn is_tls(error: &ConnectError) -> bool {
    let io = error.source().and_then(|source| source.downcast_ref::<io::Error>());
    io.and_then(io::Error::get_ref).is_some_and(|inner| inner.is::<rustls::Error>())
}

trait ReplaceIfNone<T> {
    fn replace_if_none(&mut self, value: T) -> bool;
}

impl<T> ReplaceIfNone<T> for Option<T> {
    /// Sets it, unless it is set; whether it was not.
    fn replace_if_none(&mut self, value: T) -> bool {
        let is_none = self.is_none();
        if is_none {
            *self = Some(value);
        }
        is_none
    }
}

/// What of an event ends the link.
fn problem_of(event: Event) -> Option<LinkError> {
    match event {
        Event::Disconnected | Event::Closed => Some(LinkError::Closed),
        Event::ServerError(ServerError::AuthorizationViolation) => {
            Some(LinkError::Refused("authorization violation".into()))
        }
        Event::ServerError(error) => Some(LinkError::Broker(error.to_string())),
        Event::ClientError(error) => Some(LinkError::Broken(error.to_string())),
        // Missing messages are noticed by their numbers.
        Event::Connected | Event::LameDuckMode | Event::Draining | Event::SlowConsumer(_) => None,
    }
}

impl transport::Sender for Sender {
    async fn send(&mut self, messages: &[Bytes]) -> Result<usize, LinkError> {
        let mut refused = 0;
        for message in messages {
            match self.client.publish(self.subject.clone(), message.clone()).await {
                Ok(()) => {}
                Err(error) if error.kind() == PublishErrorKind::MaxPayloadExceeded => refused += 1,
                Err(error) => return Err(LinkError::Broken(error.to_string())),
            }
        }
        self.client.flush().await.map_err(|error| LinkError::Broken(error.to_string()))?;
        Ok(refused)
    }
}

impl transport::Receiver for Receiver {
    async fn next(&mut self) -> Result<Bytes, LinkError> {
        // All that waits is taken before the client's next turn, on the same thread: what one turn reads bounds the memory.
        unconstrained(async {
            tokio::select! {
                biased;
                // The sender of this one lives as long as the client.
                _ = self.problem.changed() => Err(self.problem.borrow().clone().unwrap_or(LinkError::Closed)),
                message = self.messages.next() => message.map(|message| message.payload).ok_or(LinkError::Closed),
            }
        })
        .await
    }
}
