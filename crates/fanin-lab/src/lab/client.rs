//! A client that blocks, one request at a time on one connection: for callers whose number is the point.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::error::LabError;

/// Nothing here may take longer.
const PATIENCE: Duration = Duration::from_secs(30);
/// The largest body that an experiment asks for.
const MOST: usize = 64 << 20;

/// One connection.
pub(crate) struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    pub(crate) fn connect(addr: SocketAddr) -> Result<Client, LabError> {
        let failed = || LabError::io(format!("connecting to {addr}"));
        let stream = TcpStream::connect_timeout(&addr, PATIENCE).map_err(failed())?;
        stream.set_nodelay(true).map_err(failed())?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(failed())?;
        Ok(Client { stream: BufReader::with_capacity(64 << 10, stream) })
    }

    /// Status and body of an answer with a length.
    pub(crate) fn get(&mut self, target: &str) -> Result<(u16, Vec<u8>), LabError> {
        let what = || LabError::io(format!("GET {target}"));
        let head = format!("GET {target} HTTP/1.1\r\nhost: lab\r\n\r\n");
        self.stream.get_mut().write_all(head.as_bytes()).map_err(what())?;
        let mut line = String::new();
        self.stream.read_line(&mut line).map_err(what())?;
        let status = line.split(' ').nth(1).and_then(|code| code.parse().ok());
        let status = status.ok_or_else(|| LabError::Wrong(format!("GET {target}: {line:?} is no status")))?;
        let mut length = 0;
        loop {
            line.clear();
            if self.stream.read_line(&mut line).map_err(what())? <= 2 {
                break;
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse::<usize>().unwrap_or(0).min(MOST);
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).map_err(what())?;
        Ok((status, body))
    }

    /// The body of an answer that must be 200.
    pub(crate) fn ok(&mut self, target: &str) -> Result<Vec<u8>, LabError> {
        match self.get(target)? {
            (200, body) => Ok(body),
            (status, body) => {
                Err(LabError::Wrong(format!("GET {target}: {status} {}", String::from_utf8_lossy(&body))))
            }
        }
    }
}
