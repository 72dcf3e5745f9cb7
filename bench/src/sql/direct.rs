//! The hand-written loop: hyper and `tokio-postgres` on one thread, four connections, nothing that is not needed.

use std::cell::RefCell;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::sync::Semaphore;

use super::CONNECTIONS;
use super::queries::{Database, ids, json};

struct Pool {
    free: RefCell<Vec<Database>>,
    places: Semaphore,
}

/// Serves until the process ends.
pub fn run(listen: SocketAddr, url: &str, ready: impl FnOnce(SocketAddr)) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async move {
        let listener = tokio::net::TcpListener::bind(listen).await?;
        let pool = Rc::new(Pool { free: RefCell::default(), places: Semaphore::new(CONNECTIONS) });
        for _ in 0..CONNECTIONS {
            let database = Database::connect(url, false).await.map_err(io::Error::other)?;
            pool.free.borrow_mut().push(database);
        }
        ready(listener.local_addr()?);
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            let pool = pool.clone();
            let service = service_fn(move |request| answer(pool.clone(), request));
            let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            // A client that leaves ends its connection with an error, which is nobody's concern here.
            tokio::task::spawn_local(async { drop(connection.await) });
        }
    })
}

async fn answer(pool: Rc<Pool>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let email = request.uri().query().and_then(|query| query.strip_prefix("email=")).unwrap_or_default();
    Ok(match queries(&pool, email).await {
        Ok(body) => {
            let mut response = Response::new(Full::new(Bytes::from(body)));
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            response
        }
        Err(error) => {
            let mut response = Response::new(Full::new(error.to_string().into()));
            *response.status_mut() = StatusCode::BAD_GATEWAY;
            response
        }
    })
}

/// A connection for the whole request, which is the cheapest way to have one.
async fn queries(pool: &Pool, email: &str) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
    let _place = pool.places.acquire().await?;
    let Some(database) = pool.free.borrow_mut().pop() else { return Err("no connection".into()) };
    let lease = Lease { pool, database: Some(database) };
    let Some(database) = &lease.database else { return Err("no connection".into()) };
    let customer = database.customer(email).await?;
    let orders = database.orders(customer.get(0)).await?;
    let items = database.items(&ids(&orders)).await?;
    Ok(json(&customer, &orders, &items))
}

/// A connection that comes back also when its client has left.
struct Lease<'a> {
    pool: &'a Pool,
    database: Option<Database>,
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        self.pool.free.borrow_mut().extend(self.database.take());
    }
}
