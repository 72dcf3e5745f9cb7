//! What the program says about itself: to standard error, a line an event.

use std::io::IsTerminal;

use thiserror::Error;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;

/// Why nothing can be logged.
#[derive(Debug, Error)]
pub enum LogError {
    /// Directives that can't be read.
    #[error("{origin}: `{directives}` does not say what to log: {error}")]
    Directives {
        /// Where they come from.
        origin: &'static str,
        /// The text.
        directives: String,
        /// What is wrong with it.
        error: ParseError,
    },
    /// Something else logs already.
    #[error("logging cannot be set up: {0}")]
    Taken(#[from] tracing_subscriber::util::TryInitError),
}

/// Starts logging. `configured` is `[server] log`; `RUST_LOG` wins where it is set and not empty.
///
/// # Errors
/// When the directives can't be read, or when it was called before.
pub fn start(configured: &str) -> Result<(), LogError> {
    use tracing_subscriber::util::SubscriberInitExt;
    let environment = std::env::var("RUST_LOG").ok().filter(|text| !text.is_empty());
    let filter = filter(environment.as_deref(), configured)?;
    let colour = std::io::stderr().is_terminal();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(colour)
        .with_writer(std::io::stderr)
        .finish()
        .try_init()?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_wins() {
        assert_eq!(filter(None, "warn").expect("valid").to_string(), "warn");
        assert_eq!(filter(Some("fanin=debug"), "warn").expect("valid").to_string(), "fanin=debug");
        let error = filter(None, "fanin=loud").expect_err("no level").to_string();
        assert!(error.contains("[server] log: `fanin=loud`"), "{error}");
        assert_eq!((check("info"), check("fanin=loud")), (None, Some(error)));
    }
}
