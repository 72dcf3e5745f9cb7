//! Events of channels over WebSocket (RFC 6455): the handshake, and a subscription behind it.
//!
//! The server does the I/O and asks for bytes only when the client has taken those before. `fanin-websocket` makes frames of messages.

use std::task::{Context, Poll, ready};

use bytes::Bytes;
use fanin_config::web_origin;
use fanin_push::{End, Message, Messages, Subscription};
use fanin_server::{Problem, Request, RequestId, Response, Upgraded};
use fanin_websocket::{CloseCode, Next, VERSION, WebSocket};
use http::StatusCode;
use http::header::{
    CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, ORIGIN, SEC_WEBSOCKET_ACCEPT,
    SEC_WEBSOCKET_EXTENSIONS, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
};

/// The subprotocol. It is chosen if the client offers it.
const PROTOCOL: &str = "fanin.events.v1";

/// A valid handshake.
#[derive(Debug)]
pub(super) struct Handshake {
    accept: HeaderValue,
    offers_protocol: bool,
}

/// Why a handshake is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum HandshakeError {
    #[error("Sec-WebSocket-Version must be 13, once")]
    Version,
    #[error("Sec-WebSocket-Key must be 16 bytes in Base64, once")]
    Key,
    #[error("the Origin is neither the server's own nor in allowed_origins")]
    Origin,
}

impl HandshakeError {
    pub(super) fn response(self, id: RequestId) -> Response {
        let (status, kind, title) = match self {
            HandshakeError::Version => {
                (StatusCode::UPGRADE_REQUIRED, "websocket-version", "The version of the WebSocket is not supported")
            }
            HandshakeError::Key => (StatusCode::BAD_REQUEST, "bad-request", "The request is not valid"),
            HandshakeError::Origin => (StatusCode::FORBIDDEN, "origin", "Pages of this origin may not do this"),
        };
        let mut response: Response = Problem::new(status, kind, title).detail(self.to_string()).request(id).into();
        if self == HandshakeError::Version {
            response.headers.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static(VERSION));
        }
        response
    }
}

impl Handshake {
    /// The handshake of a request, `None` if it is an ordinary one. `allowed` are further origins.
    ///
    /// # Errors
    /// Why it is refused.
    pub(super) fn read(request: &Request, allowed: &[String]) -> Option<Result<Handshake, HandshakeError>> {
        let is_handshake = request.can_upgrade
            && has_token(&request.headers, &UPGRADE, "websocket")
            && has_token(&request.headers, &CONNECTION, "upgrade");
        is_handshake.then(|| Handshake::check(&request.headers, allowed))
    }

    fn check(headers: &HeaderMap, allowed: &[String]) -> Result<Handshake, HandshakeError> {
        if only(headers, &SEC_WEBSOCKET_VERSION).is_none_or(|version| version.as_bytes() != VERSION.as_bytes()) {
            return Err(HandshakeError::Version);
        }
        let key = only(headers, &SEC_WEBSOCKET_KEY).map(HeaderValue::as_bytes);
        let accept = key.and_then(fanin_websocket::accept).ok_or(HandshakeError::Key)?;
        if !is_allowed(headers, allowed) {
            return Err(HandshakeError::Origin);
        }
        // Base64 is valid in a header.
        let accept = HeaderValue::from_str(&accept).unwrap_or(HeaderValue::from_static(""));
        Ok(Handshake { accept, offers_protocol: has_token(headers, &SEC_WEBSOCKET_PROTOCOL, PROTOCOL) })
    }

    /// The response that opens the WebSocket. `headers` are those of the flow.
    pub(super) fn response(self, mut headers: HeaderMap, subscription: Subscription) -> Response {
        let socket = EventSocket { socket: WebSocket::default(), messages: Some(Messages::new(subscription)) };
        let mut response = Response::switching_protocols(HeaderValue::from_static("websocket"), socket);
        for name in [CONTENT_TYPE, CACHE_CONTROL, SEC_WEBSOCKET_EXTENSIONS, SEC_WEBSOCKET_PROTOCOL] {
            headers.remove(name);
        }
        headers.extend(std::mem::take(&mut response.headers).drain().filter_map(|(name, value)| Some((name?, value))));
        headers.insert(SEC_WEBSOCKET_ACCEPT, self.accept);
        if self.offers_protocol {
            headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(PROTOCOL));
        }
        response.headers = headers;
        response
    }
}

/// The value of a header that is there once.
fn only<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h HeaderValue> {
    let mut values = headers.get_all(name).iter();
    values.next().filter(|_| values.next().is_none())
}

/// Whether a header that is a list has a token.
fn has_token(headers: &HeaderMap, name: &HeaderName, token: &str) -> bool {
    let tokens = headers.get_all(name).iter().flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    tokens.into_iter().any(|one| one.trim_ascii().eq_ignore_ascii_case(token.as_bytes()))
}

/// Browsers let any page open a WebSocket to any host, with the host's cookies, and say which origin the page has.
fn is_allowed(headers: &HeaderMap, allowed: &[String]) -> bool {
    let mut origins = headers.get_all(ORIGIN).iter();
    let (Some(origin), None) = (origins.next(), origins.next()) else { return !headers.contains_key(ORIGIN) };
    if allowed.iter().any(|one| one == "*") {
        return true;
    }
    let Some(origin) = origin.to_str().ok().and_then(web_origin) else { return false };
    let own = || {
        let (scheme, _) = origin.split_once("://")?;
        // A load balancer may speak TLS to the client and none to this server, so the scheme is not compared.
        web_origin(&format!("{scheme}://{}", only(headers, &HOST)?.to_str().ok()?))
    };
    allowed.contains(&origin) || own().is_some_and(|own| own == origin)
}

/// A subscription over an open WebSocket.
struct EventSocket {
    socket: WebSocket,
    /// `None` once the socket closes: the channels forget it at once.
    messages: Option<Messages>,
}

impl Upgraded for EventSocket {
    fn on_bytes(&mut self, bytes: &[u8]) {
        self.socket.on_bytes(bytes);
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if !self.socket.is_open() {
            self.messages = None;
        }
        loop {
            match ready!(self.socket.poll_next(cx)) {
                Next::Bytes(bytes) => return Poll::Ready(Some(bytes)),
                Next::Ended => return Poll::Ready(None),
                Next::Idle => {}
            }
            // It is there as long as the socket is open.
            let Some(messages) = &mut self.messages else { return Poll::Ready(None) };
            match ready!(messages.poll_next(cx)) {
                Some(Message::Heartbeat) => self.socket.ping(),
                Some(Message::Event(text)) => self.socket.send_text(&text),
                Some(Message::Last(text, end)) => {
                    self.messages = None;
                    self.socket.send_text(&text);
                    match end {
                        End::Lost => self.socket.close(CloseCode::Again, "events are lost"),
                        End::Drain => self.socket.close(CloseCode::Away, "the server ends"),
                    }
                }
                // The last message has closed it.
                None => self.messages = None,
            }
        }
    }
}
