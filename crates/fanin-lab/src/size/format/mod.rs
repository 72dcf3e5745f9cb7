//! The forms of access logs, one file each, and how the form of a file is found.

mod combined;
mod fanin;
mod number;
mod plain;
pub(crate) mod stamp;

use number::Number;
pub use number::Unit;
pub(crate) use stamp::Stamp;

use super::record::MAX_LENGTH;
use super::stamps::Stamps;

/// A form of access log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// Fanin's own JSON.
    Fanin,
    /// nginx: common or combined with `$request_time`, seconds with decimals, after the bytes.
    Nginx,
    /// Jetty, Apache: common or combined with a whole number after the bytes.
    Ncsa,
    /// `15:04:00 400 ms GET /path`.
    Plain,
}

impl Format {
    const ALL: [Format; 4] = [Format::Fanin, Format::Nginx, Format::Ncsa, Format::Plain];

    /// For people.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Format::Fanin => "Fanin's JSON",
            Format::Nginx => "combined, latency with decimals (nginx)",
            Format::Ncsa => "combined/NCSA, latency in whole numbers (Jetty, Apache)",
            Format::Plain => "plain `15:04:00 400 ms GET /path`",
        }
    }

    /// What this form's writers stamp: Fanin, Apache and Jetty when the request came; nginx when it logs, as loggers do.
    pub(crate) fn stamps(self) -> Stamps {
        match self {
            Format::Fanin | Format::Ncsa => Stamps::Start,
            Format::Nginx | Format::Plain => Stamps::End,
        }
    }

    /// Reads one line, without its end.
    ///
    /// # Errors
    /// What the line lacks.
    #[inline]
    pub(crate) fn parse(self, line: &[u8], unit: Option<Unit>) -> Result<Entry, Broken> {
        let entry = match self {
            Format::Fanin => fanin::parse(line),
            Format::Nginx => combined::parse(line, true, unit.unwrap_or(Unit::S)),
            Format::Ncsa => combined::parse(line, false, unit.unwrap_or(Unit::Ms)),
            Format::Plain => plain::parse(line),
        }?;
        if entry.length > MAX_LENGTH { Err(Broken::TooLong) } else { Ok(entry) }
    }

    /// The form that reads most of these lines, or what the one that came nearest missed.
    pub(crate) fn detect<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Result<Format, Broken> {
        let mut read = [0u32; Format::ALL.len()];
        let mut nearest = Broken::Shape;
        for line in lines {
            for (format, read) in Format::ALL.iter().zip(&mut read) {
                match format.parse(line, None) {
                    Ok(_) => *read += 1,
                    Err(reason) => nearest = nearest.max(reason),
                }
            }
        }
        // Of equals the first: a stable choice.
        let best = (0..read.len()).max_by_key(|at| (read[*at], std::cmp::Reverse(*at))).unwrap_or(0);
        if read[best] == 0 { Err(nearest) } else { Ok(Format::ALL[best]) }
    }
}

/// What a line says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) stamp: Stamp,
    /// Microseconds, at most [`MAX_LENGTH`] once out of [`Format::parse`].
    pub(crate) length: u64,
    pub(crate) status: Option<u16>,
}

/// Why a line is not counted; the later, the nearer it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Broken {
    /// Cut off by the reader.
    Line,
    /// Holds NUL bytes: a hole that `copytruncate` left in the file.
    Nul,
    Shape,
    Stamp,
    NoLatency,
    Latency,
    TooLong,
}

impl Broken {
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Broken::Line => "longer than 256 KiB",
            Broken::Nul => "NUL bytes (a hole, as copytruncate leaves it)",
            Broken::Shape => "not of this form",
            Broken::Stamp => "no time that can be read",
            Broken::NoLatency => "no latency: the log must say how long each request took",
            Broken::Latency => "a latency of another form",
            Broken::TooLong => "a latency of over 30 days",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn length(format: Format, line: &str) -> Result<u64, Broken> {
        format.parse(line.as_bytes(), None).map(|entry| entry.length)
    }

