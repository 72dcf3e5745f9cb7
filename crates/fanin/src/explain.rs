//! `fanin explain`: why a request took as long as it did, and what would make it faster.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use fanin_config::{AccessLog, LogFormat, Server, parse_duration};
use fanin_trace::{RequestTrace, describe};
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};

use crate::app::Origin;
use crate::client::{self, Answer, ClientError, Outgoing};
use crate::recorder::{HEADER, RouteExplanation};
use crate::{logging, report, serve};

/// The options of `fanin explain`.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// Method of the request
    #[arg(required_unless_present_any = ["id", "route"])]
    method: Option<Method>,
    /// Path and query of the request: `/product?id=7`
    #[arg(required_unless_present_any = ["id", "route"])]
    target: Option<String>,
    /// Folder with fanin.toml: serve it for this one request
    #[arg(long, value_name = "DIR", default_value = ".", conflicts_with_all = ["url", "admin"])]
    config: PathBuf,
    /// A running server to send the request to: `http://127.0.0.1:8080`
    #[arg(long, requires = "admin")]
    url: Option<Uri>,
    /// The admin address of the running server: `http://127.0.0.1:9090`
    #[arg(long)]
    admin: Option<Uri>,
    /// File with the bearer token of the admin pages (`admin_token_file`)
    #[arg(long, value_name = "FILE", requires = "admin")]
    token_file: Option<PathBuf>,
    /// Explain a request that the server has recorded in full: its id, or what its header `fanin-explain` said
    #[arg(long, requires = "admin", conflicts_with_all = ["method", "target", "url", "route"])]
    id: Option<String>,
    /// Explain the recent requests of a route: `"GET /product"`
    #[arg(long, requires = "admin", conflicts_with_all = ["method", "target", "url"])]
    route: Option<String>,
    /// Recent requests of the route at most
    #[arg(long, default_value_t = 200, requires = "route")]
    last: usize,
    /// How much shorter a call is taken to be, to say what that would gain
    #[arg(long, default_value = "10ms", value_parser = step)]
    step: Duration,
    /// A header, "name: value"; may be repeated
    #[arg(long, short = 'H', value_name = "HEADER")]
    header: Vec<String>,
    /// File with the body of the request
    #[arg(long, value_name = "FILE")]
    body: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn step(text: &str) -> Result<Duration, String> {
    parse_duration(text).map_err(|error| error.to_string())
}

