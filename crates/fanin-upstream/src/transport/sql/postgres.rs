//! PostgreSQL, by `tokio-postgres`.
//!
//! A connection is set to read-only transactions when it is opened, so that a statement which is not said to write cannot,
//! without a round trip of its own; the settings change only when the next statement needs others, on its way to the server.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::{Either, select};
use http::StatusCode;
use indexmap::IndexMap;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_postgres::error::{DbError, SqlState};
use tokio_postgres::types::{FromSql, Type};
use tokio_postgres::{Client, Error, NoTls, Statement};

use super::access::Access;
use super::guard::Guard;
use super::postgres_params::{Param, param};
use super::postgres_values::Reader;
use super::wire::Wire;
use super::{Dialect, Job, answer, refusal, too_large, wrong};
use crate::endpoint::Endpoint;
use crate::error::{ErrorKind, Failure};
use crate::transport::{Phase, Received, stream};
use fanin_config::Rows;

/// Prepared statements that a connection keeps. Their texts stand in files, so there are not many.
const MAX_PREPARED: usize = 500;

/// The dialect.
pub(crate) struct Postgres;

/// A connection with what is known of it.
pub(crate) struct Connection {
    client: Client,
    /// Set when the server sent a message that is too long: its length.
    refused: Arc<AtomicU64>,
    prepared: IndexMap<Box<str>, Arc<Prepared>>,
    /// What `default_transaction_read_only` is.
    read_only: bool,
    /// What `statement_timeout` is, in milliseconds; 0 for none.
    timeout: u64,
}

/// A statement that the server knows.
struct Prepared {
    statement: Statement,
    /// Each column's name as a key, and how it is read.
    columns: Vec<(Vec<u8>, Reader)>,
}

/// A value's bytes, whatever its type.
struct Raw<'a>(&'a [u8]);

impl<'a> FromSql<'a> for Raw<'a> {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Raw(raw))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

impl Dialect for Postgres {
    type Connection = Connection;
    const SEES_CLOSING: bool = true;

    async fn connect(endpoint: &Arc<Endpoint>, access: &Access) -> Result<Connection, Failure> {
        let wire = wire(endpoint, access).await?;
        let guard = Guard::new(wire, access.max_message);
        let refused = guard.refused.clone();
        let mut config = tokio_postgres::Config::new();
        config.user(&access.user).dbname(&access.database).application_name(&access.application);
        if let Some(password) = &access.password {
            config.password(password);
        }
        let failed = |error: Error| connect_failed(endpoint, &error);
        let (client, connection) = config.connect_raw(guard, NoTls).await.map_err(failed)?;
        tokio::task::spawn_local(async move {
            // Errors of a connection reach the call that uses it; without one there is nobody to tell.
            let _ = connection.await;
        });
        // Values are read in these forms; a user's or a database's own settings must not change them.
        client
            .batch_execute("SET default_transaction_read_only = on; SET client_encoding = 'UTF8'")
            .await
            .map_err(failed)?;
        Ok(Connection { client, refused, prepared: IndexMap::new(), read_only: true, timeout: 0 })
    }

    fn is_closed(connection: &Connection) -> bool {
        connection.client.is_closed()
    }

    async fn run(connection: &mut Connection, job: &Job<'_>) -> Result<Received, Failure> {
        for last in [false, true] {
            let prepared = match connection.prepare(job).await {
                Ok(Ok(prepared)) => prepared,
                Ok(Err(problem)) => return Ok(problem),
                Err(error) => return connection.failed(&error, job),
            };
            let params = match params(job, &prepared.statement) {
                Ok(params) => params,
                Err(problem) => return Ok(problem),
            };
            match connection.execute(job, &prepared, &params).await {
                Err(Trouble::Postgres(error)) if !last && is_outdated(&error) => {
                    // A table has changed since: nothing has run yet.
                    connection.prepared.shift_remove(job.sql);
                }
                Err(Trouble::Postgres(error)) => return connection.failed(&error, job),
                Err(Trouble::Other(failure)) => return Err(failure),
                Ok(received) => return Ok(received),
            }
        }
        Err(Failure::new(ErrorKind::Protocol, "a statement was outdated as soon as it was prepared"))
    }

    async fn clean(connection: &mut Connection, endpoint: &Arc<Endpoint>, access: &Access) -> bool {
        // What the settings are now is not known: a setting may be what was cancelled.
        const FENCE: &str = "SET default_transaction_read_only = on; SET statement_timeout = 0";
        (connection.read_only, connection.timeout) = (true, 0);
        // First a look whether it has ended anyway: answers are in order, so this one's comes after the statement's.
        {
            let fence = pin!(connection.client.batch_execute(FENCE));
            let moment = pin!(tokio::time::sleep(Duration::from_millis(1)));
            if let Either::Left((ended, _)) = select(fence, moment).await {
                return ended.is_ok();
            }
        }
        // The server closes this connection once it has sent the signal, so that the signal cannot hit a later statement.
        let Ok(mut wire) = wire(endpoint, access).await else { return false };
        if connection.client.cancel_token().cancel_query_raw(&mut wire, NoTls).await.is_err() {
            return false;
        }
        let _ = wire.read(&mut [0; 1]).await;
        // If the signal comes late after all, it hits this.
        let _ = connection.client.simple_query("").await;
        connection.client.batch_execute(FENCE).await.is_ok()
    }
}

