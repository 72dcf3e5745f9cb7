//! MySQL and MariaDB, by `mysql_async`.
//!
//! A new session gets read-only transactions, UTC and strict mode. Access mode and statement timeout change only when
//! the next statement needs others.
//!
//! The client does not tell how far a statement was when its call was dropped. Such a connection is not used again: the
//! server gets a KILL for it and its statement.

use std::sync::Arc;

use fanin_config::{Rows, SessionReset, can_change_session};
use http::StatusCode;
use mysql_async::consts::StatusFlags;
use mysql_async::prelude::Queryable;
use mysql_async::{Column, Conn, Error, IoError, OptsBuilder, Params, ServerError};

use super::access::Access;
use super::answer::{answer, bad_request, error_answer, too_large};
use super::dialect::{Dialect, Statement};
use crate::endpoint::Endpoint;
use crate::error::{ErrorKind, Failure};
use crate::transport::attempt::{Phase, Received};
use params::param;
use values::Reader;

pub(crate) mod fuzz;
mod params;
pub(super) mod tls;
mod values;

/// Most prepared statements of a connection. Statements come from files, so there are few.
const MAX_PREPARED: usize = 500;
/// Signing on needs packets of this size, whatever `max_answer` is.
const LEAST_PACKET: usize = 64 << 10;
/// Set so that the client does not ask the server for it. Its value is not used.
const UNUSED_WAIT_TIMEOUT: usize = 28_800;

/// The protocol of MySQL and MariaDB.
#[derive(Debug)]
pub(crate) struct Mysql;

/// A connection with what is known of it.
pub(crate) struct Connection {
    client: Conn,
    /// MariaDB has another name for the statement timeout.
    is_mariadb: bool,
    /// The present access mode.
    read_only: bool,
    /// The present statement timeout in milliseconds; 0 for none.
    timeout: u64,
    /// An error has left its state unknown.
    broken: bool,
    session: Session,
}

/// What the last statement has left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Session {
    Clean,
    /// The statement may still run.
    Unknown,
    /// Settings, variables or locks may be left.
    Changed,
    InTransaction,
}

impl Dialect for Mysql {
    type Connection = Connection;
    const DETECTS_CLOSE: bool = false;

    async fn connect(endpoint: &Arc<Endpoint>, access: &Access) -> Result<Connection, Failure> {
        let mut client = open(endpoint, access).await?;
        let set_up = async {
            let version: Option<String> = client.query_first("SELECT VERSION()").await?;
            set_up(&mut client).await?;
            Ok(version)
        };
        let version = set_up.await.map_err(|error| connect_failed(endpoint, &error))?;
        let is_mariadb = version.is_some_and(|version| version.contains("MariaDB"));
        Ok(Connection { client, is_mariadb, read_only: true, timeout: 0, broken: false, session: Session::Clean })
    }

    fn is_closed(connection: &mut Connection) -> bool {
        connection.broken || connection.client.is_disconnected()
    }

    async fn run(connection: &mut Connection, job: &Statement<'_>) -> Result<Received, Failure> {
        connection.session = Session::Clean;
        let result = match connection.execute(job).await {
            Err(StatementError::Client(error)) => connection.failed(&error, job),
            Err(StatementError::Other(failure)) => Err(failure),
            Ok(received) => Ok(received),
        };
        if job.unclean.get() {
            // Its rest is not read: the connection is killed.
            connection.session = Session::Unknown;
        } else if connection.session != Session::Clean && !connection.broken {
            connection.session = connection.session_after(job);
            job.unclean.set(connection.session != Session::Clean);
        }
        match result {
            Ok(received) if connection.session == Session::InTransaction && received.status == StatusCode::OK => {
                Ok(job.left_open())
            }
            result => result,
        }
    }

    async fn clean(connection: &mut Connection, endpoint: &Arc<Endpoint>, access: &Access) -> bool {
        match connection.session {
            Session::Clean | Session::Unknown => {}
            // Closing it rolls back.
            Session::InTransaction => return false,
            Session::Changed => return connection.reset().await.unwrap_or(false),
        }
        if let Ok(mut other) = open(endpoint, access).await {
            // The statement may have ended by itself.
            let _ = other.query_drop(format!("KILL {}", connection.client.id())).await;
            let _ = other.disconnect().await;
        }
        false
    }
}

/// Why a statement failed: an error of the server or its protocol, or one of ours.
enum StatementError {
    Client(Error),
    Other(Failure),
}

impl From<Error> for StatementError {
    fn from(error: Error) -> StatementError {
        StatementError::Client(error)
    }
}

/// Values are parsed in these formats, and invalid ones must not be adjusted, whatever the server's own settings.
async fn set_up(client: &mut Conn) -> Result<(), Error> {
    const SETTINGS: &str =
        "SET autocommit = 1, time_zone = '+00:00', sql_mode = CONCAT(@@sql_mode, ',STRICT_ALL_TABLES')";
    client.query_drop(SETTINGS).await?;
    client.query_drop("SET SESSION TRANSACTION READ ONLY").await
}

