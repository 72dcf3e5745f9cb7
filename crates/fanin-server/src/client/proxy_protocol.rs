//! The PROXY protocol, versions 1 and 2: in front of a connection, a proxy names the client.
//!
//! <https://www.haproxy.org/download/2.9/doc/proxy-protocol.txt>. A parser of our own: it keeps no more than two addresses, and reads
//! no byte behind the header, which belongs to TLS or HTTP.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::net::TcpStream;

const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// What version 2 begins with: signature, version and command, family, length.
const FIXED: usize = 16;
/// The longest header of version 1, as its specification says.
const MAX_V1: usize = 107;
/// Most bytes of addresses and extensions of version 2. Extensions are skipped.
const MAX_V2: usize = 4096;

/// A whole header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProxyHeader {
    /// `None`: the proxy speaks for itself, or does not know.
    pub(crate) client: Option<SocketAddr>,
    /// Its bytes.
    pub(crate) len: usize,
}

/// Why a connection has no PROXY header.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HeaderError {
    #[error("the connection does not begin with a valid PROXY header")]
    Malformed,
    #[error("the connection ended before its PROXY header")]
    Ended,
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Reads the header and nothing behind it. Gives the client that it names.
pub(crate) async fn read(stream: &TcpStream) -> Result<Option<SocketAddr>, HeaderError> {
    let mut bytes = Vec::new();
    loop {
        let from = bytes.len();
        bytes.resize(from + 256, 0);
        let seen = stream.peek(&mut bytes[from..]).await?;
        if seen == 0 {
            return Err(HeaderError::Ended);
        }
        let header = parse(&bytes[..from + seen]).map_err(|Malformed| HeaderError::Malformed)?;
        let end = header.map_or(from + seen, |header| header.len);
        // What was seen is there, so this takes all of it.
        let taken = stream.try_read(&mut bytes[from..end])?;
        bytes.truncate(from + taken);
        if let Some(header) = header.filter(|header| header.len == bytes.len()) {
            return Ok(header.client);
        }
    }
}

/// Not a PROXY header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// The header that bytes begin with; `None` while it is not complete.
pub(crate) fn parse(bytes: &[u8]) -> Result<Option<ProxyHeader>, Malformed> {
    let signature = SIGNATURE.len().min(bytes.len());
    if bytes[..signature] == SIGNATURE[..signature] { parse_v2(bytes) } else { parse_v1(bytes) }
}

fn parse_v1(bytes: &[u8]) -> Result<Option<ProxyHeader>, Malformed> {
    const BEGIN: &[u8] = b"PROXY ";
    let begin = BEGIN.len().min(bytes.len());
    if bytes[..begin] != BEGIN[..begin] {
        return Err(Malformed);
    }
    let within = &bytes[..bytes.len().min(MAX_V1)];
    let Some(end) = within.windows(2).position(|two| two == b"\r\n") else {
        return if bytes.len() < MAX_V1 { Ok(None) } else { Err(Malformed) };
    };
    let line = std::str::from_utf8(&bytes[BEGIN.len()..end]).map_err(|_| Malformed)?;
    let len = end + 2;
    let words: Vec<&str> = line.split(' ').collect();
    let client = match words[..] {
        // What follows is to be ignored.
        ["UNKNOWN", ..] => None,
        [family @ ("TCP4" | "TCP6"), source, destination, source_port, destination_port] => {
            let address = |text: &str| match family {
                "TCP4" => text.parse::<Ipv4Addr>().map(IpAddr::V4).map_err(|_| Malformed),
                _ => text.parse::<Ipv6Addr>().map(IpAddr::V6).map_err(|_| Malformed),
            };
            address(destination)?;
            port(destination_port)?;
            Some(SocketAddr::new(address(source)?.to_canonical(), port(source_port)?))
        }
        _ => return Err(Malformed),
    };
    Ok(Some(ProxyHeader { client, len }))
}

fn port(text: &str) -> Result<u16, Malformed> {
    // `u16::from_str` takes a plus sign.
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().map_err(|_| Malformed) } else { Err(Malformed) }
}

