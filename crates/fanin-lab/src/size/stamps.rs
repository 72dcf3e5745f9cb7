//! What the timestamp of a log line marks.

/// Which end of a request its stamp marks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Stamps {
    /// When the request came (Fanin, Apache, Jetty).
    Start,
    /// When it was answered (nginx, loggers).
    End,
}