/// Why there is no explanation.
#[derive(Debug, thiserror::Error)]
enum ExplainError {
    #[error(
        "{0}: only http:// addresses are supported; send the header `fanin-explain: NAME` with another client, then use --id NAME"
    )]
    Scheme(Uri),
    #[error("{0} cannot be resolved: {1}")]
    Resolve(Uri, std::io::Error),
    #[error("{0} has no address")]
    NoAddress(Uri),
    #[error("{0}: {1}")]
    File(String, std::io::Error),
    #[error("{0:?} is no header: write \"name: value\"")]
    Header(String),
    #[error("the request")]
    Client(#[from] ClientError),
    #[error("the admin page {0} answered {1}: {2}")]
    Admin(String, StatusCode, String),
    #[error("the admin page {0} cannot be read: {1}")]
    Page(String, serde_json::Error),
    #[error(
        "the request was answered with {0}, but no flow ran for it: the route serves no flow, or the server refused it"
    )]
    NotRecorded(StatusCode),
    #[error("the runtime")]
    Runtime(#[from] std::io::Error),
    #[error("the server cannot start")]
    Start(#[from] fanin_server::StartError),
    #[error("the log")]
    Log(#[from] logging::LogError),
}

/// Runs the command.
pub fn run(args: &ExplainArgs) -> ExitCode {
    match explain(args) {
        Ok(code) => code,
        Err(error) => serve::failure(&error),
    }
}

fn explain(args: &ExplainArgs) -> Result<ExitCode, ExplainError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let Some(admin) = &args.admin else { return locally(args, &runtime) };
    let admin = Admin::new(admin, args.token_file.as_deref())?;
    runtime.block_on(async {
        if let Some(route) = &args.route {
            let query = form_urlencoded::Serializer::new(String::new())
                .append_pair("route", route)
                .append_pair("last", &args.last.to_string())
                .append_pair("step_us", &args.step.as_micros().to_string())
                .finish();
            let page: RouteExplanation = admin.get(&format!("/requests/by-route?{query}")).await?;
            print(args, &page, &page.text());
            return Ok(ExitCode::SUCCESS);
        }
        let id = match (&args.id, &args.url) {
            (Some(id), _) => id.clone(),
            (None, url) => {
                let server = address(url.as_ref().unwrap_or(&admin.uri))?;
                let token: Token = admin.send("POST", "/requests/token").await?;
                let answer = send(args, server, &token.token).await?;
                let seen = admin.send::<RequestTrace>("GET", &admin.path_of(&token.token, args.step)).await;
                return match seen {
                    Ok(trace) => show(args, &trace, Some(&answer)),
                    Err(ExplainError::Admin(_, StatusCode::NOT_FOUND, _)) => {
                        Err(ExplainError::NotRecorded(answer.status))
                    }
                    Err(error) => Err(error),
                };
            }
        };
        let trace: RequestTrace = admin.get(&admin.path_of(&id, args.step)).await?;
        show(args, &trace, None)
    })
}

/// Serves the folder for one request.
fn locally(args: &ExplainArgs, runtime: &tokio::runtime::Runtime) -> Result<ExitCode, ExplainError> {
    let _flush = logging::start("warn", LogFormat::Text)?;
    let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
    let origin = Origin { path: args.config.clone(), ..Origin::default() };
    let app = match serve::load(&origin) {
        Ok(app) => app,
        Err(code) => return Ok(code),
    };
    let server = Server {
        listen: vec![loopback],
        admin: None,
        probes: None,
        tls: None,
        access_log: AccessLog::Off,
        ..app.config().server.clone()
    };
    let origin = Origin { server: Some(server), ..origin };
    let app = match serve::load(&origin) {
        Ok(app) => app,
        Err(code) => return Ok(code),
    };
    let recorder = app.recorder().clone();
    let handle = serve::start(origin, app, false)?;
    let token = recorder.token();
    let answer = handle.addresses().first().map(|server| runtime.block_on(send(args, *server, &token)));
    handle.drain();
    handle.wait();
    let Some(answer) = answer.transpose()? else { return Ok(ExitCode::FAILURE) };
    match recorder.find(&token) {
        Some(recorded) => show(args, &recorded.trace(Some(args.step), Duration::from_secs(10)), Some(&answer)),
        None => Err(ExplainError::NotRecorded(answer.status)),
    }
}

async fn send(args: &ExplainArgs, server: SocketAddr, token: &str) -> Result<Answer, ExplainError> {
    let mut headers = HeaderMap::new();
    for line in &args.header {
        let (name, value) = line.split_once(':').ok_or_else(|| ExplainError::Header(line.clone()))?;
        let name = HeaderName::try_from(name.trim()).map_err(|_| ExplainError::Header(line.clone()))?;
        let value = HeaderValue::try_from(value.trim()).map_err(|_| ExplainError::Header(line.clone()))?;
        headers.append(name, value);
    }
    headers.insert(HEADER, HeaderValue::try_from(token).map_err(|_| ExplainError::Header(token.to_owned()))?);
    let body = match &args.body {
        None => Bytes::new(),
        Some(file) => {
            std::fs::read(file).map_err(|error| ExplainError::File(file.display().to_string(), error))?.into()
        }
    };
    let method = args.method.as_ref().map_or("GET", Method::as_str);
    let target = args.target.as_deref().unwrap_or("/");
    Ok(client::send(server, Outgoing { method, target, headers, body }).await?)
}

fn show(args: &ExplainArgs, trace: &RequestTrace, answer: Option<&Answer>) -> Result<ExitCode, ExplainError> {
    print(args, trace, &describe(trace));
    if let Some(answer) = answer.filter(|answer| answer.status.is_server_error() && !args.json) {
        report::out(format_args!(
            "\nThe answer: {}\n",
            fanin_trace::shorten(&String::from_utf8_lossy(&answer.body), 300)
        ));
    }
    Ok(ExitCode::SUCCESS)
}

fn print<T: serde::Serialize>(args: &ExplainArgs, value: &T, text: &str) {
    match serde_json::to_string_pretty(value) {
        Ok(json) if args.json => report::out(format_args!("{json}\n")),
        _ => report::out(format_args!("{text}")),
    }
}

#[derive(serde::Deserialize)]
struct Token {
    token: String,
}

/// The admin pages of a running server.
struct Admin {
    uri: Uri,
    address: SocketAddr,
    headers: HeaderMap,
}

impl Admin {
    fn new(uri: &Uri, token_file: Option<&Path>) -> Result<Admin, ExplainError> {
        let mut headers = HeaderMap::new();
        if let Some(file) = token_file {
            let problem = |error| ExplainError::File(file.display().to_string(), error);
            let token = std::fs::read_to_string(file).map_err(problem)?;
            let bearer = HeaderValue::try_from(format!("Bearer {}", token.trim()));
            let no_token = |_| problem(std::io::Error::new(std::io::ErrorKind::InvalidData, "this is no token"));
            headers.insert(AUTHORIZATION, bearer.map_err(no_token)?);
        }
        Ok(Admin { uri: uri.clone(), address: address(uri)?, headers })
    }

    fn path_of(&self, id: &str, step: Duration) -> String {
        let id: String = form_urlencoded::byte_serialize(id.as_bytes()).collect();
        format!("/requests/{id}?step_us={}", step.as_micros())
    }

    async fn get<T: serde::de::DeserializeOwned>(&self, page: &str) -> Result<T, ExplainError> {
        self.send("GET", page).await
    }

    async fn send<T: serde::de::DeserializeOwned>(&self, method: &str, page: &str) -> Result<T, ExplainError> {
        let request = Outgoing { method, target: page, headers: self.headers.clone(), body: Bytes::new() };
        let answer = client::send(self.address, request).await?;
        if answer.status != StatusCode::OK {
            let text = fanin_trace::shorten(&String::from_utf8_lossy(&answer.body), 300);
            return Err(ExplainError::Admin(page.to_owned(), answer.status, text));
        }
        serde_json::from_slice(&answer.body).map_err(|error| ExplainError::Page(page.to_owned(), error))
    }
}

#[allow(clippy::disallowed_methods, reason = "a command of its own, which may block")]
fn address(uri: &Uri) -> Result<SocketAddr, ExplainError> {
    if uri.scheme_str().is_some_and(|scheme| scheme != "http") {
        return Err(ExplainError::Scheme(uri.clone()));
    }
    let (host, port) = (uri.host().unwrap_or("127.0.0.1"), uri.port_u16().unwrap_or(80));
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let mut found = (host, port).to_socket_addrs().map_err(|error| ExplainError::Resolve(uri.clone(), error))?;
    found.next().ok_or_else(|| ExplainError::NoAddress(uri.clone()))
}
