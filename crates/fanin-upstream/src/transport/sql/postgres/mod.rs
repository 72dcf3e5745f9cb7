//! PostgreSQL, by its own protocol.
//!
//! A new connection gets read-only transactions, so that only a statement declared as writing can write. Settings
//! change only when the next statement needs others, and are sent together with it.
//!
//! # Why not `tokio-postgres`
//! It runs a connection as a task of its own. A call hands over its messages through a channel, and gets replies
//! through another: two more task switches and three wake-ups for each statement, and an allocation for each message. A
//! flow's call needs the rows of one statement as JSON. So messages are written and read in the call's own future
//! ([`message_stream`]), and rows become JSON in place. Dropping the call leaves a connection that knows its pending
//! replies. Formats of values and authentication come from `postgres-types` and `postgres-protocol`, which
//! `tokio-postgres` uses as well.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use fanin_config::SessionReset;
use tokio::time::timeout;

use super::access::Access;
use super::answer::bad_request;
use super::dialect::{Dialect, Statement};
use crate::endpoint::Endpoint;
use crate::error::{ErrorKind, Failure};
use crate::transport::attempt::{Phase, Received};
use crate::transport::write_coalescing;
use message_stream::MessageStream;
use messages::{Body, EXECUTE, message, text, unexpected};
use rows::RowWriter;
use server_error::{ServerError, error_status, is_cancelled, is_outdated};
use startup::{Key, cancel_statement, start_up};
use statement::{Prepared, Statements};
use statement_error::StatementError;

mod channel_binding;
pub(crate) mod fuzz;
mod message_stream;
mod messages;
mod params;
mod rows;
mod server_error;
mod startup;
mod statement;
mod statement_error;
mod values;

/// Values are parsed in these formats, whatever a user's or a database's own settings are.
const SETTINGS: &str = "SET default_transaction_read_only = on; SET client_encoding = 'UTF8'";
/// How long a cancelled statement gets to end by itself.
const MOMENT: Duration = Duration::from_millis(1);

/// The protocol of PostgreSQL.
#[derive(Debug)]
pub(crate) struct Postgres;

/// A connection with what is known of it.
pub(crate) struct Connection {
    stream: MessageStream,
    key: Key,
    statements: Statements,
    /// The present `default_transaction_read_only`.
    read_only: bool,
    /// The present `statement_timeout` in milliseconds; 0 for none.
    timeout: u64,
    /// A statement has run that can have changed the session.
    changed: bool,
}

impl Dialect for Postgres {
    type Connection = Connection;
    const DETECTS_CLOSE: bool = true;

    async fn connect(endpoint: &Arc<Endpoint>, access: &Access) -> Result<Connection, Failure> {
        let (stream, key) = start_up(endpoint, access, SETTINGS).await?;
        Ok(Connection { stream, key, statements: Statements::default(), read_only: true, timeout: 0, changed: false })
    }

    fn is_closed(connection: &mut Connection) -> bool {
        !connection.stream.is_quiet()
    }

    fn is_broken(connection: &mut Connection) -> bool {
        connection.stream.broken
    }

    async fn run(connection: &mut Connection, job: &Statement<'_>) -> Result<Received, Failure> {
        connection.stream.max_row = job.max_answer;
        let mut result = connection.attempt(job).await;
        if let Err(StatementError::Server(error)) = &result
            && is_outdated(error)
            && connection.stream.is_idle()
            && !connection.stream.in_transaction
        {
            // A table has changed since the statement was prepared. It has not run yet.
            connection.statements.forget(job.sql);
            result = connection.attempt(job).await;
        }
        // Pending replies have to be cancelled and read, and changes of the session undone.
        let stream = &connection.stream;
        job.unclean.set((!stream.is_idle() || stream.in_transaction || connection.changed) && !stream.broken);
        match result {
            Ok(_) if stream.in_transaction => Ok(job.left_open()),
            Ok(received) | Err(StatementError::BadRequest(received)) => Ok(received),
            Err(StatementError::Server(error)) if is_cancelled(&error) => {
                Err(Failure::new(ErrorKind::Timeout, error.message().to_owned()))
            }
            Err(StatementError::Server(error)) => Ok(error_status(&error)),
            Err(StatementError::Failed(failure)) => Err(failure),
        }
    }

    async fn clean(connection: &mut Connection, endpoint: &Arc<Endpoint>, access: &Access) -> bool {
        // The present settings are not known: the cancelled statement may be a setting. Prepared statements stay.
        const RESET: &str = "RESET SESSION AUTHORIZATION; RESET ALL; SET default_transaction_read_only = on; \
                             SET client_encoding = 'UTF8'; SELECT pg_advisory_unlock_all(); CLOSE ALL; UNLISTEN *; \
                             DISCARD TEMP; DISCARD SEQUENCES";
        (connection.read_only, connection.timeout, connection.changed) = (true, 0, false);
        let stream = &mut connection.stream;
        if stream.is_idle() {
            if stream.in_transaction {
                // Closing it rolls back.
                return false;
            }
            stream.simple_query(RESET);
            return stream.drain().await.unwrap_or(false);
        }
        // Replies come in order: this one comes after the statement's, if that has ended by itself.
        stream.simple_query(RESET);
        if let Ok(ended) = timeout(MOMENT, stream.drain()).await {
            return ended.unwrap_or(false) && !stream.in_transaction;
        }
        if cancel_statement(endpoint, access, connection.key).await.is_err() {
            return false;
        }
        // A late signal would cancel the first of these.
        stream.simple_query("");
        stream.simple_query(RESET);
        stream.drain().await.unwrap_or(false) && !stream.in_transaction
    }
}

