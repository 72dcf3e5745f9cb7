//! The program log, on standard error.
//!
//! - `text`: an event is a line that begins with its time. Further lines of an event, such as a source excerpt, begin with four spaces.
//!   Other control characters are escaped, so that no text of a client looks like an event or controls a terminal.
//! - `json`: an event is one JSON object on one line.
//!
//! `queue`: the threads that log do not write; a thread of its own does.

mod queue;

use std::any::Any;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::fmt;
use std::io::{self, IsTerminal};
use std::panic::PanicHookInfo;
use std::sync::LazyLock;
use std::time::Duration;

use fanin_config::LogFormat;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use thiserror::Error;
use tracing::Subscriber;
use tracing::field::Field;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::{Writer, debug_fn};
use tracing_subscriber::util::SubscriberInitExt;

use queue::LogQueue;

/// How long the end of the process waits for a reader of standard error.
const LAST_FLUSH: Duration = Duration::from_secs(1);

/// Lines dropped. It belongs to the process, as standard error does.
static DROPPED: LazyLock<Counter> = LazyLock::new(Counter::default);

/// Why logging cannot start.
#[derive(Debug, Error)]
pub enum LogError {
    /// Invalid directives.
    #[error("{origin}: `{directives}` is not a log level or a list of directives: {error}")]
    Directives {
        /// Where they come from.
        origin: &'static str,
        /// The text.
        directives: String,
        /// What is wrong with it.
        error: ParseError,
    },
    /// Another logger is installed.
    #[error("logging cannot be set up: {0}")]
    Taken(#[from] tracing_subscriber::util::TryInitError),
    /// No thread.
    #[error("the thread of the log cannot be started: {0}")]
    Thread(#[from] io::Error),
}

/// Writes what is left in the queue when it is dropped, for a second at most.
#[must_use = "without it, the last lines may be lost"]
pub struct Flush(LogQueue);

impl Drop for Flush {
    fn drop(&mut self) {
        self.0.flush(LAST_FLUSH);
    }
}

/// Starts logging. `configured` is `[server] log`; `RUST_LOG` takes precedence if it is set and not empty. Panics are logged, too.
///
/// # Errors
/// The directives are invalid, or logging has been started before.
pub fn start(configured: &str, format: LogFormat) -> Result<Flush, LogError> {
    let environment = std::env::var("RUST_LOG").ok().filter(|text| !text.is_empty());
    let filter = filter(environment.as_deref(), configured)?;
    let queue = LogQueue::start(io::stderr(), DROPPED.clone())?;
    match format {
        LogFormat::Text => text(filter, io::stderr().is_terminal(), queue.clone()).try_init()?,
        LogFormat::Json => json(filter, queue.clone()).try_init()?,
    }
    // The default hook writes to standard error on the thread that panics, which may be a worker.
    std::panic::set_hook(Box::new(log_panic));
    Ok(Flush(queue))
}

/// Adds the log's own metric.
pub fn register(registry: &mut Registry) {
    registry.register(
        "fanin_log_lines_dropped",
        "Events that the program log dropped because standard error was not read fast enough",
        DROPPED.clone(),
    );
}

fn log_panic(info: &PanicHookInfo<'_>) {
    let thread = std::thread::current();
    let thread = thread.name().unwrap_or("unnamed");
    let at = info.location().map(ToString::to_string).unwrap_or_default();
    let message = panic_message(info.payload());
    let backtrace = Backtrace::capture();
    if backtrace.status() == BacktraceStatus::Captured {
        tracing::error!(target: "fanin::panic", thread, at, excerpt = %backtrace, "a panic: {message}");
    } else {
        tracing::error!(target: "fanin::panic", thread, at, "a panic: {message}");
    }
}

/// What a panic says.
pub fn panic_message(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a message")
}

/// What is wrong with `[server] log`, if anything is.
pub fn check(configured: &str) -> Option<String> {
    filter(None, configured).err().map(|error| error.to_string())
}

fn filter(environment: Option<&str>, configured: &str) -> Result<EnvFilter, LogError> {
    let (origin, directives) = match environment {
        Some(directives) => ("RUST_LOG", directives),
        None => ("[server] log", configured),
    };
    // What is wrong with a broker is logged once, by `fanin_broker`. Its client logs each attempt; a directive can turn that on.
    EnvFilter::try_new(format!("async_nats=off,{directives}")).map_err(|error| LogError::Directives {
        origin,
        directives: directives.to_owned(),
        error,
    })
}

fn text<W>(filter: EnvFilter, colour: bool, writer: W) -> impl Subscriber + Send + Sync
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(colour)
        .fmt_fields(debug_fn(write_field))
        .with_writer(writer)
        .finish()
}

fn json<W>(filter: EnvFilter, writer: W) -> impl Subscriber + Send + Sync
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_current_span(false)
        .with_span_list(false)
        .with_env_filter(filter)
        .with_writer(writer)
        .finish()
}

/// Writes a field of an event in the text format. The message comes first, by the order of tracing's macros.
fn write_field(to: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug) -> fmt::Result {
    let text = format!("{value:?}");
    match field.name() {
        "message" => indent(to, &text),
        "excerpt" => indent(to, &format!("\n{text}")),
        name => {
            if to.has_ansi_escapes() {
                write!(to, " \x1b[3m{name}\x1b[0m\x1b[2m=\x1b[0m")?;
            } else {
                write!(to, " {name}=")?;
            }
            indent(to, &text)
        }
    }
}

