//! Backends for the demo: real HTTP servers on loopback, all on one thread.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::Value;

/// A call as a backend gets it.
#[derive(Debug)]
pub struct Call {
    /// The path, without query.
    pub path: String,
    /// The query's parameters, decoded; of a repeated one the last.
    pub query: BTreeMap<String, String>,
}

impl Call {
    /// A parameter of the query, empty if absent.
    pub fn query(&self, name: &str) -> &str {
        self.query.get(name).map_or("", String::as_str)
    }

    /// A parameter that is a comma-joined list.
    pub fn list(&self, name: &str) -> Vec<&str> {
        self.query(name).split(',').filter(|item| !item.is_empty()).collect()
    }
}

/// What a backend answers.
#[derive(Debug)]
pub struct Reply {
    /// HTTP status.
    pub status: u16,
    /// The JSON body.
    pub body: Value,
}

impl Reply {
    /// 200 with a body.
    pub fn ok(body: Value) -> Reply {
        Reply { status: 200, body }
    }

    /// 404.
    pub fn not_found() -> Reply {
        Reply { status: 404, body: serde_json::json!({ "error": "not found" }) }
    }
}

/// A backend of an example.
pub struct Backend {
    /// The upstream's name in the example.
    pub name: &'static str,
    /// The environment variable that the example's fanin.toml takes the URL from.
    pub variable: &'static str,
    /// Least and greatest delay of an answer in milliseconds; the same call always takes the same.
    pub delay: (u64, u64),
    /// Makes the answers.
    pub answer: fn(&Call) -> Reply,
}

/// Running backends. They live as long as the process.
pub struct Backends {
    /// Environment variable and URL of each.
    pub urls: Vec<(&'static str, String)>,
}

impl Backends {
    /// Starts backends, each on a free port of loopback.
    pub fn start(backends: &'static [Backend]) -> io::Result<Backends> {
        let mut urls = Vec::new();
        let mut listeners = Vec::new();
        for backend in backends {
            let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
            listener.set_nonblocking(true)?;
            urls.push((backend.variable, format!("http://{}", listener.local_addr()?)));
            listeners.push((backend, listener));
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        thread::Builder::new().name("demo-backends".into()).spawn(move || {
            tokio::task::LocalSet::new().block_on(&runtime, async {
                let serving =
                    listeners.into_iter().map(|(backend, listener)| tokio::task::spawn_local(serve(backend, listener)));
                for task in serving.collect::<Vec<_>>() {
                    // Ends only with an error, which its own message has told.
                    let _ = task.await;
                }
            });
        })?;
        Ok(Backends { urls })
    }
}

async fn serve(backend: &'static Backend, listener: TcpListener) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!("demo backend {}: {error}", backend.name),
    };
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!("demo backend {}: {error}", backend.name);
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        // Answers are small; without this the kernel may hold them back for 40 ms.
        let _ = stream.set_nodelay(true);
        tokio::task::spawn_local(async move {
            let service = service_fn(move |request| answer(backend, request));
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(Duration::from_secs(120))
                .serve_connection(TokioIo::new(stream), service);
            // A caller that goes away in the middle is not this side's problem.
            let _ = connection.await;
        });
    }
}

async fn answer(backend: &'static Backend, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let target = request.uri().path_and_query().map_or("/", |target| target.as_str());
    let query = request.uri().query().unwrap_or_default();
    let call = Call {
        path: request.uri().path().to_owned(),
        query: form_urlencoded::parse(query.as_bytes()).into_owned().collect(),
    };
    tokio::time::sleep(delay(backend, target)).await;
    let reply = (backend.answer)(&call);
    let mut response = Response::new(Full::new(Bytes::from(reply.body.to_string())));
    // The replies above have valid codes.
    *response.status_mut() = http::StatusCode::from_u16(reply.status).unwrap_or_default();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

/// The delay of a call: within the backend's range, and the same for the same request.
fn delay(backend: &Backend, target: &str) -> Duration {
    let (least, greatest) = backend.delay;
    Duration::from_millis(least + mix(target) % (greatest - least + 1))
}

/// A number that looks random and is the same on every machine (FNV-1a, then the finaliser of SplitMix64).
pub fn mix(text: &str) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for byte in text.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

/// One item of a list, chosen by a text.
pub fn pick<'l, T>(list: &'l [T], by: &str) -> &'l T {
    &list[(mix(by) % list.len() as u64) as usize]
}
