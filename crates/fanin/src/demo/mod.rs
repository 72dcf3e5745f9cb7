//! `fanin demo`: an example's backends, the server in front of them, sample requests.

pub mod backend;
mod files;
mod shop;
mod vacancies;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use bytes::Bytes;
use fanin_config::{AccessLog, LogFormat, Server};
use fanin_server::{Exit, Handle};
use fanin_trace::{draw, millis, shorten};
use http::{HeaderMap, HeaderValue};
use serde_json::Value;
use thiserror::Error;

use crate::app::Origin;
use crate::cli::Example;
use crate::client::{self, Answer, ClientError, Outgoing};
use crate::recorder::{HEADER, Recorder};
use crate::report::out;
use crate::{logging, serve};
use backend::{Backend, Backends};
use files::Folder;

/// A request that the demo sends, and what is expected of its answer.
pub struct Sample {
    /// What there is to see.
    pub shows: &'static str,
    /// HTTP method.
    pub method: &'static str,
    /// Path and query.
    pub target: &'static str,
    /// JSON body, empty for none.
    pub body: &'static str,
    /// The expected status.
    pub status: u16,
    /// Whether the answer's JSON is as expected.
    pub check: fn(&Value) -> bool,
}

/// Whether a JSON pointer leads to something.
pub fn has(body: &Value, pointer: &str) -> bool {
    body.pointer(pointer).is_some_and(|value| !value.is_null())
}

impl Example {
    /// The example's folder below `examples/`.
    pub fn name(self) -> &'static str {
        match self {
            Example::Vacancies => "vacancies",
            Example::Shop => "shop",
        }
    }

    /// The backends that it needs.
    pub fn backends(self) -> &'static [Backend] {
        match self {
            Example::Vacancies => &vacancies::BACKENDS,
            Example::Shop => &shop::BACKENDS,
        }
    }

    /// The requests that show it.
    pub fn samples(self) -> &'static [Sample] {
        match self {
            Example::Vacancies => &vacancies::SAMPLES,
            Example::Shop => &shop::SAMPLES,
        }
    }
}

/// Why a sample is not as expected.
#[derive(Debug, Error)]
pub enum SampleError {
    /// No answer.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// Another status.
    #[error("status {0}, expected {1}: {2}")]
    Status(u16, u16, String),
    /// Another body.
    #[error("the answer is not as expected: {0}")]
    Body(String),
}