/// Writes text; its second and further lines begin with four spaces.
fn indent(to: &mut Writer<'_>, text: &str) -> fmt::Result {
    let mut lines = text.lines();
    escape(to, lines.next().unwrap_or_default())?;
    lines.try_for_each(|line| {
        to.write_str("\n    ")?;
        escape(to, line)
    })
}

/// Writes a line with its control characters escaped.
fn escape(to: &mut Writer<'_>, line: &str) -> fmt::Result {
    let mut rest = line;
    while let Some((at, control)) = rest.char_indices().find(|(_, char)| is_control(*char)) {
        write!(to, "{}{}", &rest[..at], control.escape_default())?;
        rest = &rest[at + control.len_utf8()..];
    }
    to.write_str(rest)
}

/// Whether a terminal or an editor may take it for more than a character: controls of ASCII and Latin-1 but tabs, line and paragraph
/// separators, and changes of the writing direction.
fn is_control(char: char) -> bool {
    (char.is_control() && char != '\t')
        || matches!(char, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn the_environment_wins() {
        let directives = |environment, configured| {
            let text = filter(environment, configured).expect("valid").to_string();
            let mut directives: Vec<String> = text.split(',').map(str::to_owned).collect();
            directives.sort();
            directives
        };
        assert_eq!(directives(None, "warn"), ["async_nats=off", "warn"]);
        assert_eq!(directives(Some("fanin=debug"), "warn"), ["async_nats=off", "fanin=debug"]);
        let error = filter(None, "fanin=loud").expect_err("no level").to_string();
        assert!(error.contains("[server] log: `fanin=loud`"), "{error}");
        assert_eq!((check("info"), check("fanin=loud")), (None, Some(error)));
    }

    #[derive(Clone, Default)]
    struct Output(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Output {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("not poisoned").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl MakeWriter<'_> for Output {
        type Writer = Output;

        fn make_writer(&self) -> Output {
            self.clone()
        }
    }

    /// The log of two events, one with an excerpt.
    fn logged<S: Subscriber + Send + Sync + 'static>(subscriber: impl FnOnce(Output) -> S) -> String {
        let output = Output::default();
        tracing::subscriber::with_default(subscriber(output.clone()), || {
            let excerpt = "page.star:2\n  2 | fail()\n    | ^^^^";
            tracing::error!(target: "fanin::flow", route = "GET /a", suppressed = 0_u64, excerpt = %excerpt, "it failed");
            tracing::warn!("not reloaded:\nfanin.toml:1:1");
        });
        let bytes = output.0.lock().expect("not poisoned").clone();
        String::from_utf8(bytes).expect("UTF-8")
    }

    #[test]
    fn further_lines_of_an_event_are_indented() {
        let text = logged(|output| text(EnvFilter::new("info"), false, output));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 6, "{text}");
        assert!(lines[0].ends_with("ERROR fanin::flow: it failed route=\"GET /a\" suppressed=0"), "{text}");
        assert_eq!(&lines[1..4], ["    page.star:2", "      2 | fail()", "        | ^^^^"], "{text}");
        assert!(lines[4].ends_with("not reloaded:"), "{text}");
        assert_eq!(lines[5], "    fanin.toml:1:1");
    }

    #[test]
    fn clients_cannot_forge_an_event() {
        let forged = "a\n2026-01-01T00:00:00Z ERROR fanin: forged\r2026-01-01 forged\r\nb\u{1b}[2J\u{9b}1m\u{85}c\u{2028}d\u{202e}e\tf\0";
        let of_client = |output: Output| {
            tracing::subscriber::with_default(text(EnvFilter::new("info"), false, output.clone()), || {
                tracing::warn!(display = %forged, debug = forged, excerpt = %forged, "{forged}");
            });
            let bytes = output.0.lock().expect("not poisoned").clone();
            String::from_utf8(bytes).expect("UTF-8")
        };
        let text = of_client(Output::default());
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1..].iter().all(|line| line.starts_with("    ")), "{text}");
        assert!(!text.chars().any(|char| is_control(char) && char != '\n'), "{text:?}");
        assert!(text.contains("b\\u{1b}[2J\\u{9b}1m\\u{85}c\\u{2028}d\\u{202e}e\tf\\u{0}"), "{text}");

        let output = Output::default();
        tracing::subscriber::with_default(json(EnvFilter::new("info"), output.clone()), || {
            tracing::warn!(display = %forged, "{forged}");
        });
        let bytes = output.0.lock().expect("not poisoned").clone();
        assert_eq!(bytes.iter().filter(|byte| byte.is_ascii_control()).collect::<Vec<_>>(), [&b'\n']);
    }

    #[test]
    fn a_json_event_is_one_line() {
        let text = logged(|output| json(EnvFilter::new("info"), output));
        let events: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).expect("an object a line")).collect();
        assert_eq!(events.len(), 2, "{text}");
        assert_eq!((&events[0]["level"], &events[0]["message"]), (&"ERROR".into(), &"it failed".into()));
        assert_eq!((&events[0]["route"], &events[0]["target"]), (&"GET /a".into(), &"fanin::flow".into()));
        assert_eq!(events[0]["excerpt"], "page.star:2\n  2 | fail()\n    | ^^^^");
        assert!(events[0]["timestamp"].is_string());
    }
}
