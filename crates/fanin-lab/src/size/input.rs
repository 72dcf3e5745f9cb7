//! Opens logs: files, standard input, gzip; reads them line by line in bounded memory.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use flate2::read::MultiGzDecoder;
use memchr::memchr;

use super::SizeError;

/// The longest line read; what is longer is counted as broken.
const BUFFER: usize = 256 << 10;

/// Beginnings of compressed files that are not read here, and what reads them.
const COMPRESSED: [(&[u8], &str, &str); 4] = [
    (b"\x28\xb5\x2f\xfd", "zstd", "zstdcat"),
    (b"\xfd7zXZ\0", "xz", "xzcat"),
    (b"BZh", "bzip2", "bzcat"),
    (b"PK\x03\x04", "zip", "unzip -p"),
];

/// One log, opened.
pub(crate) struct Log {
    pub(crate) path: PathBuf,
    pub(crate) lines: Lines,
}

impl Log {
    /// Opens `path`, or standard input for `-`. `read` is told the bytes taken from the file as they are.
    pub(crate) fn open(path: &Path, read: Rc<Cell<u64>>) -> Result<Log, SizeError> {
        let open = |source| SizeError::Open { file: path.to_owned(), source };
        let source: Box<dyn Read> = if path == Path::new("-") {
            Box::new(io::stdin().lock())
        } else {
            Box::new(File::open(path).map_err(open)?)
        };
        let path = if path == Path::new("-") { PathBuf::from("standard input") } else { path.to_owned() };
        Log::read(path, Box::new(Counting { source, read }))
    }

    /// Reads from `source`, whatever that is.
    pub(crate) fn read(path: PathBuf, mut source: Box<dyn Read>) -> Result<Log, SizeError> {
        let mut head = Vec::with_capacity(6);
        let failed = |source| SizeError::Read { file: path.clone(), line: 0, source };
        source.by_ref().take(6).read_to_end(&mut head).map_err(failed)?;
        for (magic, name, tool) in COMPRESSED {
            if head.starts_with(magic) {
                let what = format!("compressed with {name}; use `{tool} {} | fanin size -`", path.display());
                return Err(SizeError::Binary { file: path, what });
            }
        }
        let zipped = head.starts_with(b"\x1f\x8b");
        let source = io::Cursor::new(head).chain(source);
        let source: Box<dyn Read> = if zipped { Box::new(MultiGzDecoder::new(source)) } else { Box::new(source) };
        let mut lines = Lines::new(source);
        if let Err(source) = lines.fill() {
            return Err(SizeError::Read { file: path, line: 0, source });
        }
        lines.skip_hole();
        if is_binary(lines.ahead()) {
            return Err(SizeError::Binary { file: path, what: "binary, not an access log".to_owned() });
        }
        Ok(Log { path, lines })
    }
}

/// Whether most of the lines hold NULs. Some may: `copytruncate` leaves holes in a log.
fn is_binary(bytes: &[u8]) -> bool {
    let mut lines = [0_usize; 2];
    for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        lines[usize::from(memchr(0, line).is_some())] += 1;
    }
    lines[1] > lines[0]
}

/// Counts bytes, for the progress bar.
struct Counting {
    source: Box<dyn Read>,
    read: Rc<Cell<u64>>,
}

impl Read for Counting {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let count = self.source.read(to)?;
        self.read.set(self.read.get() + count as u64);
        Ok(count)
    }
}

