//! Databases: statements over connections that all workers share.
//!
//! - `pool`: the connections, and how a call gets one; `outage`: when a server that cannot be reached is tried again.
//! - `dialect`: what a database's protocol provides; `postgres` and `mysql` implement it.
//! - `access`: user, password, TLS; `answer`: results and errors as answers with a status.

mod access;
mod answer;
mod dialect;
pub(crate) mod mysql;
mod outage;
mod pool;
pub(crate) mod postgres;

pub(super) use access::Access;
pub(super) use mysql::Mysql;
pub(super) use pool::{Server, WorkerPool};
pub(super) use postgres::Postgres;
