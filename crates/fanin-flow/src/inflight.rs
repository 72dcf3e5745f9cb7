//! Calls in flight, and the parsing of their answers' bodies.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use fanin_json::Doc;
use fanin_upstream::shared::Body;
use fanin_upstream::{Answer, CallError};
use futures_util::stream::{FuturesUnordered, Stream};

use crate::answer::{BodyRule, Content, Unreadable, content};
use crate::caller::CallFuture;
use crate::json_thread::{self, Reading};
use crate::merge::Work;

/// Larger bodies are parsed on the thread for JSON, so that they do not block the worker.
const OFFLOAD: usize = 1 << 20;

/// Bodies up to this size are indexed while they are parsed.
const INDEXED: usize = 256;

/// An answer's parsed body.
pub(crate) type Checked = Result<Body, Unreadable>;

/// A shape, if one is declared, decides whether the body may be missing.
pub(crate) fn without_body(checked: Checked, has_shape: bool) -> Checked {
    match checked {
        Err(Unreadable::NoBody) if has_shape => Ok(Body::Empty),
        checked => checked,
    }
}

/// A call in flight. Its output is the call's index, its answer and its body.
pub(crate) struct InFlight {
    index: u32,
    /// Maximal nesting of the body.
    max_depth: u16,
    rule: BodyRule,
    state: State,
}

enum State {
    Call(CallFuture),
    /// Shared work, whose answer is parsed already.
    Shared(Work),
    Check(Box<Check>),
}

/// An answer whose body the thread for JSON parses.
struct Check {
    answer: Option<Answer>,
    checked: json_thread::Parsing,
}

impl InFlight {
    /// The call with this index, which is below `max_calls`. Bodies nested deeper than `max_depth` are refused.
    pub(crate) fn new(index: usize, call: CallFuture, rule: BodyRule, max_depth: usize) -> InFlight {
        let max_depth = u16::try_from(max_depth).unwrap_or(u16::MAX);
        InFlight { index: index as u32, max_depth, rule, state: State::Call(call) }
    }

    pub(crate) fn shared(index: usize, work: Work) -> InFlight {
        InFlight { index: index as u32, max_depth: 0, rule: BodyRule::Optional, state: State::Shared(work) }
    }
}

impl Future for InFlight {
    type Output = (usize, Result<(Answer, Checked), CallError>);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let (index, max_depth) = (this.index as usize, usize::from(this.max_depth));
        loop {
            match &mut this.state {
                State::Call(call) => {
                    let answer = match ready!(call.as_mut().poll(context)) {
                        Ok(answer) => answer,
                        Err(error) => return Poll::Ready((index, Err(error))),
                    };
                    let checked = match content(&answer, this.rule) {
                        Content::Empty => Ok(Body::Empty),
                        Content::Text => Ok(Body::Text),
                        Content::Missing => Err(Unreadable::NoBody),
                        Content::Json if answer.body.len() > OFFLOAD => {
                            let checked = json_thread::parse(answer.body.clone(), max_depth, Reading::Unknown);
                            this.state = State::Check(Box::new(Check { answer: Some(answer), checked }));
                            continue;
                        }
                        // Flows read most bodies of this size, and indexing costs little.
                        Content::Json if answer.body.len() <= INDEXED => {
                            Doc::parse_indexed(answer.body.clone(), max_depth).map(Body::Json).map_err(Unreadable::from)
                        }
                        Content::Json => {
                            Doc::parse(answer.body.clone(), max_depth).map(Body::Json).map_err(Unreadable::from)
                        }
                    };
                    return Poll::Ready((index, Ok((answer, checked))));
                }
                State::Shared(work) => {
                    let outcome = ready!(work.as_mut().poll(context));
                    return Poll::Ready((index, outcome.map(|ready| (ready.answer.clone(), Ok(ready.body.clone())))));
                }
                State::Check(check) => {
                    let checked = ready!(check.checked.as_mut().poll(context));
                    // Taken once, because this future is not polled after it has ended.
                    let Some(answer) = check.answer.take() else { return Poll::Pending };
                    // The thread ends only with the process; then the worker parses the body.
                    let doc = checked.unwrap_or_else(|| Doc::parse(answer.body.clone(), max_depth));
                    return Poll::Ready((index, Ok((answer, doc.map(Body::Json).map_err(Unreadable::from)))));
                }
            }
        }
    }
}

/// A flow's calls in flight. A single call, the most frequent case, needs neither a queue nor a waker of its own.
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
                // The queue is polled before the flow is suspended again, which registers the first call's waker anew.
                if let InFlightCalls::One(first) = std::mem::take(self) {
                    many.push(first);
                }
                many.push(call);
                *self = InFlightCalls::Many(many);
            }
        }
    }

    /// The next call that has ended; `None` if no call is in flight.
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