impl Connection {
    async fn attempt(&mut self, job: &Statement<'_>) -> Result<Received, StatementError> {
        let prepared = match self.statements.get(job.sql) {
            Some(prepared) => prepared,
            None => Box::pin(self.statements.prepare(&mut self.stream, job)).await?,
        };
        // Before anything is in the write buffer: what a dropped call leaves there is sent by the cleanup task.
        write_coalescing::after_ready_tasks().await;
        let has_settings = self.send(job, &prepared)?;
        self.changed |= prepared.can_change_session || job.reset == SessionReset::Always;
        if has_settings {
            self.set().await?;
        }
        let mut rows = RowWriter::new(job, &prepared);
        loop {
            let (tag, body) = self.stream.next().await?;
            match tag {
                b'D' => rows.row(body)?,
                // Bound: the statement runs.
                b'2' => job.phase.set(Phase::Answering),
                b'C' => rows.affected = affected(body),
                b'Z' => return Ok(rows.end()),
                b'E' => {
                    let error = ServerError::read(body);
                    return Err(StatementError::server(&mut self.stream, error).await);
                }
                // An empty statement.
                b'I' => {}
                // COPY in particular, which the configuration refuses.
                _ => {
                    self.stream.broken = true;
                    return Err(unexpected(tag).into());
                }
            }
        }
    }

    /// Writes a statement, and before it the settings that it needs. Whether there are any.
    fn send(&mut self, job: &Statement<'_>, prepared: &Prepared) -> Result<bool, StatementError> {
        let (takes, given) = (prepared.params.len(), job.params.len());
        if takes != given {
            let what = format!("{} takes {takes} parameters and was given {given}", job.name);
            return Err(StatementError::BadRequest(bad_request(what)));
        }
        let out = self.stream.write_buffer();
        let start = out.len();
        let mut problem = None;
        message(out, b'B', |out| {
            // The unnamed portal.
            out.push(0);
            text(out, &prepared.name);
            // All parameters are text.
            out.extend_from_slice(&[0; 2]);
            // The server has given this number, in 16 bits.
            out.extend_from_slice(&(takes as u16).to_be_bytes());
            for (at, (value, of)) in job.params.iter().zip(&prepared.params).enumerate() {
                if let Err(what) = params::write(*value, of, out) {
                    problem = Some(format!("{} {what}", job.param(at)));
                    return;
                }
            }
            // All columns are binary.
            out.extend_from_slice(&[0, 1, 0, 1]);
        });
        if let Some(what) = problem {
            out.truncate(start);
            return Err(StatementError::BadRequest(bad_request(what)));
        }
        out.extend_from_slice(&EXECUTE);
        self.stream.sync();
        let settings = self.settings(job);
        if let Some(settings) = &settings {
            self.stream.simple_query_before(start, settings);
        }
        Ok(settings.is_some())
    }

    /// The statements that set what the next statement needs.
    fn settings(&mut self, job: &Statement<'_>) -> Option<String> {
        let left = u64::try_from(job.left.as_millis()).unwrap_or(u64::MAX).clamp(1, 1 << 30);
        let in_time = (left..=2 * left).contains(&self.timeout);
        if in_time && self.read_only != job.writes {
            return None;
        }
        let mut text = String::new();
        if self.read_only == job.writes {
            self.read_only = !job.writes;
            let to = if job.writes { "off" } else { "on" };
            let _ = write!(text, "SET default_transaction_read_only = {to};");
        }
        if !in_time {
            // Not exact, or each statement would set it. At the deadline itself the statement is cancelled; this is for
            // the case that this process has ended. Half as much again also serves the request's next statements.
            self.timeout = left + left / 2;
            let _ = write!(text, "SET statement_timeout = {};", self.timeout);
        }
        Some(text)
    }

    /// Reads the reply to settings.
    async fn set(&mut self) -> Result<(), StatementError> {
        loop {
            match self.stream.next().await? {
                (b'Z', _) => return Ok(()),
                (b'E', body) => {
                    // The present settings are not known.
                    let error = ServerError::read(body);
                    self.stream.broken = true;
                    return Err(StatementError::Server(error));
                }
                _ => {}
            }
        }
    }
}

/// The number of rows that a statement has changed or returned, from its command tag: `INSERT 0 1`.
fn affected(mut body: Body<'_>) -> u64 {
    let tag = body.text().unwrap_or_default();
    tag.rsplit(' ').next().and_then(|count| count.parse().ok()).unwrap_or(0)
}
