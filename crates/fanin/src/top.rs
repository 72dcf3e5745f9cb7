//! `fanin top`: the dashboard in a terminal.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use fanin_dashboard::{Data, draw};
use http::Uri;
use tokio::time::sleep;

use crate::admin::{Admin, AdminError};
use crate::{report, serve};

/// Width where standard output is no terminal.
const WIDTH: usize = 120;

/// What to look at, and how.
#[derive(Debug, clap::Args)]
pub struct TopArgs {
    /// Address of the admin pages
    #[arg(long, default_value = "http://127.0.0.1:9090")]
    pub url: Uri,
    /// The token of the admin pages, if they need one; a file is safer, because others can see a command line
    #[arg(long, conflicts_with = "token_file")]
    pub token: Option<String>,
    /// A file with the token
    #[arg(long)]
    pub token_file: Option<PathBuf>,
    /// Seconds over which rates and latencies are computed
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=900))]
    pub window: u64,
    /// Print once and end, for scripts
    #[arg(long)]
    pub once: bool,
    /// Print the data as JSON, once
    #[arg(long)]
    pub json: bool,
}

/// Why there is nothing to show.
#[derive(Debug, thiserror::Error)]
enum TopError {
    #[error(transparent)]
    Admin(#[from] AdminError),
    #[error("the answer is not the data of a dashboard; the versions of this program and of the server may differ")]
    Data(#[from] serde_json::Error),
    #[error("the runtime cannot start")]
    Runtime(#[source] std::io::Error),
}

/// The page with the data.
struct Server {
    admin: Admin,
    page: String,
}

impl Server {
    fn new(args: &TopArgs) -> Result<Server, TopError> {
        let admin = Admin::new(&args.url, args.token.as_deref(), args.token_file.as_deref())?;
        Ok(Server { admin, page: format!("/dashboard/data?window={}", args.window) })
    }

    async fn ask(&self) -> Result<Bytes, TopError> {
        Ok(self.admin.page("GET", &self.page).await?)
    }
}

/// Shows the data until Ctrl-C, or once.
pub fn run(args: &TopArgs) -> ExitCode {
    match show(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => serve::failure(&error),
    }
}

fn show(args: &TopArgs) -> Result<(), TopError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(TopError::Runtime)?;
    runtime.block_on(async {
        let server = Server::new(args)?;
        if args.once || args.json {
            let text = server.ask().await?;
            let data: Data = serde_json::from_slice(&text)?;
            if args.json {
                report::out(format_args!("{}\n", String::from_utf8_lossy(&text)));
            } else {
                let terminal = std::io::stdout().is_terminal();
                report::out(format_args!("{}", draw(&data, width(), terminal && report_colours())));
            }
            return Ok(());
        }
        // The terminal's own screen stays as it was.
        let _screen = Screen::enter();
        tokio::select! {
            shown = follow(&server) => shown,
            _ = tokio::signal::ctrl_c() => Ok(()),
        }
    })
}

fn report_colours() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// The columns of the terminal.
fn width() -> usize {
    let by_shell = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok().map(|size| usize::from(size.ws_col));
    size.filter(|columns| *columns > 0).or(by_shell).unwrap_or(WIDTH)
}

/// The lines of the terminal.
fn height() -> usize {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok().map(|size| usize::from(size.ws_row));
    size.filter(|rows| *rows > 0).unwrap_or(usize::MAX)
}

/// Shows the data every second. Only the first answer must come: a server that restarts is shown again later.
async fn follow(server: &Server) -> Result<(), TopError> {
    let mut known: Option<Data> = None;
    loop {
        let (lost, data) = match server.ask().await.and_then(|text| Ok(serde_json::from_slice::<Data>(&text)?)) {
            Ok(data) => (None, data),
            Err(error) => match known.take() {
                Some(data) => (Some(error), data),
                None => return Err(error),
            },
        };
        let mut text = lost.map_or(String::new(), |error| format!("! {error}; what you see is old\n"));
        text.push_str(&draw(&data, width(), report_colours()));
        known = Some(data);
        let lines: Vec<&str> = text.lines().take(height().saturating_sub(1)).collect();
        let mut out = std::io::stdout().lock();
        // Each line is cleared to its end, and the rest of the screen: no flicker. A terminal that is gone ends the program by its signal.
        let _ = write!(out, "\x1b[H{}\x1b[K\n\x1b[J", lines.join("\x1b[K\n"));
        let _ = out.flush();
        drop(out);
        sleep(Duration::from_secs(1)).await;
    }
}

/// The second screen of the terminal, without a cursor.
struct Screen;

impl Screen {
    fn enter() -> Screen {
        report::out(format_args!("\x1b[?1049h\x1b[?25l"));
        Screen
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        report::out(format_args!("\x1b[?25h\x1b[?1049l"));
    }
}
