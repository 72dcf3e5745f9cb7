//! Messages over standard input and output. A message that is too large or no JSON is skipped, and the next one is read.

use std::io::{self, BufRead, Read, Write};

use lsp_server::Message;

/// Largest message that is taken.
pub(crate) const MAX_MESSAGE: u64 = 16 << 20;

/// Longest line of a head.
const MAX_LINE: u64 = 4096;

/// What came in.
#[derive(Debug)]
pub(crate) enum Incoming {
    Message(Message),
    /// What was skipped, and why.
    Skipped(String),
}

/// Reads the next message; `None` at the end of the input.
///
/// # Errors
/// The input cannot be read.
pub(crate) fn read(from: &mut impl BufRead) -> io::Result<Option<Incoming>> {
    let mut size: Option<u64> = None;
    loop {
        let mut line = Vec::new();
        if from.by_ref().take(MAX_LINE).read_until(b'\n', &mut line)? == 0 {
            return Ok(None);
        }
        let line = String::from_utf8_lossy(&line);
        let line = line.trim();
        match line.split_once(':') {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => size = value.trim().parse().ok(),
            // A head ends with an empty line; without a length, it was none.
            None if line.is_empty() && size.is_some() => break,
            _ => {}
        }
    }
    let size = size.unwrap_or(0);
    if size > MAX_MESSAGE {
        io::copy(&mut from.take(size), &mut io::sink())?;
        return Ok(Some(Incoming::Skipped(format!("a message of {size} bytes is larger than {MAX_MESSAGE}"))));
    }
    let mut body = Vec::new();
    from.take(size).read_to_end(&mut body)?;
    if (body.len() as u64) < size {
        return Ok(None);
    }
    Ok(Some(match serde_json::from_slice(&body) {
        Ok(message) => Incoming::Message(message),
        Err(error) => Incoming::Skipped(format!("a message is not valid: {error}")),
    }))
}

/// Writes a message.
///
/// # Errors
/// The output cannot be written.
pub(crate) fn write(to: &mut dyn Write, message: &Message) -> io::Result<()> {
    message.write(&mut { to })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(mut input: &[u8]) -> Vec<String> {
        let mut found = Vec::new();
        while let Some(one) = read(&mut input).expect("memory can be read") {
            found.push(match one {
                Incoming::Message(Message::Request(request)) => request.method,
                Incoming::Message(Message::Notification(notification)) => notification.method,
                Incoming::Message(Message::Response(_)) => "response".to_owned(),
                Incoming::Skipped(_) => "skipped".to_owned(),
            });
        }
        found
    }

    #[test]
    fn what_is_wrong_is_skipped() {
        let good = "Content-Length: 33\r\n\r\n{\"jsonrpc\":\"2.0\",\"method\":\"good\"}";
        let large = format!("Content-Length: {}\r\n\r\n{}", MAX_MESSAGE + 1, " ".repeat(MAX_MESSAGE as usize + 1));
        for bad in ["Content-Length: 3\r\n\r\n{{{", "nonsense\r\n\r\n", "Content-Length: x\r\n\r\n", &large] {
            let found = all(format!("{bad}{good}{good}").as_bytes());
            assert_eq!(found.iter().filter(|one| *one == "good").count(), 2, "{found:?}");
        }
        assert_eq!(all(b"Content-Length: 1000\r\n\r\n{"), Vec::<String>::new());
    }
}
