//! `fanin top`: the dashboard in a terminal.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use fanin_dashboard::{Data, draw};
use http::header::{AUTHORIZATION, HOST};
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::{report, serve};

/// How long one answer may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of an answer.
const MOST: usize = 16 << 20;
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
#[derive(Debug, Error)]
enum TopError {
    #[error("the address {0} needs a host; write http://HOST:PORT")]
    Address(Uri),
    #[error("only http is possible here, not {0}; the admin pages have no TLS")]
    Scheme(String),
    #[error("cannot connect to {0}; is [server] admin another address?")]
    Connect(String, #[source] std::io::Error),
    #[error("the token cannot be read from {0}")]
    TokenFile(PathBuf, #[source] std::io::Error),
    #[error("the request cannot be sent")]
    Request(#[from] http::Error),
    #[error("the connection broke")]
    Http(#[from] hyper::Error),
    #[error("the answer could not be read: {0}")]
    Body(Box<dyn std::error::Error + Send + Sync>),
    #[error("no answer within {} s", TIMEOUT.as_secs())]
    Timeout,
    #[error("the admin pages need their token: give --token-file")]
    Token,
    #[error("status {0} instead of data; is this the admin address of Fanin?")]
    Status(StatusCode),
    #[error("the answer is not the data of a dashboard; the versions of this program and of the server may differ")]
    Data(#[from] serde_json::Error),
    #[error("the runtime cannot start")]
    Runtime(#[source] std::io::Error),
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

struct Server {
    authority: String,
    address: String,
    token: Option<String>,
    path: String,
}

impl Server {
    fn new(args: &TopArgs) -> Result<Server, TopError> {
        let Some(authority) = args.url.authority() else { return Err(TopError::Address(args.url.clone())) };
        if let Some(scheme) = args.url.scheme_str().filter(|scheme| *scheme != "http") {
            return Err(TopError::Scheme(scheme.to_owned()));
        }
        let token = match &args.token_file {
            Some(file) => {
                Some(std::fs::read_to_string(file).map_err(|error| TopError::TokenFile(file.clone(), error))?)
            }
            None => args.token.clone(),
        };
        let port = authority.port_u16().unwrap_or(80);
        Ok(Server {
            authority: authority.to_string(),
            address: format!("{}:{port}", authority.host()),
            token: token.map(|text| text.trim().to_owned()),
            path: format!("/dashboard/data?window={}", args.window),
        })
    }

    async fn ask(&self) -> Result<Bytes, TopError> {
        timeout(TIMEOUT, self.exchange()).await.unwrap_or(Err(TopError::Timeout))
    }

    async fn exchange(&self) -> Result<Bytes, TopError> {
        let stream = TcpStream::connect(&self.address).await;
        let stream = stream.map_err(|error| TopError::Connect(self.address.clone(), error))?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let mut request = Request::get(&self.path).header(HOST, &self.authority);
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        let request = request.body(Empty::<Bytes>::new())?;
        let answer = async {
            let response = sender.send_request(request).await?;
            match response.status() {
                StatusCode::OK => {}
                StatusCode::UNAUTHORIZED => return Err(TopError::Token),
                status => return Err(TopError::Status(status)),
            }
            let body = Limited::new(response.into_body(), MOST).collect().await.map_err(TopError::Body)?;
            Ok(body.to_bytes())
        };
        tokio::pin!(connection);
        tokio::pin!(answer);
        tokio::select! {
            result = &mut answer => result,
            result = &mut connection => {
                result?;
                // The connection's end does not lose an answer that has come whole.
                answer.await
            }
        }
    }
}
