//! A call under way and the check of its body.

use std::future::Future;
use std::pin::Pin;
use std::sync::OnceLock;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use fanin_json::{Doc, JsonError};
use fanin_upstream::shared::Body;
use fanin_upstream::{Answer, CallError};
use futures_util::stream::{FuturesUnordered, Stream};
use tokio::sync::oneshot;

use crate::answer::{Content, content};
use crate::caller::CallFuture;
use crate::merge::Work;

/// Bodies above this are checked on a thread of their own, so that no worker is held for it.
const OFFLOAD: usize = 1 << 20;

/// Bodies up to this are indexed while they are checked.
const INDEXED: usize = 256;

/// Bodies that may wait for that thread; beyond it the worker checks them itself.
const QUEUE: usize = 64;

/// An answer's body once it has been checked.
pub(crate) type Checked = Result<Body, JsonError>;

/// Ends with the call's number, its answer and its body.
pub(crate) struct InFlight {
    index: u32,
    /// How deep its body may be nested; the last bit says that the method was HEAD. One word with the number: there is one of
    /// these in each flow that waits.
    depth_and_head: u32,
    state: State,
}

enum State {
    Call(CallFuture),
    /// Work that others share, or a wait for it: its answer is checked already.
    Shared(Work),
    Check(Box<Check>),
}

/// An answer whose body is checked elsewhere.
struct Check {
    answer: Option<Answer>,
    checked: oneshot::Receiver<Result<Doc, JsonError>>,
}

impl InFlight {
    /// A call of a number below `max_calls`. Bodies nested deeper than `max_depth` are refused.
    pub(crate) fn new(index: usize, call: CallFuture, head: bool, max_depth: usize) -> InFlight {
        let max_depth = u32::try_from(max_depth).unwrap_or(u32::MAX).min(u32::MAX >> 1);
        InFlight { index: index as u32, depth_and_head: max_depth << 1 | u32::from(head), state: State::Call(call) }
    }

    pub(crate) fn shared(index: usize, work: Work) -> InFlight {
        InFlight { index: index as u32, depth_and_head: 0, state: State::Shared(work) }
    }
}

impl Future for InFlight {
    type Output = (usize, Result<(Answer, Checked), CallError>);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let (index, max_depth) = (this.index as usize, (this.depth_and_head >> 1) as usize);
        let head = this.depth_and_head & 1 == 1;
        loop {
            match &mut this.state {
                State::Call(call) => {
                    let answer = match ready!(call.as_mut().poll(context)) {
                        Ok(answer) => answer,
                        Err(error) => return Poll::Ready((index, Err(error))),
                    };
                    let checked = match content(&answer, head) {
                        Content::Empty => Ok(Body::Empty),
                        Content::Text => Ok(Body::Text),
                        Content::Json if answer.body.len() > OFFLOAD => {
                            if let Some(checked) = offload(answer.body.clone(), max_depth) {
                                this.state = State::Check(Box::new(Check { answer: Some(answer), checked }));
                                continue;
                            }
                            Doc::parse(answer.body.clone(), max_depth).map(Body::Json)
                        }
                        // Most that are as small are looked at, and for the others the index costs little.
                        Content::Json if answer.body.len() <= INDEXED => {
                            Doc::parse_indexed(answer.body.clone(), max_depth).map(Body::Json)
                        }
                        Content::Json => Doc::parse(answer.body.clone(), max_depth).map(Body::Json),
                    };
                    return Poll::Ready((index, Ok((answer, checked))));
                }
                State::Shared(work) => {
                    let outcome = ready!(work.as_mut().poll(context));
                    return Poll::Ready((index, outcome.map(|ready| (ready.answer.clone(), Ok(ready.body.clone())))));
                }
                State::Check(check) => {
                    let checked = ready!(Pin::new(&mut check.checked).poll(context));
                    // Taken once: this future is not polled after it has ended.
                    let Some(answer) = check.answer.take() else { return Poll::Pending };
                    // The thread is gone only when the process ends; then the worker does it.
                    let doc = checked.unwrap_or_else(|_| Doc::parse(answer.body.clone(), max_depth));
                    return Poll::Ready((index, Ok((answer, doc.map(Body::Json)))));
                }
            }
        }
    }
}

/// The calls under way. Most often it is one after the other, and then it needs neither a queue nor a waker of its own.
#[derive(Default)]
pub(crate) enum InFlightCalls {
    #[default]
    None,
    One(InFlight),
    Many(FuturesUnordered<InFlight>),
}

impl InFlightCalls {
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            InFlightCalls::None => true,
            InFlightCalls::One(_) => false,
            InFlightCalls::Many(calls) => calls.is_empty(),
        }
    }

    pub(crate) fn push(&mut self, call: InFlight) {
        match self {
            InFlightCalls::None => *self = InFlightCalls::One(call),
            InFlightCalls::Many(calls) => calls.push(call),
            InFlightCalls::One(_) => {
                let many = FuturesUnordered::new();
                // What is pushed is polled before the next wait, so the first call's waker is set anew.
                if let InFlightCalls::One(first) = std::mem::take(self) {
                    many.push(first);
                }
                many.push(call);
                *self = InFlightCalls::Many(many);
            }
        }
    }

    /// The next call that has ended, `None` if there are none.
    pub(crate) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<<InFlight as Future>::Output>> {
        match self {
            InFlightCalls::None => Poll::Ready(None),
            InFlightCalls::One(call) => {
                let end = ready!(Pin::new(call).poll(context));
                *self = InFlightCalls::None;
                Poll::Ready(Some(end))
            }
            InFlightCalls::Many(calls) => Pin::new(calls).poll_next(context),
        }
    }
}

type Job = (Bytes, usize, oneshot::Sender<Result<Doc, JsonError>>);

/// Hands a body to the checking thread; `None` if that has too much to do.
fn offload(body: Bytes, max_depth: usize) -> Option<oneshot::Receiver<Result<Doc, JsonError>>> {
    static THREAD: OnceLock<Option<SyncSender<Job>>> = OnceLock::new();
    let thread = THREAD.get_or_init(|| {
        let (sender, jobs) = sync_channel::<Job>(QUEUE);
        let run = move || {
            for (body, max_depth, reply) in jobs {
                if !reply.is_closed() {
                    let _ = reply.send(Doc::parse(body, max_depth));
                }
            }
        };
        std::thread::Builder::new().name("fanin-json".to_owned()).spawn(run).ok().map(|_| sender)
    });
    let (reply, receiver) = oneshot::channel();
    thread.as_ref()?.try_send((body, max_depth, reply)).ok()?;
    Some(receiver)
}
