//! A flow whose answer is sent in parts: the first while optional calls are on their way, then each of these.

use std::task::{Context, Poll, ready};
use std::time::Duration;

use fanin_lang::{Instance, Usage};

use super::{Advance, Flow, NoResponse, Stage, failed};
use crate::flow_error::FlowError;
use crate::partial;
use crate::progressive::{self, Framing, Progress};
use crate::reply::{Pieces, Reply, Success, Summary};
use crate::respond;

impl Flow {
    /// How the client wants the parts, if the route answers in parts.
    pub(super) fn framing(&self) -> Option<Framing> {
        (self.host.route.progressive && !self.host.req.is_head())
            .then(|| progressive::framing(self.host.req.headers()))?
    }

    /// Of an answer in parts, whose function has returned while others that it called wait: the first part once no required call is on
    /// its way, and word of each that comes later.
    #[cold]
    pub(super) fn part_while_waiting(&mut self) -> Option<Result<Advance, NoResponse>> {
        if self.is_sending() {
            return self.with_progress(Progress::has_settled)?.then_some(Ok(Advance::Part));
        }
        let value = self.instance.as_ref()?.returned().filter(|value| respond::is_splittable(value))?;
        if self.host.awaits_required() {
            return None;
        }
        match respond::first_part(&self.host, value, self.framing()?) {
            Err(failure) => Some(Err(failure.into())),
            Ok(None) => None,
            Ok(Some((success, progress))) => {
                self.host.set_progress(Box::new(progress));
                Some(Ok(Advance::Answer(success)))
            }
        }
    }

    /// Whether further parts follow the answer that was given.
    pub(crate) fn is_sending(&self) -> bool {
        self.host.progress().is_some()
    }

    /// The next part of an answer in parts; `None` at its end.
    pub(crate) fn poll_part(&mut self, context: &mut Context<'_>) -> Poll<Option<Pieces>> {
        loop {
            let Some(next) = self.with_progress(Progress::next_settled) else {
                return Poll::Ready(None);
            };
            match next {
                Some(Ok(pieces)) => return Poll::Ready(Some(pieces)),
                Some(Err((failure, slot))) => {
                    let failure = Box::new(self.host.with_origin(failure, Some(&slot)));
                    return Poll::Ready(self.last_part(NoResponse::Failed(failure)));
                }
                None => {}
            }
            let is_late = self.host.progress().is_some_and(Progress::is_late);
            let ended = match &self.stage {
                Stage::Finished if !is_late => {
                    let host = &self.host;
                    let missing = || (partial::errors(host.missing()), partial::failed_names(host.missing()));
                    let missing = host.any_missing().then(missing);
                    return Poll::Ready(self.with_progress(|progress| progress.next_at_end(missing)).flatten());
                }
                Stage::Finished => ready!(self.await_completions(context)),
                _ => ready!(self.advance(context)).map(drop),
            };
            if let Err(error) = ended {
                return Poll::Ready(self.last_part(error));
            }
        }
    }

    /// The part that says that the rest fails.
    #[cold]
    fn last_part(&mut self, ended: NoResponse) -> Option<Pieces> {
        let error = match ended {
            NoResponse::Deadline => FlowError::deadline(),
            NoResponse::Failed(failure) => failed(&self.host, &self.host.with_origin(*failure, None)).0,
        };
        self.stage = Stage::Finished;
        self.with_progress(|progress| {
            progress.end();
            progress.error(&error)
        })
    }

    fn with_progress<R>(&mut self, run: impl FnOnce(&mut Progress) -> R) -> Option<R> {
        let mut progress = self.host.take_progress()?;
        let result = run(&mut progress);
        self.host.set_progress(progress);
        Some(result)
    }

    /// What a flow used that has ended in parts.
    pub(crate) fn summary(&mut self) -> Summary {
        let usage = self.instance.as_ref().map(Instance::usage).unwrap_or_default();
        let partial = self.host.any_missing();
        let (calls, upstream, record) = self.host.finish();
        Summary { calls, upstream, partial, usage, limit: None, record }
    }

    /// The reply of which the first part is made. What the flow used is reported at its end.
    pub(super) fn first_reply(success: Success) -> Reply {
        let upstream = Duration::ZERO;
        Reply {
            result: Ok(success),
            calls: 0,
            upstream,
            partial: None,
            usage: Usage::default(),
            limit: None,
            record: None,
        }
    }
}