/// One line.
pub(crate) enum Line<'a> {
    /// The text, without the line's end.
    Text(&'a [u8]),
    /// The line is longer than the buffer; its beginning.
    TooLong(&'a [u8]),
}

/// Lines out of one buffer; nothing is allocated per line.
pub(crate) struct Lines {
    source: Box<dyn Read>,
    buffer: Box<[u8]>,
    /// What is read and not given out: `buffer[start..end]`.
    start: usize,
    end: usize,
    ended: bool,
    /// The rest of a line that was too long is to be dropped.
    dropping: bool,
    number: u64,
    /// The source has failed; to be told once all that was read is given out.
    failed: Option<io::Error>,
}

impl Lines {
    fn new(source: Box<dyn Read>) -> Lines {
        let buffer = vec![0; BUFFER].into_boxed_slice();
        Lines { source, buffer, start: 0, end: 0, ended: false, dropping: false, number: 0, failed: None }
    }

    /// The number of the line given out last, from 1.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// What is read already, for a look at the form.
    pub(crate) fn ahead(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Whether nothing follows what [`Lines::ahead`] shows.
    pub(crate) fn is_all_ahead(&self) -> bool {
        self.ended
    }

    /// Reads until the buffer is full or the source ends.
    ///
    /// A source that gives a little at a time (a pipe) is waited for: the form is found once, from the beginning. Fails
    /// only if nothing was read.
    fn fill(&mut self) -> io::Result<()> {
        while !self.ended && self.end < self.buffer.len() {
            self.read_more();
        }
        match self.failed.take() {
            Some(error) if self.end == 0 => Err(error),
            failed => {
                self.failed = failed;
                Ok(())
            }
        }
    }

    /// Shortens a hole at the beginning to one NUL, so that the lines behind it are ahead, however long it is.
    fn skip_hole(&mut self) {
        let mut hole = false;
        loop {
            let length = self.ahead().iter().take_while(|byte| **byte == 0).count();
            hole |= length > 0;
            self.start += length;
            if self.start < self.end || self.ended {
                break;
            }
            (self.start, self.end) = (0, 0);
            self.read_more();
        }
        if !hole {
            return;
        }
        // One NUL before what is left, so that the line counts as one with NULs. There is room before it or behind it, unless
        // the hole ended exactly with a full buffer; then it is not counted.
        if self.start == 0 && self.end < self.buffer.len() {
            self.buffer.copy_within(..self.end, 1);
            (self.start, self.end) = (1, self.end + 1);
        }
        if self.start > 0 {
            self.start -= 1;
            self.buffer[self.start] = 0;
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        while !self.ended && self.end < self.buffer.len() {
            self.read_more();
        }
    }

    fn read_more(&mut self) {
        match self.source.read(&mut self.buffer[self.end..]) {
            Ok(0) => self.ended = true,
            Ok(count) => self.end += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => (self.ended, self.failed) = (true, Some(error)),
        }
    }

    /// The next line; `None` at the end.
    ///
    /// # Errors
    /// What the source says. Whole lines before the failure have been given out; the line cut by it is lost.
    pub(crate) fn next(&mut self) -> io::Result<Option<Line<'_>>> {
        let mut searched = self.start;
        loop {
            if let Some(at) = memchr(b'\n', &self.buffer[searched..self.end]) {
                let (from, to) = (self.start, searched + at);
                self.start = to + 1;
                if std::mem::take(&mut self.dropping) {
                    searched = self.start;
                    continue;
                }
                self.number += 1;
                let line = &self.buffer[from..to];
                return Ok(Some(Line::Text(line.strip_suffix(b"\r").unwrap_or(line))));
            }
            if self.ended {
                let (from, to) = (self.start, self.end);
                self.start = to;
                if let Some(error) = self.failed.take() {
                    return Err(error);
                }
                if from == to || std::mem::take(&mut self.dropping) {
                    return Ok(None);
                }
                self.number += 1;
                return Ok(Some(Line::Text(&self.buffer[from..to])));
            }
            if self.dropping {
                (self.start, self.end) = (0, 0);
            } else if self.end - self.start == self.buffer.len() {
                (self.start, self.end, self.dropping) = (0, 0, true);
                self.number += 1;
                return Ok(Some(Line::TooLong(&self.buffer)));
            } else if self.end == self.buffer.len() {
                self.buffer.copy_within(self.start..self.end, 0);
                (self.start, self.end) = (0, self.end - self.start);
            }
            searched = self.end;
            self.read_more();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives one byte at a time.
    struct Slowly<'a>(&'a [u8]);

    impl Read for Slowly<'_> {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            let count = self.0.len().min(to.len()).min(1);
            to[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    fn all(source: Box<dyn Read>) -> Vec<(u64, usize, bool)> {
        let mut lines = Lines::new(source);
        let mut all = Vec::new();
        loop {
            let (length, cut) = match lines.next().unwrap() {
                None => return all,
                Some(Line::Text(text)) => (text.len(), false),
                Some(Line::TooLong(text)) => (text.len(), true),
            };
            all.push((lines.number(), length, cut));
        }
    }

    #[test]
    fn lines_of_all_lengths() {
        let text = b"a\r\n\nbcd\nlast";
        let expected = vec![(1, 1, false), (2, 0, false), (3, 3, false), (4, 4, false)];
        assert_eq!(all(Box::new(&text[..])), expected);
        assert_eq!(all(Box::new(Slowly(b"a\r\n\nbcd\nlast"))), expected);
        assert_eq!(all(Box::new(&b""[..])), vec![]);
    }

    #[test]
    fn lines_cross_the_buffer() {
        let text: Vec<u8> =
            (0..20_000).flat_map(|number| format!("{number:0width$}\n", width = number % 90).into_bytes()).collect();
        let lengths: Vec<usize> = text.split(|byte| *byte == b'\n').map(<[u8]>::len).collect();
        assert!(text.len() > 3 * BUFFER);
        let read = all(Box::new(io::Cursor::new(text)));
        assert_eq!(read.len(), 20_000);
        assert!(read.iter().zip(&lengths).all(|((_, length, _), expected)| length == expected));
    }

    #[test]
    fn a_line_too_long_is_cut_and_the_next_is_whole() {
        for (extra, rest) in [(0, 3), (1, 3), (BUFFER * 2 + 5, 3)] {
            let mut text = vec![b'x'; BUFFER + extra];
            text.extend_from_slice(b"\nabc\n");
            assert_eq!(all(Box::new(io::Cursor::new(text))), vec![(1, BUFFER, true), (2, rest, false)], "{extra}");
        }
    }
}
