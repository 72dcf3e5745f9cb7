//! The program log, on standard error.
//!
//! - `text`: an event is a line that begins with its time. Further lines of an event, such as a source excerpt, begin with four spaces.
//! - `json`: an event is one JSON object on one line.

use std::fmt;
use std::io::IsTerminal;

use fanin_config::LogFormat;
use thiserror::Error;
use tracing::Subscriber;
use tracing::field::Field;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::{Writer, debug_fn};
use tracing_subscriber::util::SubscriberInitExt;

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
}

/// Starts logging. `configured` is `[server] log`; `RUST_LOG` takes precedence if it is set and not empty.
///
/// # Errors
/// The directives are invalid, or logging has been started before.
pub fn start(configured: &str, format: LogFormat) -> Result<(), LogError> {
    let environment = std::env::var("RUST_LOG").ok().filter(|text| !text.is_empty());
    let filter = filter(environment.as_deref(), configured)?;
    match format {
        LogFormat::Text => text(filter, std::io::stderr().is_terminal(), std::io::stderr).try_init()?,
        LogFormat::Json => json(filter, std::io::stderr).try_init()?,
    }
    Ok(())
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
    EnvFilter::try_new(directives).map_err(|error| LogError::Directives {
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
    to.write_str(lines.next().unwrap_or_default())?;
    lines.try_for_each(|line| write!(to, "\n    {line}"))
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn the_environment_wins() {
        assert_eq!(filter(None, "warn").expect("valid").to_string(), "warn");
        assert_eq!(filter(Some("fanin=debug"), "warn").expect("valid").to_string(), "fanin=debug");
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
