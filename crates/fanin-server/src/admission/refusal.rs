//! Why admission refuses a request.

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The route's limit is reached, and its admission queue is full.
    Route,
    /// The server's limit is reached, and its admission queue is full.
    Server,
    /// A request of higher priority took its place in the queue.
    Evicted,
    /// The deadline passed in the queue.
    Deadline,
    /// The worker cannot keep up.
    Queueing,
    /// The memory budget is nearly used up.
    Memory,
    /// The client has not taken the responses before.
    Unsent,
}

impl Refusal {
    pub(crate) const ALL: [Refusal; 7] = [
        Refusal::Route,
        Refusal::Server,
        Refusal::Evicted,
        Refusal::Deadline,
        Refusal::Queueing,
        Refusal::Memory,
        Refusal::Unsent,
    ];

    /// The member `reason` of the problem, and the label of the metric.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Refusal::Route => "route-limit",
            Refusal::Server => "server-limit",
            Refusal::Evicted => "priority",
            Refusal::Deadline => "deadline",
            Refusal::Queueing => "queueing",
            Refusal::Memory => "memory",
            Refusal::Unsent => "unsent",
        }
    }

    pub(crate) fn detail(self) -> &'static str {
        match self {
            Refusal::Route => "the route has reached its limit of requests in flight, and its queue is full",
            Refusal::Server => "the server has reached its limit of requests in flight, and its queue is full",
            Refusal::Evicted => "a request of higher priority took this request's place in the queue",
            Refusal::Deadline => "the request's deadline passed while it waited for a permit",
            Refusal::Queueing => "the server is overloaded; the request would have waited too long",
            Refusal::Memory => "the server is close to its memory budget",
            Refusal::Unsent => "the client has not read the earlier responses on this connection",
        }
    }
}