/// Why there is no demo.
#[derive(Debug, Error)]
enum DemoError {
    /// Threads, sockets or files can't be had.
    #[error("the demo cannot start: {0}")]
    System(#[from] std::io::Error),
    /// Logging can't be set up.
    #[error(transparent)]
    Log(#[from] logging::LogError),
    /// The server can't be started.
    #[error("the server cannot start")]
    Start(#[from] fanin_server::StartError),
}

/// Starts backends and server, sends the samples, then serves until a signal, or ends if `once`.
pub fn run(example: Example, once: bool) -> ExitCode {
    match show(example, once) {
        Ok(code) => code,
        Err(error) => serve::failure(&error),
    }
}

fn show(example: Example, once: bool) -> Result<ExitCode, DemoError> {
    let _flush = logging::start("warn", LogFormat::Text)?;
    let backends = Backends::start(example.backends())?;
    let folder = Folder::of(example, Path::new(""))?;
    let origin = Origin {
        editing: fanin_config::Editing::default(),
        dry_run: false,
        path: folder.path().to_path_buf(),
        variables: backends.urls.iter().map(|(name, url)| ((*name).to_owned(), url.clone())).collect(),
        server: Some(Server {
            listen: vec![address(once, 8080)],
            admin: Some(address(once, 9090)),
            access_log: AccessLog::Off,
            max_connections: 1000,
            ..Server::default()
        }),
        recorder: None,
    };
    let app = match serve::load(&origin) {
        Ok(app) => app,
        Err(code) => return Ok(code),
    };
    let recorder = app.recorder().clone();
    let handle = serve::start(origin, app, true)?;
    let Some(&server) = handle.addresses().first() else { return Ok(ExitCode::FAILURE) };

    out(format_args!("{} of {}, in front of these backends:\n", example.name(), folder.path().display()));
    for (backend, (variable, url)) in example.backends().iter().zip(&backends.urls) {
        let (least, greatest) = backend.delay;
        out(format_args!("  {:16} {url}  {least} to {greatest} ms  ({variable})\n", backend.name));
    }
    out(format_args!("\n░ waits for its arguments   █ in flight   times in ms since the request arrived\n\n"));
    let failed = run_samples(example, server, &recorder)?;
    let served = if once { stop(handle) } else { wait(example, server, handle, &folder) };
    if failed > 0 {
        eprintln!("error: {failed} of {} samples failed", example.samples().len());
        return Ok(ExitCode::FAILURE);
    }
    Ok(serve::end(served))
}

fn stop(handle: Handle) -> Exit {
    handle.drain();
    handle.wait()
}

fn wait(example: Example, server: SocketAddr, handle: Handle, folder: &Folder) -> Exit {
    let flows = folder.path().join("flows");
    out(format_args!("Try it yourself:\n{}\n", curl_lines(example, server, handle.admin())));
    out(format_args!("Serving until Ctrl-C. Change {} and send a request again.\n", flows.display()));
    handle.wait()
}

/// A loopback address: this port, or any free one if it is taken or the demo ends after the samples.
fn address(once: bool, port: u16) -> SocketAddr {
    let wanted = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let free = !once && TcpListener::bind(wanted).is_ok();
    if free { wanted } else { SocketAddr::from((Ipv4Addr::LOCALHOST, 0)) }
}

/// Sends the samples one by one and prints each answer and its calls. Gives the number of those that failed.
fn run_samples(example: Example, server: SocketAddr, recorder: &Recorder) -> std::io::Result<usize> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut failed = 0;
    for (index, sample) in example.samples().iter().enumerate() {
        out(format_args!("{}. {}\n", index + 1, sample.shows));
        if let Err(error) = runtime.block_on(run_sample(sample, server, recorder)) {
            failed += 1;
            out(format_args!("   FAILED: {error}\n"));
        }
        out(format_args!("\n"));
    }
    Ok(failed)
}

async fn run_sample(sample: &Sample, server: SocketAddr, recorder: &Recorder) -> Result<(), SampleError> {
    out(format_args!("   {} {}\n", sample.method, sample.target));
    let token = recorder.token();
    let mut headers = HeaderMap::new();
    headers.extend(HeaderValue::try_from(&token).map(|token| (HEADER, token)));
    let body = Bytes::from_static(sample.body.as_bytes());
    let start = Instant::now();
    let answer =
        client::send(&server.to_string(), Outgoing { method: sample.method, target: sample.target, headers, body })
            .await?;
    let took = start.elapsed();
    out(format_args!("   → {}, {:.1} ms, {} bytes\n", answer.status, millis(took), answer.body.len()));
    out(format_args!("     {}\n", shorten(&String::from_utf8_lossy(&answer.body), 120)));
    let calls = recorder.find(&token).map(|one| one.trace(None, Duration::ZERO).calls).unwrap_or_default();
    out(format_args!("{}", draw(&calls, took)));
    judge(sample, &answer)
}

fn judge(sample: &Sample, answer: &Answer) -> Result<(), SampleError> {
    let text = || shorten(&String::from_utf8_lossy(&answer.body), 300);
    if answer.status != sample.status {
        return Err(SampleError::Status(answer.status.as_u16(), sample.status, text()));
    }
    match serde_json::from_slice(&answer.body) {
        Ok(body) if (sample.check)(&body) => Ok(()),
        _ => Err(SampleError::Body(text())),
    }
}

/// The samples as lines for a shell.
pub fn curl_lines(example: Example, server: SocketAddr, admin: Option<SocketAddr>) -> String {
    let mut text = String::new();
    for sample in example.samples() {
        let data = match sample.body {
            "" => String::new(),
            body => format!("-H 'content-type: application/json' -d '{body}' "),
        };
        text.push_str(&format!("  curl -s {data}'http://{server}{}'\n", sample.target));
    }
    if let Some(admin) = admin {
        text.push_str(&format!("  curl -s 'http://{admin}/metrics'\n"));
        text.push_str(&format!("  http://{admin}/dashboard in a browser, or: fanin top --url http://{admin}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn get(backends: &Backends, variable: &str, target: &str) -> (u16, Value) {
        let urls: HashMap<_, _> = backends.urls.iter().cloned().collect();
        let at: SocketAddr = urls[variable].strip_prefix("http://").expect("http").parse().expect("an address");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let answer = runtime
            .block_on(client::send(&at.to_string(), Outgoing { method: "GET", target, ..Outgoing::default() }))
            .expect("an answer");
        (answer.status.as_u16(), serde_json::from_slice(&answer.body).expect("JSON"))
    }

    #[test]
    fn the_job_site_answers() {
        let backends = Backends::start(Example::Vacancies.backends()).expect("started");
        let (status, found) = get(&backends, "SEARCH_URL", "/ids?text=rust");
        assert_eq!(status, 200);
        let ids: Vec<u64> = found["ids"].as_array().expect("a list").iter().filter_map(Value::as_u64).collect();
        assert!(!ids.is_empty() && ids.len() <= 20 && found["total"].as_u64() >= Some(ids.len() as u64), "{found}");
        let (_, again) = get(&backends, "SEARCH_URL", "/ids?text=RUST");
        assert_eq!(found, again, "the same on every machine and in any case");
        assert_eq!(get(&backends, "SEARCH_URL", "/ids?text=lamplighter").1["ids"], serde_json::json!([]));

        let (_, page) = get(&backends, "VACANCIES_URL", &format!("/vacancies?ids={},{},5", ids[1], ids[0]));
        let order: Vec<_> = page["items"].as_array().expect("a list").iter().map(|item| &item["id"]).collect();
        assert_eq!(order, [ids[1], ids[0]], "as asked, unknown ids left out");
        assert_eq!(
            get(&backends, "VACANCIES_URL", "/vacancies/1007").1,
            get(&backends, "VACANCIES_URL", "/vacancies?ids=1007").1["items"][0]
        );
        assert_eq!(get(&backends, "VACANCIES_URL", "/vacancies/9999").0, 404);

        let (_, other) = get(&backends, "SUGGESTIONS_URL", "/suggestions?text=lamplighter");
        assert_eq!(other["suggestions"].as_array().map(Vec::len), Some(3));
    }

    #[test]
    fn the_shop_answers() {
        let backends = Backends::start(Example::Shop.backends()).expect("started");
        let (_, mask) = get(&backends, "MASKS_URL", "/masks/product_detail_page_attributes");
        let attributes: Vec<&str> =
            mask["attributes"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
        let mut owners = 0;
        for variable in ["CATALOG_URL", "PRICES_URL", "STOCK_URL", "REVIEWS_URL"] {
            let (_, products) =
                get(&backends, variable, &format!("/products?ids=p101,p999&fields={}", attributes.join(",")));
            assert!(products.get("p999").is_none(), "unknown ids left out");
            owners += products["p101"].as_object().expect("a product").len();
        }
        assert_eq!(owners, attributes.len(), "each attribute has one owner");
        assert_eq!(
            get(&backends, "CATALOG_URL", "/products?ids=p101&fields=name").1["p101"].as_object().map(|p| p.len()),
            Some(1)
        );
        assert_eq!(get(&backends, "MASKS_URL", "/masks/none").0, 404);
        let (_, offers) = get(&backends, "RECOMMENDATIONS_URL", "/recommendations?ids=p101,p102");
        assert_eq!(
            (offers["substitutes"].as_array().map(Vec::len), offers["complements"].as_array().map(Vec::len)),
            (Some(4), Some(2))
        );
    }

    #[test]
    fn curl_lines_are_ready_to_run() {
        let at = SocketAddr::from(([127, 0, 0, 1], 8080));
        let lines = curl_lines(Example::Shop, at, Some(SocketAddr::from(([127, 0, 0, 1], 9090))));
        assert!(lines.contains("'http://127.0.0.1:8080/products/p142?mask=name_and_photo_only'"), "{lines}");
        assert!(lines.contains("-d '{\"products\""), "{lines}");
        assert!(
            lines.contains("  curl -s 'http://127.0.0.1:9090/metrics'\n  http://127.0.0.1:9090/dashboard in a browser"),
            "{lines}"
        );
    }

    #[test]
    fn a_sample_that_is_not_as_expected_is_told() {
        let sample = &Example::Vacancies.samples()[0];
        let answer = |status, body: &'static str| Answer { status, body: body.into() };
        assert!(judge(sample, &answer(http::StatusCode::OK, r#"{"items": [{"title": "x"}]}"#)).is_ok());
        assert!(matches!(judge(sample, &answer(http::StatusCode::OK, r#"{"items": []}"#)), Err(SampleError::Body(_))));
        assert!(matches!(judge(sample, &answer(http::StatusCode::OK, "{")), Err(SampleError::Body(_))));
        assert!(matches!(
            judge(sample, &answer(http::StatusCode::BAD_GATEWAY, "{}")),
            Err(SampleError::Status(502, 200, _))
        ));
    }
}
