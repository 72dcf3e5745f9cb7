//! Protocols that the generator speaks.

use serde::Serialize;

/// The protocol spoken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum Protocol {
    /// One request at a time on a connection.
    #[default]
    #[serde(rename = "HTTP/1.1")]
    Http1,
    /// Many on each of the connections; by prior knowledge, with TLS by ALPN.
    #[serde(rename = "HTTP/2")]
    Http2,
    /// A unary gRPC call over HTTP/2. The body is the message without gRPC's framing. Codes are counted as the corresponding
    /// HTTP statuses.
    #[serde(rename = "gRPC")]
    Grpc,
}
