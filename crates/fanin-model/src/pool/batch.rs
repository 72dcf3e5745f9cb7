//! Running one request, or several as one batch: inputs are concatenated by rows, outputs split again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};

use super::compute::catch_panic;
use super::job::Job;
use super::wait_predictor::RunOutcome;
use crate::{Data, InferError, Tensor};

/// Whether two requests may be part of one batch.
pub(super) fn can_batch(one: &Job, other: &Job) -> bool {
    let alike = |(a, b): (&Tensor, &Tensor)| {
        a.name == b.name
            && a.datatype == b.datatype
            && a.shape.len() == b.shape.len()
            && a.shape.get(1..) == b.shape.get(1..)
            && a.datatype.size().is_some()
            && matches!(
                (&a.data, &b.data),
                (Data::Raw(_), Data::Raw(_)) | (Data::Fp32(_), Data::Fp32(_)) | (Data::Fp64(_), Data::Fp64(_))
            )
    };
    Arc::ptr_eq(&one.version, &other.version)
        && one.version.engine().rows_are_independent()
        && one.wanted == other.wanted
        && one.inputs.len() == other.inputs.len()
        && one.inputs.iter().zip(&other.inputs).all(alike)
}

/// Computes the jobs as one batch and answers each.
pub(super) fn run(jobs: Vec<Job>, now: Instant) -> RunOutcome {
    let mut outcome = RunOutcome::default();
    let mut useful = Vec::with_capacity(jobs.len());
    for job in jobs {
        if job.deadline <= now {
            outcome.count(&job, now);
            job.refuse(InferError::Deadline("the deadline passed while the request waited for a thread".to_owned()));
        } else if job.reply.is_closed() {
            // Its caller has gone. That says nothing about the queue.
        } else if job.deadline < now + Duration::from_nanos(job.predicted) {
            let takes = Duration::from_nanos(job.predicted);
            let left = job.deadline.saturating_duration_since(now);
            let message = format!("the request takes {takes:.1?}, its deadline is in {left:.1?}");
            outcome.count(&job, now);
            job.refuse(InferError::Overloaded(message));
        } else {
            useful.push(job);
        }
    }
    let Some(first) = useful.first() else { return outcome };
    let version = first.version.clone();
    let wanted = first.wanted;
    let rows: usize = useful.iter().map(|job| job.rows).sum();
    let started = Instant::now();
    let result = match &useful[..] {
        [one] => catch_panic(&version, &one.inputs, wanted),
        many => catch_panic(&version, &concat_inputs(many), wanted),
    };
    let ended = Instant::now();
    let took = ended - started;
    useful.iter().for_each(|job| outcome.count(job, ended));
    version.observe(rows, took);
    version.stats().executed(rows, took);
    let mut start = 0;
    let alone = useful.len() == 1;
    let mut whole = Some(result);
    for job in useful {
        let answer = match &whole {
            Some(Err(error)) => Err(error.clone()),
            Some(Ok(_)) if alone => match whole.take() {
                Some(result) => result,
                None => Ok(Vec::new()),
            },
            Some(Ok(outputs)) => split_outputs(outputs, start, job.rows, rows),
            None => Ok(Vec::new()),
        };
        start += job.rows;
        if answer.is_ok() {
            version.stats().success(started.saturating_duration_since(job.queued), took);
        }
        // The caller may have dropped its future.
        let _ = job.reply.send(answer);
    }
    outcome
}

/// Concatenates the inputs of all jobs.
fn concat_inputs(jobs: &[Job]) -> Vec<Tensor> {
    let first = &jobs[0].inputs;
    let column = |at: usize| jobs.iter().map(move |job| &job.inputs[at]);
    let join = |at: usize| {
        let mut tensor = Tensor { data: Data::Raw(Bytes::new()), ..first[at].clone() };
        if let Some(rows) = tensor.shape.first_mut() {
            *rows = column(at).map(|input| input.shape[0]).sum();
        }
        // `can_batch` checked that all are of the first one's variant.
        tensor.data = match &first[at].data {
            Data::Fp32(_) => Data::Fp32(
                column(at)
                    .flat_map(|input| if let Data::Fp32(all) = &input.data { &all[..] } else { &[] })
                    .copied()
                    .collect(),
            ),
            Data::Fp64(_) => Data::Fp64(
                column(at)
                    .flat_map(|input| if let Data::Fp64(all) = &input.data { &all[..] } else { &[] })
                    .copied()
                    .collect(),
            ),
            _ => {
                let mut raw = BytesMut::new();
                column(at).for_each(|input| raw.extend_from_slice(&input.to_raw()));
                Data::Raw(raw.freeze())
            }
        };
        tensor
    };
    (0..first.len()).map(join).collect()
}

/// The rows of one job out of the batch's outputs.
fn split_outputs(outputs: &[Tensor], start: usize, rows: usize, total: usize) -> Result<Vec<Tensor>, InferError> {
    let part = |output: &Tensor| {
        let mut part = Tensor { data: Data::Raw(Bytes::new()), ..output.clone() };
        if output.shape.first().copied() != i64::try_from(total).ok() {
            return Err(InferError::Engine(format!(
                "output `{}` has shape {:?} for {total} rows, so a batch of them cannot be split",
                output.name,
                output.shape.as_slice()
            )));
        }
        part.shape[0] = rows as i64;
        let (start, end) = (start, start + rows);
        fn rows_of<T: Clone>(all: &[T], start: usize, end: usize, total: usize) -> Vec<T> {
            let width = all.len() / total.max(1);
            all[start * width..end * width].to_vec()
        }
        part.data = match &output.data {
            Data::Raw(raw) => {
                let width = raw.len() / total.max(1);
                Data::Raw(raw.slice(start * width..end * width))
            }
            Data::Bool(all) => Data::Bool(rows_of(all, start, end, total)),
            Data::Int(all) => Data::Int(rows_of(all, start, end, total)),
            Data::Int64(all) => Data::Int64(rows_of(all, start, end, total)),
            Data::Uint(all) => Data::Uint(rows_of(all, start, end, total)),
            Data::Uint64(all) => Data::Uint64(rows_of(all, start, end, total)),
            Data::Fp32(all) => Data::Fp32(rows_of(all, start, end, total)),
            Data::Fp64(all) => Data::Fp64(rows_of(all, start, end, total)),
            Data::Bytes(all) => Data::Bytes(rows_of(all, start, end, total)),
        };
        Ok(part)
    };
    outputs.iter().map(part).collect()
}
