//! Writes rows as an answer's JSON.

use fanin_config::Rows;

use super::messages::Body;
use super::statement::Prepared;
use super::statement_error::StatementError;
use crate::error::{ErrorKind, Failure};
use crate::transport::attempt::Received;
use crate::transport::sql::answer::{answer, bad_request, too_large};
use crate::transport::sql::dialect::Statement;

/// An answer that is being written.
pub(super) struct RowWriter<'a> {
    job: &'a Statement<'a>,
    prepared: &'a Prepared,
    out: Vec<u8>,
    count: u64,
    /// Rows changed by a statement without results.
    pub affected: u64,
}

impl<'a> RowWriter<'a> {
    pub fn new(job: &'a Statement<'a>, prepared: &'a Prepared) -> RowWriter<'a> {
        RowWriter { job, prepared, out: Vec::new(), count: 0, affected: 0 }
    }

    fn is_list(&self) -> bool {
        self.job.rows == Rows::Many
    }

    /// Writes one more row. After an error the remaining rows are not needed.
    #[inline]
    pub fn row(&mut self, mut body: Body<'_>) -> Result<(), StatementError> {
        self.count += 1;
        match (self.is_list(), self.count) {
            (true, 1) => {
                // Enough for several rows like this one with their keys.
                self.out.reserve(8 * body.0.len());
                self.out.push(b'[');
            }
            (true, _) => self.out.push(b','),
            (false, 1) => self.out.reserve(2 * body.0.len()),
            (false, _) => {
                let what = format!("{} gave more than the one row that the statement declares", self.job.name);
                return Err(StatementError::BadRequest(bad_request(what)));
            }
        }
        if body.u16() != u16::try_from(self.prepared.columns.len()).ok() {
            return Err(wrong_type(self.prepared.columns.len()));
        }
        let out = &mut self.out;
        for (at, column) in self.prepared.columns.iter().enumerate() {
            out.extend_from_slice(&column.key);
            let written = match body.value() {
                Some(Some(value)) => column.reader.write(value, self.job.max_answer, out),
                Some(None) => {
                    out.extend_from_slice(b"null");
                    Some(())
                }
                None => None,
            };
            if out.len() > self.job.max_answer {
                return Err(too_large(self.job.max_answer).into());
            }
            if written.is_none() {
                return Err(wrong_type(at));
            }
        }
        if self.prepared.columns.is_empty() {
            out.push(b'{');
        }
        out.push(b'}');
        if out.len() > self.job.max_answer {
            return Err(too_large(self.job.max_answer).into());
        }
        Ok(())
    }

    /// The complete answer.
    pub fn end(mut self) -> Received {
        if self.prepared.columns.is_empty() {
            return answer(format!("{{\"affected\":{}}}", self.affected).into_bytes());
        }
        match (self.is_list(), self.count) {
            (true, 0) => self.out.extend_from_slice(b"[]"),
            (true, _) => self.out.push(b']'),
            (false, 0) => self.out.extend_from_slice(b"null"),
            (false, _) => {}
        }
        answer(self.out)
    }
}

#[cold]
fn wrong_type(at: usize) -> StatementError {
    Failure::new(ErrorKind::Decode, format!("column {} is not what its type says", at + 1)).into()
}
