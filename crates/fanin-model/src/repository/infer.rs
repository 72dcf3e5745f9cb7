//! An inference request: checked, then computed inline or by the pool, awaited until its deadline.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::model::Model;
use super::models::Models;
use super::version::Version;
use crate::pool::Job;
use crate::{InferError, Tensor};

/// An inference request.
#[derive(Debug)]
pub struct Infer<'a> {
    /// The model's name.
    pub model: &'a str,
    /// The version's number; empty means the highest that is ready.
    pub version: &'a str,
    /// The inputs, all that the signature has.
    pub inputs: Vec<Tensor>,
    /// Names of the requested outputs; empty means all.
    pub outputs: &'a [&'a str],
    /// The request fails after this.
    pub deadline: tokio::time::Instant,
}

/// An answer of a model.
#[derive(Debug)]
pub struct Answer {
    /// Which version gave it.
    pub version: Arc<Version>,
    /// The outputs, in the signature's order.
    pub outputs: Vec<Tensor>,
}

impl Answer {
    /// Bytes of all outputs.
    pub(crate) fn bytes(&self) -> usize {
        self.outputs.iter().map(Tensor::bytes).sum()
    }
}

impl Models {
    /// Refuses a request that cannot meet its deadline, before its inputs are decoded. Checks nothing else.
    ///
    /// # Errors
    /// [`InferError::Overloaded`].
    pub(crate) fn check_deadline(
        &self,
        name: &str,
        version: &str,
        rows: usize,
        deadline: tokio::time::Instant,
    ) -> Result<(), InferError> {
        if self.shared.pool.waiting() == 0 {
            return Ok(());
        }
        let Ok((model, version)) = self.find(name, version) else { return Ok(()) };
        let predicted = version.predict(rows);
        if is_inline(&version, predicted, self.shared.config.load().inline) {
            return Ok(());
        }
        let refused = self.shared.pool.check_deadline(model.queue, predicted, deadline.into_std());
        refused.inspect_err(|error| {
            self.shared.outcomes.count(error);
            version.stats.fail();
        })
    }

    /// Runs an inference request. Dropping the future cancels it, unless the engine already runs.
    ///
    /// # Errors
    /// See [`InferError`].
    pub async fn infer(&self, request: Infer<'_>) -> Result<Answer, InferError> {
        let result = self.infer_uncounted(request).await;
        if let Err(error) = &result {
            self.shared.outcomes.count(error);
        }
        result
    }

    async fn infer_uncounted(&self, request: Infer<'_>) -> Result<Answer, InferError> {
        let Infer { model, version, inputs, outputs, deadline } = request;
        let (model, version) = self.find(model, version)?;
        let outputs = self.infer_version(&model, &version, inputs, outputs, deadline).await?;
        Ok(Answer { version, outputs })
    }

    /// Runs a request on a version that was looked up before.
    pub(crate) async fn infer_version(
        &self,
        model: &Model,
        version: &Arc<Version>,
        inputs: Vec<Tensor>,
        outputs: &[&str],
        deadline: tokio::time::Instant,
    ) -> Result<Vec<Tensor>, InferError> {
        let signature = version.engine.signature();
        let result = signature.check(&inputs).and_then(|()| output_mask(signature, outputs));
        let wanted = match result {
            Ok(wanted) => wanted,
            Err(problem) => {
                version.stats.fail();
                return Err(InferError::Invalid(format!("model `{}`: {problem}", model.name)));
            }
        };
        let (most, inline) = {
            let config = self.shared.config.load();
            (config.max_message, config.inline)
        };
        let too_large = |bytes: usize| {
            version.stats.fail();
            let (name, bytes) = (&model.name, fanin_config::format_size(bytes as u64));
            let most = fanin_config::format_size(most as u64);
            let what = format!("model `{name}`: the outputs take {bytes}, {most} are allowed (models.max_message)");
            Err(InferError::Invalid(what))
        };
        let rows =
            inputs.first().and_then(|input| input.shape.first()).map_or(1, |rows| usize::try_from(*rows).unwrap_or(1));
        let expected = signature.bytes_of_outputs(rows, wanted);
        if expected > most {
            return too_large(expected);
        }
        let started = Instant::now();
        let deadline = deadline.into_std();
        if deadline <= started {
            version.stats.fail();
            return Err(InferError::Deadline(
                "the deadline had passed before the request reached the model".to_owned(),
            ));
        }
        let predicted = version.predict(rows);
        let result = if is_inline(version, predicted, inline) && self.shared.pool.is_free(model.queue) {
            crate::pool::compute(version, &inputs, wanted, rows)
        } else {
            let (reply, answer) = oneshot::channel();
            let job = Job {
                version: version.clone(),
                inputs,
                wanted,
                rows,
                predicted,
                deadline,
                queued: started,
                expected: 0,
                reply,
            };
            match self.shared.pool.submit(model.queue, job) {
                Err(error) => Err(error),
                Ok(()) => match tokio::time::timeout_at(deadline.into(), answer).await {
                    Ok(Ok(result)) => result,
                    Ok(Err(_)) => Err(InferError::Engine("the pool dropped the request".to_owned())),
                    Err(_) => {
                        Err(InferError::Deadline("the deadline passed before the answer was computed".to_owned()))
                    }
                },
            }
        };
        match result {
            // Dimensions of any size are known only now.
            Ok(outputs) => match outputs.iter().map(Tensor::bytes).sum::<usize>() {
                bytes if bytes > most => too_large(bytes),
                _ => Ok(outputs),
            },
            Err(error) => {
                version.stats.fail();
                Err(error)
            }
        }
    }
}

/// Whether a request is short enough to be computed inline, if no other request of its model waits.
fn is_inline(version: &Version, predicted: u64, bound: Option<Duration>) -> bool {
    predicted <= bound.map_or(0, |bound| bound.as_nanos() as u64) && version.engine.may_compute_inline()
}

/// A bit for each requested output.
fn output_mask(signature: &crate::Signature, outputs: &[&str]) -> Result<u64, String> {
    if outputs.is_empty() {
        return Ok(u64::MAX);
    }
    let mut wanted = 0;
    for name in outputs {
        match signature.outputs.iter().position(|spec| &*spec.name == *name) {
            Some(at) => wanted |= 1 << at,
            None => {
                let known: Vec<_> = signature.outputs.iter().map(ToString::to_string).collect();
                return Err(format!("there is no output `{name}`; there are {}", known.join(", ")));
            }
        }
    }
    Ok(wanted)
}