/// What went wrong with a statement: something that PostgreSQL or its protocol says, or something of ours.
enum Trouble {
    Postgres(Error),
    Other(Failure),
}

impl Connection {
    /// The statement as the server knows it, or what is wrong with its columns.
    async fn prepare(&mut self, job: &Job<'_>) -> Result<Result<Arc<Prepared>, Received>, Error> {
        if let Some(prepared) = self.prepared.get(job.sql) {
            return Ok(Ok(prepared.clone()));
        }
        let statement = self.client.prepare(job.sql).await?;
        let mut columns: Vec<(Vec<u8>, Reader)> = Vec::with_capacity(statement.columns().len());
        for column in statement.columns() {
            let name = column.name();
            let Some(reader) = Reader::of(column.type_()) else {
                let kind = column.type_().name();
                return Ok(Err(wrong(format!(
                    "column {name} of {} has the type {kind}, which has no form in JSON: cast it, as in {name}::text",
                    job.name
                ))));
            };
            let mut key = Vec::with_capacity(name.len() + 3);
            fanin_json::write_str(&mut key, name);
            key.push(b':');
            if columns.iter().any(|(other, _)| *other == key) {
                return Ok(Err(wrong(format!("{} has two columns named {name}: name one of them with AS", job.name))));
            }
            columns.push((key, reader));
        }
        let prepared = Arc::new(Prepared { statement, columns });
        if self.prepared.len() >= MAX_PREPARED {
            self.prepared.shift_remove_index(0);
        }
        self.prepared.insert(job.sql.into(), prepared.clone());
        Ok(Ok(prepared))
    }

    /// The settings that must change before a statement, as statements.
    fn settings(&mut self, job: &Job<'_>) -> Option<String> {
        let mut text = String::new();
        if self.read_only == job.writes {
            self.read_only = !job.writes;
            text.push_str(if job.writes {
                "SET default_transaction_read_only = off;"
            } else {
                "SET default_transaction_read_only = on;"
            });
        }
        let left = u64::try_from(job.left.as_millis()).unwrap_or(u64::MAX).clamp(1, 1 << 30);
        if !(left..=2 * left).contains(&self.timeout) {
            // Not to the millisecond, or each statement would set it: at the deadline itself the statement is cancelled; this
            // is for when there is nobody left to do so. Half as much again keeps it good for the request's next statements.
            self.timeout = left + left / 2;
            text.push_str(&format!("SET statement_timeout = {};", self.timeout));
        }
        (!text.is_empty()).then_some(text)
    }

    async fn execute(&mut self, job: &Job<'_>, prepared: &Prepared, params: &[Param]) -> Result<Received, Trouble> {
        let settings = self.settings(job);
        let rows = rows(&self.client, job, prepared, params);
        let Some(settings) = settings else { return rows.await };
        // One behind the other on the wire, without waiting in between.
        let (set, rows) = futures_util::future::join(self.client.batch_execute(&settings), rows).await;
        set.map_err(Trouble::Postgres)?;
        rows
    }

    /// What an error of the protocol's reader is: the database's word, or a broken connection.
    #[cold]
    fn failed(&self, error: &Error, job: &Job<'_>) -> Result<Received, Failure> {
        let refused = self.refused.load(Relaxed);
        if refused > 0 {
            let detail = format!("a row of {refused} bytes is larger than {} bytes (max_answer)", job.max_answer);
            return Err(Failure::new(ErrorKind::TooLarge, detail));
        }
        match error.as_db_error() {
            Some(said) if *said.code() == SqlState::QUERY_CANCELED => {
                Err(Failure::new(ErrorKind::Timeout, said.message().to_owned()))
            }
            Some(said) => Ok(said_no(said)),
            None => {
                let mut detail = error.to_string();
                let mut source = std::error::Error::source(error);
                while let Some(inner) = source {
                    detail = format!("{detail}: {inner}");
                    source = inner.source();
                }
                Err(Failure::new(ErrorKind::Protocol, detail))
            }
        }
    }
}