impl Connection {
    /// What a statement has left behind, by the server's last status and the statement's text.
    fn session_after(&self, job: &Statement<'_>) -> Session {
        // An error has no status. What ran before it shows only in the text.
        let status = self.client.last_ok_packet().map(|ok| ok.status_flags());
        if status.is_some_and(|status| status.contains(StatusFlags::SERVER_STATUS_IN_TRANS)) {
            return Session::InTransaction;
        }
        let autocommit = status.is_none_or(|status| status.contains(StatusFlags::SERVER_STATUS_AUTOCOMMIT));
        match job.reset == SessionReset::Always || !autocommit || can_change_session(job.sql) {
            true => Session::Changed,
            false => Session::Clean,
        }
    }

    /// Makes the session a new one. The server rolls back, and forgets prepared statements as well. Old servers cannot.
    async fn reset(&mut self) -> Result<bool, Error> {
        if !self.client.reset().await? {
            return Ok(false);
        }
        set_up(&mut self.client).await?;
        (self.read_only, self.timeout, self.session) = (true, 0, Session::Clean);
        Ok(true)
    }

    /// Changes the session's settings if the statement needs others.
    async fn settings(&mut self, job: &Statement<'_>) -> Result<(), Error> {
        if self.read_only == job.writes {
            self.client
                .query_drop(match job.writes {
                    true => "SET SESSION TRANSACTION READ WRITE",
                    false => "SET SESSION TRANSACTION READ ONLY",
                })
                .await?;
            self.read_only = !job.writes;
        }
        let left = u64::try_from(job.left.as_millis()).unwrap_or(u64::MAX).clamp(1, 1 << 30);
        if !(left..=2 * left).contains(&self.timeout) {
            // Not exact, or each statement would set it. At the deadline itself the statement is killed; this is for
            // the case that this process has ended. Half as much again also serves the request's next statements.
            let timeout = left + left / 2;
            let text = match self.is_mariadb {
                true => format!("SET max_statement_time = {}.{:03}", timeout / 1000, timeout % 1000),
                false => format!("SET max_execution_time = {timeout}"),
            };
            self.client.query_drop(text).await?;
            self.timeout = timeout;
        }
        Ok(())
    }

    /// Runs the statement, and writes its rows as they come.
    async fn execute(&mut self, job: &Statement<'_>) -> Result<Received, StatementError> {
        // First: MariaDB refuses to prepare what the session may not do.
        self.settings(job).await?;
        let statement = self.client.prep(job.sql).await?;
        let (takes, given) = (usize::from(statement.num_params()), job.params.len());
        if takes != given {
            return Ok(bad_request(format!("{} takes {takes} parameters and was given {given}", job.name)));
        }
        let params = match job.params.as_slice() {
            [] => Params::Empty,
            params => Params::Positional(params.iter().map(|value| param(*value)).collect()),
        };
        // Until its end, which a dropped call does not see.
        self.session = Session::Unknown;
        let mut rows = self.client.exec_iter(&statement, params).await?;
        job.phase.set(Phase::Answering);
        let columns = rows.columns().unwrap_or_default();
        if columns.is_empty() {
            let mut out = format!("{{\"affected\":{}", rows.affected_rows());
            if let Some(id) = rows.last_insert_id().filter(|id| *id > 0) {
                out.push_str(&format!(",\"insert_id\":{id}"));
            }
            out.push('}');
            rows.drop_result().await?;
            return Ok(answer(out.into_bytes()));
        }
        let readers = match readers(&columns, job) {
            Ok(readers) => readers,
            Err(problem) => {
                job.unclean.set(true);
                return Ok(bad_request(problem));
            }
        };
        let many = job.rows == Rows::Many;
        let mut out = Vec::new();
        let mut count = 0_u64;
        if many {
            out.push(b'[');
        }
        while let Some(row) = rows.next().await? {
            count += 1;
            match (many, count) {
                (true, 1) | (false, 1) => {}
                (true, _) => out.push(b','),
                (false, _) => {
                    job.unclean.set(true);
                    return Ok(bad_request(format!(
                        "{} gave more than the one row that the statement declares",
                        job.name
                    )));
                }
            }
            for (at, (key, reader)) in readers.iter().enumerate() {
                out.push(if at == 0 { b'{' } else { b',' });
                out.extend_from_slice(key);
                if row.as_ref(at).and_then(|value| reader.write(value, &mut out)).is_none() {
                    let detail = format!("column {} is not what its type says", at + 1);
                    job.unclean.set(true);
                    return Err(StatementError::Other(Failure::new(ErrorKind::Decode, detail)));
                }
            }
            out.push(b'}');
            if out.len() > job.max_answer {
                // The remaining rows are not read: the connection is killed.
                job.unclean.set(true);
                return Err(StatementError::Other(too_large(job.max_answer)));
            }
        }
        // A procedure may return several results. The first is the answer.
        rows.drop_result().await?;
        match (many, count) {
            (true, _) => out.push(b']'),
            (false, 0) => out.extend_from_slice(b"null"),
            (false, _) => {}
        }
        Ok(answer(out))
    }

