//! Who is asking: the client's address, behind load balancers too.
//!
//! - `address`: the addresses of a connection.
//! - `proxy_protocol`: the PROXY header in front of a connection.
//! - `forwarded`: `X-Forwarded-For` and `Forwarded` of a request.
//! - `limits`: what each client has open. `connection_limits`: the bounds of a connection's client.

mod address;
mod connection_limits;
mod forwarded;
mod limits;
mod proxy_protocol;

use std::net::IpAddr;

pub(crate) use address::{ClientAddress, text};
pub(crate) use connection_limits::{ConnectionLimits, InProgress};
pub(crate) use forwarded::client as forwarded_client;
pub(crate) use limits::{Bound, Clients, WINDOW};
pub(crate) use proxy_protocol::{HeaderError, read as read_proxy_header};

/// Entries for the fuzz targets.
pub(crate) mod fuzz {
    use super::{forwarded, proxy_protocol};

    /// Whether bytes begin with a whole PROXY header.
    pub fn proxy_header(bytes: &[u8]) -> bool {
        let header = proxy_protocol::parse(bytes);
        if let Ok(Some(header)) = header {
            assert!(header.len <= bytes.len());
            // The header alone is the same header, and nothing shorter is one.
            assert_eq!(proxy_protocol::parse(&bytes[..header.len]), Ok(Some(header)));
            assert_eq!(proxy_protocol::parse(&bytes[..header.len - 1]), Ok(None));
        }
        matches!(header, Ok(Some(_)))
    }

    /// Whether the lines of a header name a client. Loopback is trusted.
    pub fn forwarded(bytes: &[u8]) -> bool {
        let of = |is_forwarded| {
            let lines = bytes.split(|byte| *byte == b'\n').rev();
            forwarded::walk(lines, is_forwarded, |address| address.is_loopback())
        };
        let (list, forwarded) = (of(false), of(true));
        list.or(forwarded).is_some()
    }
}

/// Whether `trusted` names this address.
pub(crate) fn is_trusted(server: &fanin_config::Server, address: IpAddr) -> bool {
    server.trusted.iter().any(|network| network.contains(address))
}
