//! Prepared statements of a connection, with the types of their parameters and columns.

use std::sync::Arc;

use fanin_config::can_change_session;
use indexmap::IndexMap;
use postgres_types::{Kind, Type};
use rustc_hash::{FxBuildHasher, FxHashMap};

use super::message_stream::MessageStream;
use super::messages::{Body, message, text, unexpected};
use super::server_error::ServerError;
use super::statement_error::StatementError;
use super::values::ColumnReader;
use crate::transport::sql::answer::bad_request;
use crate::transport::sql::dialect::Statement;

/// Most prepared statements of a connection. Statements come from files, so there are few.
const MAX_PREPARED: usize = 500;

/// A prepared statement.
#[derive(Debug)]
pub(super) struct Prepared {
    pub name: String,
    pub params: Vec<Type>,
    pub columns: Vec<Column>,
    /// Its text can change the session.
    pub can_change_session: bool,
}

/// A column of a statement's rows.
#[derive(Debug)]
pub(super) struct Column {
    /// What precedes its value: `{"id":` in the first column, `,"id":` in others.
    pub key: Vec<u8>,
    pub reader: ColumnReader,
}

/// The prepared statements of one connection.
#[derive(Debug, Default)]
pub(super) struct Statements {
    /// By their text, the oldest first.
    known: IndexMap<Box<str>, Arc<Prepared>, FxBuildHasher>,
    /// Names that the server may still know, to be closed with the next preparation.
    gone: Vec<String>,
    /// Types that are not built in.
    types: FxHashMap<u32, Type>,
    next: u64,
}

impl Statements {
    #[inline]
    pub fn get(&self, sql: &str) -> Option<Arc<Prepared>> {
        self.known.get(sql).cloned()
    }

    pub fn forget(&mut self, sql: &str) {
        if let Some(prepared) = self.known.shift_remove(sql) {
            self.gone.push(prepared.name.clone());
        }
    }

    /// Prepares a statement.
    pub async fn prepare(
        &mut self,
        stream: &mut MessageStream,
        job: &Statement<'_>,
    ) -> Result<Arc<Prepared>, StatementError> {
        if job.sql.contains('\0') {
            return Err(StatementError::BadRequest(bad_request(format!("the text of {} holds a zero byte", job.name))));
        }
        let name = format!("s{}", self.next);
        self.next += 1;
        let out = stream.write_buffer();
        for gone in self.gone.drain(..) {
            message(out, b'C', |out| {
                out.push(b'S');
                text(out, &gone);
            });
        }
        message(out, b'P', |out| {
            text(out, &name);
            text(out, job.sql);
            // The server infers the types of the parameters.
            out.extend_from_slice(&[0; 2]);
        });
        message(out, b'D', |out| {
            out.push(b'S');
            text(out, &name);
        });
        stream.sync();
        // This call may be dropped before the statement is known here.
        self.gone.push(name);
        let (params, fields) = described(stream).await?;

        let mut types = Vec::with_capacity(params.len());
        for oid in params {
            types.push(self.kind(stream, oid).await?);
        }
        let mut columns: Vec<Column> = Vec::with_capacity(fields.len());
        for (name, oid) in fields {
            let kind = self.kind(stream, oid).await?;
            let Some(reader) = ColumnReader::of(&kind) else {
                return Err(StatementError::BadRequest(bad_request(format!(
                    "column {name} of {} has the type {}, which has no form in JSON: cast it, as in {name}::text",
                    job.name,
                    kind.name()
                ))));
            };
            let mut key = Vec::with_capacity(name.len() + 4);
            key.push(if columns.is_empty() { b'{' } else { b',' });
            fanin_json::write_str(&mut key, &name);
            key.push(b':');
            if columns.iter().any(|other| other.key[1..] == key[1..]) {
                let what = format!("{} has two columns named {name}: name one of them with AS", job.name);
                return Err(StatementError::BadRequest(bad_request(what)));
            }
            columns.push(Column { key, reader });
        }
        let name = self.gone.pop().unwrap_or_default();
        let can_change_session = can_change_session(job.sql);
        let prepared = Arc::new(Prepared { name, params: types, columns, can_change_session });
        if self.known.len() >= MAX_PREPARED
            && let Some((_, oldest)) = self.known.shift_remove_index(0)
        {
            self.gone.push(oldest.name.clone());
        }
        self.known.insert(job.sql.into(), prepared.clone());
        Ok(prepared)
    }