    /// Maps an error to an answer, or to a failure of the connection.
    #[cold]
    fn failed(&mut self, error: &Error, job: &Statement<'_>) -> Result<Received, Failure> {
        let error = match error {
            Error::Server(error) => error,
            error => {
                self.broken = true;
                return Err(match is_too_large(error) {
                    true => too_large(job.max_answer),
                    false => Failure::new(ErrorKind::Protocol, with_sources(error)),
                });
            }
        };
        match error.code {
            // The statement timeout (MariaDB, MySQL), or an interruption.
            1969 | 3024 | 1317 => Err(Failure::new(ErrorKind::Timeout, error.message.clone())),
            // The connection was killed, or the server shuts down.
            1927 | 1053 | 1077 | 1079 => {
                self.broken = true;
                Err(Failure::new(ErrorKind::Protocol, error.to_string()))
            }
            _ => Ok(server_error_answer(error)),
        }
    }
}

/// How each column is written: its key in JSON, and the reader of its values. An error says which column has none.
fn readers(columns: &[Column], job: &Statement<'_>) -> Result<Vec<(Vec<u8>, Reader)>, String> {
    let mut readers: Vec<(Vec<u8>, Reader)> = Vec::with_capacity(columns.len());
    for column in columns {
        let name = column.name_str();
        let mut key = Vec::with_capacity(name.len() + 3);
        fanin_json::write_str(&mut key, &name);
        key.push(b':');
        let reader = Reader::of(column).map_err(|kind| {
            format!(
                "column {name} of {} has the type {kind}, which has no form in JSON: convert it, as in st_asgeojson({name})",
                job.name
            )
        })?;
        if readers.iter().any(|(other, _)| *other == key) {
            return Err(format!("{} has two columns named {name}: name one of them with AS", job.name));
        }
        readers.push((key, reader));
    }
    Ok(readers)
}

fn is_too_large(error: &Error) -> bool {
    // The protocol's own error is not a public type of the client.
    matches!(error, Error::Io(IoError::Io(error)) if error.to_string().contains("larger than max_allowed_packet"))
}

/// An error with its sources.
fn with_sources(error: &Error) -> String {
    let mut detail = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        let text = inner.to_string();
        if !detail.contains(&text) {
            detail = format!("{detail}: {text}");
        }
        source = inner.source();
    }
    detail
}

/// The first two characters of a SQLSTATE are its class. Many errors of MySQL have none (HY000) and are known by their
/// number.
fn server_error_answer(error: &ServerError) -> Received {
    let class = error.state.get(..2).unwrap_or_default();
    let status = match (error.code, class) {
        // Access denied: to the database, the statement, the column, the routine.
        (1044 | 1045 | 1142 | 1143 | 1227 | 1370, _) => StatusCode::FORBIDDEN,
        // Lock wait timeout; too many connections; no memory or threads.
        (1205 | 1040 | 1203 | 1226 | 1037 | 1038 | 1041 | 1135, _) => StatusCode::SERVICE_UNAVAILABLE,
        (3819, _) | (_, "23") => StatusCode::CONFLICT,
        (_, "08" | "40") => StatusCode::SERVICE_UNAVAILABLE,
        (_, "21" | "22" | "25" | "42" | "45") => StatusCode::BAD_REQUEST,
        // A missing or invalid value for its column; invalid JSON.
        (1264 | 1265 | 1292 | 1364 | 1366 | 1406 | 3140 | 3141 | 4038, _) => StatusCode::BAD_REQUEST,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let message = match error.code {
        1792 => format!("{} (a statement that writes needs writes = true, or execute() in a flow)", error.message),
        _ => error.message.clone(),
    };
    let number = error.code.to_string();
    error_answer(status, &error.state, &message, &[("number", Some(&number))])
}

async fn open(endpoint: &Endpoint, access: &Access) -> Result<Conn, Failure> {
    let options = OptsBuilder::default()
        .ip_or_hostname(endpoint.address.ip().to_string())
        .tcp_port(endpoint.address.port())
        .user(Some(&access.user))
        .pass(access.password.as_deref())
        .db_name(Some(&access.database))
        .prefer_socket(false)
        .max_allowed_packet(Some(access.max_message.max(LEAST_PACKET)))
        .wait_timeout(Some(UNUSED_WAIT_TIMEOUT))
        .stmt_cache_size(MAX_PREPARED)
        // An update counts the rows found, as elsewhere, not only those changed.
        .client_found_rows(true)
        .ssl_opts(access.mysql_tls.clone());
    Conn::new(options).await.map_err(|error| connect_failed(endpoint, &error))
}

#[cold]
fn connect_failed(endpoint: &Endpoint, error: &Error) -> Failure {
    let kind = match error {
        Error::Io(IoError::Io(error)) if error.kind() == std::io::ErrorKind::ConnectionRefused => ErrorKind::Refused,
        _ => ErrorKind::Connect,
    };
    let detail = match error {
        Error::Server(error) => format!("{}: {}: {}", error.code, error.state, error.message),
        error => with_sources(error),
    };
    Failure::new(kind, format!("{}: {detail}", endpoint.address))
}