/// Runs the statement and writes its rows as they come.
async fn rows(client: &Client, job: &Job<'_>, prepared: &Prepared, params: &[Param]) -> Result<Received, Trouble> {
    let rows = client.query_raw(&prepared.statement, params).await.map_err(Trouble::Postgres)?;
    job.phase.set(Phase::Answering);
    let mut rows = pin!(rows);
    let mut out = Vec::new();
    let mut count = 0_u64;
    let many = job.rows == Rows::Many;
    if many {
        out.push(b'[');
    }
    while let Some(row) = rows.next().await {
        let row = row.map_err(Trouble::Postgres)?;
        count += 1;
        match (many, count) {
            (true, 1) | (false, 1) => {}
            (true, _) => out.push(b','),
            (false, _) => {
                job.running.set(true);
                return Ok(wrong(format!("{} gave more than the one row that was asked for", job.name)));
            }
        }
        for (at, (key, reader)) in prepared.columns.iter().enumerate() {
            out.push(if at == 0 { b'{' } else { b',' });
            out.extend_from_slice(key);
            let value = row.try_get::<_, Option<Raw<'_>>>(at).map_err(Trouble::Postgres)?;
            let written = match value {
                None => {
                    out.extend_from_slice(b"null");
                    Some(())
                }
                Some(Raw(bytes)) => reader.write(bytes, &mut out),
            };
            if written.is_none() {
                let detail = format!("column {} is not what its type says", at + 1);
                return Err(Trouble::Other(Failure::new(ErrorKind::Decode, detail)));
            }
        }
        if prepared.columns.is_empty() {
            out.push(b'{');
        }
        out.push(b'}');
        if out.len() > job.max_answer {
            // What still comes is thrown away, and the statement is cancelled.
            job.running.set(true);
            return Err(Trouble::Other(too_large(job.max_answer)));
        }
    }
    if prepared.columns.is_empty() {
        let affected = rows.rows_affected().unwrap_or(0);
        return Ok(answer(format!("{{\"affected\":{affected}}}").into_bytes()));
    }
    match (many, count) {
        (true, _) => out.push(b']'),
        (false, 0) => out.extend_from_slice(b"null"),
        (false, _) => {}
    }
    Ok(answer(out))
}

fn params(job: &Job<'_>, statement: &Statement) -> Result<Vec<Param>, Received> {
    let types = statement.params();
    if types.len() != job.params.len() {
        let (takes, given) = (types.len(), job.params.len());
        return Err(wrong(format!("{} takes {takes} parameters and was given {given}", job.name)));
    }
    let written = job.params.iter().zip(types).enumerate();
    written
        .map(|(at, (value, of))| param(*value, of).map_err(|what| wrong(format!("{} {what}", job.param(at)))))
        .collect()
}

/// Whether the server knows the statement no more, or knows it from before a change of its tables.
fn is_outdated(error: &Error) -> bool {
    error.as_db_error().is_some_and(|said| {
        *said.code() == SqlState::INVALID_SQL_STATEMENT_NAME
            || *said.code() == SqlState::FEATURE_NOT_SUPPORTED && said.message().contains("cached plan")
    })
}

/// Classes of errors are the first two signs of their codes (PostgreSQL's manual, appendix A).
fn said_no(said: &DbError) -> Received {
    let code = said.code().code();
    let status = match (&code[..code.len().min(2)], code) {
        (_, "42501") => StatusCode::FORBIDDEN,
        ("23", _) => StatusCode::CONFLICT,
        // What was asked cannot be done, now or later.
        ("0A" | "20" | "21" | "22" | "25" | "42" | "44" | "54" | "P0", _) => StatusCode::BAD_REQUEST,
        // A conflict with others, a lack of resources, a server that goes or comes: a little later it may work.
        ("08" | "40" | "53" | "55" | "57", _) => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let message = match code {
        "25006" => format!("{} (a statement that writes needs writes = true, or execute() in a flow)", said.message()),
        _ => said.message().to_owned(),
    };
    let more = [("constraint", said.constraint()), ("table", said.table()), ("column", said.column())];
    refusal(status, code, &message, &more)
}

#[cold]
fn connect_failed(endpoint: &Endpoint, error: &Error) -> Failure {
    let detail = match error.as_db_error() {
        Some(said) => format!("{}: {}: {}", endpoint.address, said.code().code(), said.message()),
        None => match std::error::Error::source(error) {
            Some(source) => format!("{}: {error}: {source}", endpoint.address),
            None => format!("{}: {error}", endpoint.address),
        },
    };
    Failure::new(ErrorKind::Connect, detail)
}

/// A stream on which PostgreSQL's protocol begins, encrypted if the upstream says so.
fn wire<'a>(endpoint: &'a Endpoint, access: &'a Access) -> impl Future<Output = Result<Wire, Failure>> + 'a {
    /// Asks for TLS (PostgreSQL's manual, 55.2.10).
    const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];
    async move {
        let mut tcp = stream::connect(endpoint).await?;
        let Some(tls) = &access.tls else { return Ok(Wire::Plain(tcp)) };
        let failed = |what: String| Failure::new(ErrorKind::Connect, format!("{}: {what}", endpoint.address));
        tcp.write_all(&SSL_REQUEST).await.map_err(|error| failed(error.to_string()))?;
        match tcp.read_u8().await {
            Ok(b'S') => Ok(Wire::Tls(Box::new(tls.handshake(tcp, endpoint).await?))),
            Ok(_) => Err(failed("the server does not offer TLS".to_owned())),
            Err(error) => Err(failed(error.to_string())),
        }
    }
}
