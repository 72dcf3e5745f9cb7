//! Transports: how an attempt reaches an endpoint. `Connections` is the list of them; each has a file or a folder here.
//!
//! - `attempt`: what a transport gets and gives back; `origin`: what it needs from the configuration.
//! - `pool`, `connection_queue`, `connection_budget`: a worker's connections, the calls that wait for one, and the
//!   process-wide bound on connections.
//! - `http1`, `http2`, `content_encoding`: HTTP. `grpc` runs on the connections of `http2`.
//! - `sql`: PostgreSQL and MySQL, with a pool that all workers share.
//! - `files`, `model`: a local folder, a model of this process. `stub`: a script, for tests.
//! - `part_source`, `upload`: bodies of answers and requests that are not collected.
//! - `stream`, `tls`, `tls_files`, `body`, `write_coalescing`: sockets, TLS, bodies that are read in parts, write coalescing.

use std::rc::Rc;
use std::sync::Arc;

use fanin_config::{HttpVersion, UpstreamKind};

use crate::endpoint::Endpoint;
use crate::error::Failure;

pub(crate) mod attempt;
mod body;
pub(crate) mod connection_budget;
mod connection_queue;
pub(crate) mod content_encoding;
mod files;
mod grpc;
pub(crate) mod http1;
mod http2;
mod kernel_time;
pub(crate) mod model;
mod origin;
pub(crate) mod part_source;
mod pool;
pub(crate) mod sql;
mod stream;
pub(crate) mod stub;
pub(crate) mod tls;
mod tls_files;
pub(crate) mod upload;
mod write_coalescing;

pub(crate) use origin::origins;
pub(crate) use tls_files::TlsFiles;

use attempt::{Attempt, Received};
use files::{Folder, FolderData};
use http1::Http1;
use http2::Http2;
use model::{Model, ModelBackend, ModelName};
use pool::Pool;
use sql::{Mysql, Postgres};

/// One worker's connections to one endpoint.
#[derive(Debug)]
pub(crate) enum Connections {
    Http1(Rc<Pool<Http1>>),
    Http2(Rc<Pool<Http2>>),
    Grpc(Rc<Pool<Http2>>),
    Postgres(Rc<sql::WorkerPool<Postgres>>),
    Mysql(Rc<sql::WorkerPool<Mysql>>),
    Files(Arc<Folder>),
    Model(Model),
    Scripted(stub::Scripted),
}

impl Connections {
    pub fn new(endpoint: &Arc<Endpoint>, models: Option<&Arc<dyn ModelBackend>>) -> Connections {
        if let Some(pool) = sql::WorkerPool::new(endpoint) {
            return Connections::Postgres(pool);
        }
        if let Some(pool) = sql::WorkerPool::new(endpoint) {
            return Connections::Mysql(pool);
        }
        if let Some(FolderData(folder)) = endpoint.origin.data() {
            return Connections::Files(folder.clone());
        }
        if let Some(ModelName(name)) = endpoint.origin.data() {
            return Connections::Model(Model { name: name.clone(), backend: models.cloned() });
        }
        if endpoint.origin.kind == UpstreamKind::Grpc {
            return Connections::Grpc(Pool::new(endpoint.clone()));
        }
        match endpoint.origin.protocol {
            HttpVersion::Http1 => Connections::Http1(Pool::new(endpoint.clone())),
            HttpVersion::Http2 => Connections::Http2(Pool::new(endpoint.clone())),
        }
    }

    pub async fn send(&self, attempt: &Attempt<'_>) -> Result<Received, Failure> {
        if attempt.upload.is_some() && !matches!(self, Connections::Http1(_) | Connections::Scripted(_)) {
            return Err(Failure::ours("a body that is not collected can be sent over HTTP/1.1 only"));
        }
        match self {
            Connections::Http1(pool) => http1::send(pool, attempt).await,
            // All but HTTP/1.1 are boxed, so that a call over HTTP/1.1 does not carry their state.
            Connections::Http2(pool) => Box::pin(http2::send(pool, attempt)).await,
            Connections::Grpc(pool) => Box::pin(grpc::send(pool, attempt)).await,
            Connections::Files(folder) => Box::pin(folder.send(attempt)).await,
            Connections::Model(model) => Box::pin(model.send(attempt)).await,
            Connections::Scripted(scripted) => Box::pin(scripted.send(attempt)).await,
            Connections::Postgres(pool) => Box::pin(pool.send(attempt)).await,
            Connections::Mysql(pool) => Box::pin(pool.send(attempt)).await,
        }
    }
}
