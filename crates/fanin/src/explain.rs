//! `fanin explain`: why a request took as long as it did, and what would make it faster.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use clap::{ArgGroup, Args};
use fanin_config::{AccessLog, LogFormat, Server, parse_duration};
use fanin_trace::{Dump, RequestTrace, describe};
use http::header::HOST;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};

use crate::admin::{Admin, AdminError, address};
use crate::app::Origin;
use crate::client::{self, Answer, ClientError, Outgoing};
use crate::recorder::{HEADER, RouteExplanation, explain_traces};
use crate::{logging, report, serve};

/// Largest file of recorded requests.
const MAX_FILE: u64 = 1 << 30;

/// The options of `fanin explain`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("recorded").args(["admin", "file"])))]
pub struct ExplainArgs {
    /// Method of the request
    #[arg(required_unless_present_any = ["id", "route", "file"])]
    method: Option<Method>,
    /// Path and query of the request: `/product?id=7`
    #[arg(required_unless_present_any = ["id", "route", "file"])]
    target: Option<String>,
    /// Folder with fanin.toml: serve it for this one request
    #[arg(long, value_name = "DIR", default_value = ".", conflicts_with_all = ["url", "admin", "file"])]
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
    /// A file with the last requests, which the server has written (`[recorder] dump`), or what its page /requests has shown
    #[arg(long, value_name = "FILE", conflicts_with_all = ["method", "target", "url", "step", "last", "header", "body"])]
    file: Option<PathBuf>,
    /// Explain a request that the server has recorded in full: its id, or what its header `fanin-explain` said
    #[arg(long, requires = "recorded", conflicts_with_all = ["method", "target", "url", "route"])]
    id: Option<String>,
    /// Explain the recent requests of a route: `"GET /product"`
    #[arg(long, requires = "recorded", conflicts_with_all = ["method", "target", "url"])]
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
    #[error(transparent)]
    Admin(#[from] AdminError),
    #[error("--url is missing: the server that the request is sent to")]
    NoUrl,
    #[error(
        "{0}: only http:// is possible; send the header `fanin-explain: NAME` with another client, then use --id NAME"
    )]
    Scheme(Uri),
    #[error("{0}")]
    File(String, #[source] std::io::Error),
    #[error("{0:?} is no header: write \"name: value\"")]
    Header(String),
    #[error("the request has no answer")]
    Client(#[from] ClientError),
    #[error(
        "the request was answered with {0}, but no flow ran for it: the route serves no flow, or the server refused it"
    )]
    NotRecorded(StatusCode),
    #[error("{0} is larger than {MAX_FILE} bytes")]
    TooLarge(String),
    #[error("{0} has no recorded requests")]
    NoDump(String, #[source] serde_json::Error),
    #[error("{0} has no request {1}")]
    NotInFile(String, String),
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
    if let Some(file) = &args.file {
        return of_file(args, file);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let Some(admin) = &args.admin else { return locally(args, &runtime) };
    let admin = Admin::new(admin, None, args.token_file.as_deref())?;
    runtime.block_on(async {
        if let Some(route) = &args.route {
            let query = form_urlencoded::Serializer::new(String::new())
                .append_pair("route", route)
                .append_pair("last", &args.last.to_string())
                .append_pair("step_us", &args.step.as_micros().to_string())
                .finish();
            let page: RouteExplanation = admin.json("GET", &format!("/requests/by-route?{query}")).await?;
            print(args, &page, &page.text());
            return Ok(ExitCode::SUCCESS);
        }
        if let Some(id) = &args.id {
            let trace: RequestTrace = admin.json("GET", &page_of(id, args.step)).await?;
            return Ok(show(args, &trace, None));
        }
        let url = args.url.as_ref().ok_or(ExplainError::NoUrl)?;
        let (server, authority) = address(url).map_err(|_| ExplainError::Scheme(url.clone()))?;
        let token: Token = admin.json("POST", "/requests/token").await?;
        let answer = send(args, &server, &authority, &token.token).await?;
        match admin.json::<RequestTrace>("GET", &page_of(&token.token, args.step)).await {
            Ok(trace) => Ok(show(args, &trace, Some(&answer))),
            Err(AdminError::NotFound(_)) => Err(ExplainError::NotRecorded(answer.status)),
            Err(error) => Err(error.into()),
        }
    })
}

/// What a file with recorded requests says.
fn of_file(args: &ExplainArgs, file: &Path) -> Result<ExitCode, ExplainError> {
    let name = || file.display().to_string();
    let size = file.metadata().map_err(|error| ExplainError::File(name(), error))?.len();
    if size > MAX_FILE {
        return Err(ExplainError::TooLarge(name()));
    }
    let bytes = std::fs::read(file).map_err(|error| ExplainError::File(name(), error))?;
    let dump = Dump::read(&bytes).map_err(|error| ExplainError::NoDump(name(), error))?;
    match (&args.id, &args.route) {
        (Some(id), _) => {
            let trace = dump.find(id).ok_or_else(|| ExplainError::NotInFile(name(), id.clone()))?;
            return Ok(show(args, trace, None));
        }
        (None, Some(route)) => {
            let explanation = explain_traces(route, &dump.requests);
            print(args, &explanation, &explanation.text());
        }
        (None, None) => print(args, &dump, &dump.describe()),
    }
    Ok(ExitCode::SUCCESS)
}

fn page_of(id: &str, step: Duration) -> String {
    let id: String = form_urlencoded::byte_serialize(id.as_bytes()).collect();
    format!("/requests/{id}?step_us={}", step.as_micros())
}

/// Serves the folder for one request.
fn locally(args: &ExplainArgs, runtime: &tokio::runtime::Runtime) -> Result<ExitCode, ExplainError> {
    let _flush = logging::start("warn", LogFormat::Text)?;
    let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
    // First only for its `[server]`: nothing is bound, no model is loaded.
    let dry = Origin { path: args.config.clone(), dry_run: true, ..Origin::default() };
    let app = match serve::load(&dry) {
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
    let origin = Origin { server: Some(server), dry_run: false, ..dry };
    let app = match serve::load(&origin) {
        Ok(app) => app,
        Err(code) => return Ok(code),
    };
    let recorder = app.recorder().clone();
    let handle = serve::start(origin, app, false)?;
    let token = recorder.token();
    let answer = handle.addresses().first().map(|server| {
        let server = server.to_string();
        runtime.block_on(send(args, &server, &server, &token))
    });
    handle.drain();
    handle.wait();
    let Some(answer) = answer.transpose()? else { return Ok(ExitCode::FAILURE) };
    match recorder.find(&token) {
        Some(recorded) => Ok(show(args, &recorded.trace(Some(args.step), Duration::from_secs(10)), Some(&answer))),
        None => Err(ExplainError::NotRecorded(answer.status)),
    }
}

async fn send(args: &ExplainArgs, server: &str, host: &str, token: &str) -> Result<Answer, ExplainError> {
    let mut headers = HeaderMap::new();
    for line in &args.header {
        let (name, value) = line.split_once(':').ok_or_else(|| ExplainError::Header(line.clone()))?;
        let name = HeaderName::try_from(name.trim()).map_err(|_| ExplainError::Header(line.clone()))?;
        let value = HeaderValue::try_from(value.trim()).map_err(|_| ExplainError::Header(line.clone()))?;
        headers.append(name, value);
    }
    if !headers.contains_key(HOST) {
        headers.insert(HOST, HeaderValue::try_from(host).map_err(|_| ExplainError::Header(host.to_owned()))?);
    }
    headers.insert(&HEADER, HeaderValue::try_from(token).map_err(|_| ExplainError::Header(token.to_owned()))?);
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

fn show(args: &ExplainArgs, trace: &RequestTrace, answer: Option<&Answer>) -> ExitCode {
    print(args, trace, &describe(trace));
    if let Some(answer) = answer.filter(|answer| answer.status.is_server_error() && !args.json) {
        report::out(format_args!(
            "\nThe answer: {}\n",
            fanin_trace::shorten(&String::from_utf8_lossy(&answer.body), 300)
        ));
    }
    ExitCode::SUCCESS
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