fn parse_v2(bytes: &[u8]) -> Result<Option<ProxyHeader>, Malformed> {
    let Some((fixed, rest)) = bytes.split_first_chunk::<FIXED>() else { return Ok(None) };
    let [.., command, family, high, low] = *fixed;
    let len = usize::from(u16::from_be_bytes([high, low]));
    // The family in the high bits: none, IPv4, IPv6, Unix. The low ones: unspecified, stream, datagram.
    let addresses = match (family >> 4, family & 15) {
        (0, 0) => 0,
        (1, 1 | 2) => 12,
        (2, 1 | 2) => 36,
        (3, 1 | 2) => 216,
        // The addresses of a connection of the proxy itself may be anything.
        _ if command == 0x20 => 0,
        _ => return Err(Malformed),
    };
    if !matches!(command, 0x20 | 0x21) || len > MAX_V2 || (command == 0x21 && len < addresses) {
        return Err(Malformed);
    }
    if rest.len() < len {
        return Ok(None);
    }
    let number = |at: usize| u16::from_be_bytes([rest[at], rest[at + 1]]);
    let client = match (command, addresses) {
        (0x21, 12) => rest.first_chunk::<4>().map(|ip| SocketAddr::new(IpAddr::from(*ip), number(8))),
        (0x21, 36) => rest.first_chunk::<16>().map(|ip| SocketAddr::new(IpAddr::from(*ip).to_canonical(), number(32))),
        _ => None,
    };
    Ok(Some(ProxyHeader { client, len: FIXED + len }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(bytes: &[u8]) -> Result<Option<(Option<String>, usize)>, Malformed> {
        Ok(parse(bytes)?.map(|header| (header.client.map(|client| client.to_string()), bytes.len() - header.len)))
    }

    fn v2(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let len = (rest.len() as u16).to_be_bytes();
        [&SIGNATURE[..], &[command, family], &len, rest].concat()
    }

    fn complete(client: &str, left: usize) -> Result<Option<(Option<String>, usize)>, Malformed> {
        Ok(Some((Some(client.to_owned()), left)))
    }

    #[test]
    fn version_1() {
        assert_eq!(client(b"PROXY TCP4 203.0.113.7 10.0.0.1 4711 80\r\nGET"), complete("203.0.113.7:4711", 3));
        assert_eq!(client(b"PROXY TCP6 2001:db8::1 ::1 4711 80\r\n"), complete("[2001:db8::1]:4711", 0));
        assert_eq!(client(b"PROXY UNKNOWN\r\n"), Ok(Some((None, 0))));
        assert_eq!(client(b"PROXY UNKNOWN ffff:f..f ffff 65535 65535\r\nx"), Ok(Some((None, 1))));
        for wrong in [
            "GET / HTTP/1.1\r\n",
            "PROXY\r\n",
            "PROXY \r\n",
            "PROXY TCP4\r\n",
            "PROXY TCP5 203.0.113.7 10.0.0.1 4711 80\r\n",
            "PROXY TCP4 203.0.113.7 10.0.0.1 4711\r\n",
            "PROXY TCP4 203.0.113.7 10.0.0.1 4711 80 \r\n",
            "PROXY TCP4  203.0.113.7 10.0.0.1 4711 80\r\n",
            "PROXY TCP4 203.0.113.7 10.0.0.1 +4711 80\r\n",
            "PROXY TCP4 203.0.113.7 10.0.0.1 4711 65536\r\n",
            "PROXY TCP4 203.0.113.7 10.0.0.1  80\r\n",
            "PROXY TCP4 2001:db8::1 ::1 4711 80\r\n",
            "PROXY TCP6 203.0.113.7 10.0.0.1 4711 80\r\n",
            "PROXY TCP4 203.0.113.7 10.0.0.1 4711 80\n\r\n",
        ] {
            assert_eq!(client(wrong.as_bytes()), Err(Malformed), "{wrong:?}");
        }
        let long = format!("PROXY UNKNOWN {}\r\n", "x".repeat(MAX_V1));
        assert_eq!(client(long.as_bytes()), Err(Malformed));
    }

    #[test]
    fn version_2() {
        let v4 = [203, 0, 113, 7, 10, 0, 0, 1, 0x12, 0x67, 0, 80];
        assert_eq!(client(&v2(0x21, 0x11, &v4)), complete("203.0.113.7:4711", 0));
        let with_extensions = v2(0x21, 0x11, &[&v4[..], &[4, 0, 3, 1, 2, 3]].concat());
        assert_eq!(client(&[&with_extensions[..], b"GET"].concat()), complete("203.0.113.7:4711", 3));
        let mut v6 = [0; 36];
        v6[15] = 1;
        v6[33] = 80;
        assert_eq!(client(&v2(0x21, 0x21, &v6)), complete("[::1]:80", 0));
        let none = Ok(Some((None, 0)));
        assert_eq!(client(&v2(0x20, 0x00, &[])), none, "LOCAL");
        assert_eq!(client(&v2(0x20, 0x11, &v4)), none, "the addresses of LOCAL are ignored");
        assert_eq!(client(&v2(0x21, 0x00, b"abc")), none);
        assert_eq!(client(&v2(0x21, 0x31, &[0; 216])), none, "a Unix socket");
        for (command, family, rest) in [
            (0x22, 0x11, &v4[..]),
            (0x11, 0x11, &v4),
            (0x21, 0x11, &v4[..11]),
            (0x21, 0x21, &v4),
            (0x21, 0x41, &v4),
            (0x21, 0x13, &v4),
            (0x21, 0x11, &[0; MAX_V2 + 1]),
        ] {
            assert_eq!(client(&v2(command, family, rest)), Err(Malformed), "{command:x} {family:x} {}", rest.len());
        }
    }

    #[test]
    fn a_part_is_waited_for() {
        let v4 = [203, 0, 113, 7, 10, 0, 0, 1, 0x12, 0x67, 0, 80];
        for whole in [b"PROXY TCP4 203.0.113.7 10.0.0.1 4711 80\r\n".to_vec(), v2(0x21, 0x11, &v4)] {
            for end in 0..whole.len() {
                assert_eq!(client(&whole[..end]), Ok(None), "{end}");
            }
        }
    }
}