    const FANIN: &str = r#"{"time":"2026-01-31T15:04:05.123Z","duration_ms":1.234,"method":"GET","path":"/a","route":"GET /a","status":200,"upstream_ms":0.900,"calls":3,"partial":false,"bytes":17,"remote":"127.0.0.1:1","protocol":"HTTP/1.1","id":"0000000000000001"}"#;
    const NGINX: &str = r#"10.0.0.1 - - [31/Jan/2026:15:04:05 +0000] "GET /?q=\"x\" HTTP/1.1" 200 612 "-" "curl/8 [x] \"7" 0.400 0.399 ."#;
    const JETTY: &str = r#"[::1] - bob [31/Jan/2026:15:04:05 +0000] "GET / HTTP/1.1" 200 612 "-" "curl/8" 400"#;
    const PLAIN: &str = "15:04:00 400 ms GET /vacancies";

    #[test]
    fn each_form_reads_its_lines_and_no_others() {
        for (format, line, micros) in [
            (Format::Fanin, FANIN, 1234),
            (Format::Nginx, NGINX, 400_000),
            (Format::Ncsa, JETTY, 400_000),
            (Format::Plain, PLAIN, 400_000),
        ] {
            for other in Format::ALL {
                let read = length(other, line);
                if other == format {
                    assert_eq!(read, Ok(micros), "{line}");
                } else {
                    assert!(read.is_err(), "{other:?} reads {line}");
                }
            }
            assert_eq!(Format::detect(["rubbish".as_bytes(), line.as_bytes()].into_iter()), Ok(format));
        }
    }

    #[test]
    fn variants() {
        let head = r#"h - - [31/Jan/2026:15:04:05 +0000] "GET / HTTP/1.1" 304 -"#;
        assert_eq!(length(Format::Nginx, &format!("{head} \"-\" \"-\" 7 rt=0.25 uct=0.1")), Ok(250_000));
        assert_eq!(length(Format::Nginx, &format!("{head} request_time=\"1.5\"")), Ok(1_500_000));
        assert_eq!(length(Format::Ncsa, &format!("{head} - 17")), Ok(17_000));
        for stamp in ["1769871845.250", "2026-01-31T15:04:05.250+00:00"] {
            let line = format!("h - - [{stamp}] \"GET / HTTP/1.1\" 200 1 0.5");
            let entry = Format::Nginx.parse(line.as_bytes(), None).unwrap();
            assert_eq!((entry.stamp.micros, entry.stamp.whole_seconds), (1_769_871_845_250_000, false), "{stamp}");
        }
        let apache = format!("{head} \"-\" \"-\" 1500");
        assert_eq!(Format::Ncsa.parse(apache.as_bytes(), Some(Unit::Us)).unwrap().length, 1500);
        assert_eq!(length(Format::Plain, "15:04:00.250 1.5s GET /"), Ok(1_500_000));
        assert_eq!(length(Format::Plain, "2026-01-31 15:04:00,250 15 µs GET /"), Ok(15));
        assert_eq!(Format::Nginx.parse(NGINX.as_bytes(), None).unwrap().status, Some(200));
    }

    #[test]
    fn broken_lines_say_why() {
        let head = r#"h - - [31/Jan/2026:15:04:05 +0000] "GET / HTTP/1.1" 200 612"#;
        assert_eq!(length(Format::Nginx, &format!("{head} \"-\" \"curl/8\"")), Err(Broken::NoLatency));
        assert_eq!(length(Format::Nginx, &format!("{head} \"-\" \"curl")), Err(Broken::Shape));
        assert_eq!(length(Format::Nginx, &format!("{head} 5")), Err(Broken::Latency));
        assert_eq!(length(Format::Ncsa, &format!("{head} 99999999999")), Err(Broken::TooLong));
        assert_eq!(length(Format::Nginx, "h - - [yesterday] \"GET /\" 200 1 0.1"), Err(Broken::Stamp));
        assert_eq!(length(Format::Fanin, &FANIN[..90]), Err(Broken::Shape));
        assert_eq!(length(Format::Fanin, r#"{"time":"2026-01-31T15:04:05.123Z"}"#), Err(Broken::NoLatency));
        assert_eq!(length(Format::Fanin, &FANIN.replace("1.234", "-1")), Err(Broken::Latency));
        assert_eq!(length(Format::Plain, "15:04:00 400 GET /"), Err(Broken::Latency));
        assert_eq!(Format::detect([head.as_bytes()].into_iter()), Err(Broken::NoLatency));
        assert_eq!(Format::detect([b"hello".as_slice()].into_iter()), Err(Broken::Shape));
    }
}
