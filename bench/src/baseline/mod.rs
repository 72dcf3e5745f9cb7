//! The baseline: the same three routes written by hand on hyper, single-threaded, with nothing that is not needed.
//!
//! No routing table, policies, deadlines, metrics or log; but what it sends on it has validated, with the validator that
//! Fanin uses, because an aggregator that forwards an upstream's broken JSON as its own is no aggregator.
//! It is the bar that Fanin's cost is held to, so making it faster is as welcome as making Fanin faster.

mod upstream;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use bytes::Bytes;
use fanin_json::Doc;
use futures_util::future::{try_join_all, try_join5};
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::task::spawn_local;

use crate::stub::PAGE_KEYS;
use upstream::{Failure, Upstream};

/// As deep as Fanin's default allows.
const MAX_DEPTH: usize = 128;

/// Serves on `listen` in front of `backend` until the process ends; `ready` is told the address.
pub fn run(listen: SocketAddr, backend: SocketAddr, ready: impl FnOnce(SocketAddr)) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build_local(Default::default())?;
    runtime.block_on(async move {
        let listener = listen_socket(listen)?;
        ready(listener.local_addr()?);
        let upstream = Rc::new(Upstream::new(backend)?);
        let mut server = http1::Builder::new();
        server.pipeline_flush(false).half_close(false);
        loop {
            let (stream, _) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    eprintln!("baseline: accept: {error}");
                    continue;
                }
            };
            stream.set_nodelay(true)?;
            let upstream = Rc::clone(&upstream);
            let service = service_fn(move |request| answer(Rc::clone(&upstream), request));
            let connection = server.serve_connection(TokioIo::new(stream), service);
            // A client that leaves ends its connection with an error, which is nobody's concern here.
            spawn_local(async { drop(connection.await) });
        }
    })
}

/// The backlog has to hold all clients of a benchmark at once.
fn listen_socket(addr: SocketAddr) -> io::Result<TcpListener> {
    let socket = tokio::net::TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(addr)?;
    socket.listen(4096)
}

async fn answer(upstream: Rc<Upstream>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(match route(&upstream, &request).await {
        Ok(body) => {
            let mut response = Response::new(Full::new(body));
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            response
        }
        Err(failure) => {
            let mut response = Response::new(Full::new(failure.to_string().into()));
            *response.status_mut() = failure.status();
            response
        }
    })
}

async fn route(upstream: &Upstream, request: &Request<Incoming>) -> Result<Bytes, Failure> {
    let path = request.uri().path();
    match path.split_once('/').map(|(_, rest)| rest.split_once('/').unwrap_or((rest, ""))) {
        Some(("page", id)) => page(upstream, id).await,
        Some(("search", "")) => search(upstream, request.uri().query()).await,
        Some(("raw", "")) => validated(upstream.get("/raw".into()).await?),
        Some(("item", rest)) => validated(upstream.get(format!("/item/{rest}")).await?),
        Some(("fan", rest)) => fan(upstream, rest).await,
        Some(("look", count)) => look(upstream, count).await,
        _ => Err(Failure::NoRoute),
    }
}

/// Five calls side by side, merged into one object.
async fn page(upstream: &Upstream, id: &str) -> Result<Bytes, Failure> {
    let [a, b, c, d, e] = PAGE_KEYS.map(|key| upstream.get(format!("/{key}/{id}")));
    let (a, b, c, d, e) = try_join5(a, b, c, d, e).await?;
    let answers = [a, b, c, d, e];
    let mut body = Vec::with_capacity(answers.iter().map(|answer| answer.len() + 5).sum::<usize>() + 1);
    for (key, answer) in ["{\"a\":", ",\"b\":", ",\"c\":", ",\"d\":", ",\"e\":"].iter().zip(answers) {
        body.extend_from_slice(key.as_bytes());
        body.extend_from_slice(&validated(answer)?);
    }
    body.push(b'}');
    Ok(body.into())
}

/// Twenty ids, then the vacancies of these ids.
async fn search(upstream: &Upstream, query: Option<&str>) -> Result<Bytes, Failure> {
    #[derive(serde::Deserialize)]
    struct Found {
        ids: Vec<i64>,
    }
    let text = query.and_then(|query| query.strip_prefix("q=")).unwrap_or_default();
    let found = upstream.get(format!("/ids?q={text}")).await?;
    // Parsing into a type validates the whole text: no second pass.
    let found: Found = serde_json::from_slice(&found).map_err(|_| Failure::NotJson)?;
    let mut path = String::with_capacity(16 + 8 * found.ids.len());
    path.push_str("/vacancies?ids=");
    for (index, id) in found.ids.iter().enumerate() {
        if index > 0 {
            path.push(',');
        }
        path.push_str(itoa::Buffer::new().format(*id));
    }
    validated(upstream.get(path).await?)
}

/// `/fan/CALLS/BYTES/MICROSECONDS`: so many calls side by side, merged into a list.
async fn fan(upstream: &Upstream, rest: &str) -> Result<Bytes, Failure> {
    let (calls, rest) = rest.split_once('/').ok_or(Failure::NoRoute)?;
    let calls: usize = calls.parse().map_err(|_| Failure::NoRoute)?;
    let answers = try_join_all((0..calls).map(|call| upstream.get(format!("/item/{rest}/{call}")))).await?;
    let mut body = Vec::with_capacity(answers.iter().map(|answer| answer.len() + 1).sum::<usize>() + 2);
    body.push(b'[');
    for (index, answer) in answers.into_iter().enumerate() {
        if index > 0 {
            body.push(b',');
        }
        body.extend_from_slice(&validated(answer)?);
    }
    body.push(b']');
    Ok(body.into())
}

/// `/look/COUNT`: the vacancies, of which `COUNT` are looked at: the sum of the lowest salaries, and the list as it came.
async fn look(upstream: &Upstream, count: &str) -> Result<Bytes, Failure> {
    let count: usize = count.parse().map_err(|_| Failure::NoRoute)?;
    let answer = upstream.get("/vacancies?ids=1001,1020".into()).await?;
    let doc = Doc::parse(answer.clone(), MAX_DEPTH).map_err(|_| Failure::NotJson)?;
    let mut sum = 0;
    if count > 0 {
        let items = doc.root().get("items").ok_or(Failure::NotJson)?;
        for item in items.elements().take(count) {
            let from = item.get("salary").and_then(|salary| salary.get("from")?.as_i64());
            sum += from.ok_or(Failure::NotJson)?;
        }
    }
    let mut body = format!("{{\"sum\":{sum},\"found\":").into_bytes();
    body.extend_from_slice(&answer);
    body.push(b'}');
    Ok(body.into())
}

fn validated(answer: Bytes) -> Result<Bytes, Failure> {
    match Doc::parse(answer.clone(), MAX_DEPTH) {
        Ok(_) => Ok(answer),
        Err(_) => Err(Failure::NotJson),
    }
}

impl Failure {
    fn status(&self) -> StatusCode {
        match self {
            Self::NoRoute => StatusCode::NOT_FOUND,
            _ => StatusCode::BAD_GATEWAY,
        }
    }
}