    /// A type by its number. A type that is not built in is queried once.
    async fn kind(&mut self, stream: &mut MessageStream, oid: u32) -> Result<Type, StatementError> {
        if let Some(own) = Type::from_oid(oid).or_else(|| self.types.get(&oid).cloned()) {
            return Ok(own);
        }
        stream.simple_query(&format!(
            "SELECT typname, typtype, typcategory, typelem, typbasetype FROM pg_catalog.pg_type WHERE oid = {oid}"
        ));
        let [name, kind, category, element, base] = one_row(stream).await?.unwrap_or([const { String::new() }; 5]);
        let number = |text: &str| text.parse().unwrap_or(0);
        let kind = match (kind.as_str(), category.as_str()) {
            ("e", _) => Kind::Enum(Vec::new()),
            // Types are made of older types, so this recursion ends.
            ("d", _) => Kind::Domain(Box::pin(self.kind(stream, number(&base))).await?),
            (_, "A") => Kind::Array(Box::pin(self.kind(stream, number(&element))).await?),
            _ => Kind::Simple,
        };
        let made = Type::new(name, oid, kind, String::new());
        self.types.insert(oid, made.clone());
        Ok(made)
    }
}

/// The types of parameters, and names and types of columns, which follow a preparation.
async fn described(stream: &mut MessageStream) -> Result<(Vec<u32>, Vec<(String, u32)>), StatementError> {
    let (mut params, mut columns) = (Vec::new(), Vec::new());
    while !stream.is_idle() {
        let (tag, body) = stream.next().await?;
        match tag {
            b't' => params = param_types(body).ok_or_else(|| unexpected(tag))?,
            b'T' => columns = fields(body).ok_or_else(|| unexpected(tag))?,
            b'E' => {
                let error = ServerError::read(body);
                return Err(StatementError::server(stream, error).await);
            }
            // Closed, prepared, without rows, ready.
            b'3' | b'1' | b'n' | b'Z' => {}
            _ => return Err(unexpected(tag).into()),
        }
    }
    Ok((params, columns))
}

pub(super) fn param_types(mut body: Body<'_>) -> Option<Vec<u32>> {
    let count = body.u16()?;
    (0..count).map(|_| body.u32()).collect()
}

pub(super) fn fields(mut body: Body<'_>) -> Option<Vec<(String, u32)>> {
    let count = body.u16()?;
    let field = |_| {
        let name = body.text()?.to_owned();
        // Table and column.
        body.bytes(6)?;
        let oid = body.u32()?;
        // Size, modifier, format.
        body.bytes(8)?;
        Some((name, oid))
    };
    (0..count).map(field).collect()
}

/// The first row of a simple query, as text.
async fn one_row<const N: usize>(stream: &mut MessageStream) -> Result<Option<[String; N]>, StatementError> {
    let mut row = None;
    while !stream.is_idle() {
        let (tag, mut body) = stream.next().await?;
        match tag {
            b'D' if row.is_none() => {
                body.u16();
                let mut values = [const { String::new() }; N];
                for value in &mut values {
                    let bytes = body.value().ok_or_else(|| unexpected(tag))?.unwrap_or_default();
                    *value = String::from_utf8_lossy(bytes).into_owned();
                }
                row = Some(values);
            }
            b'E' => {
                let error = ServerError::read(body);
                return Err(StatementError::server(stream, error).await);
            }
            _ => {}
        }
    }
    Ok(row)
}
