//! `executor` of a route: what runs its flow.

use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use crate::reader::{Table, TableOrWord};
use crate::schema::types;

/// What runs a route's flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Executor {
    /// The request's worker: a flow that awaits something is suspended, and the worker runs others.
    #[default]
    Coroutines,
    /// A pool of threads: a flow that waits blocks its thread.
    Threads(Threads),
}

/// `executor = { threads = 600, waiting = 200 }`: a bounded pool of threads that run the flow of a route. A thread
/// belongs to a request from its start to its response and blocks while the flow waits. Connections stay on the
/// workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Threads {
    /// Number of threads in the pool: most requests of the route that run at the same time. Threads start when first
    /// needed and stay.
    #[schemars(with = "types::Count<1, 65536>")]
    pub threads: usize,
    /// Most requests that may wait for a thread. Further requests are refused at once with 503.
    #[schemars(with = "types::Count<0>")]
    pub waiting: usize,
}

impl Default for Threads {
    fn default() -> Self {
        Threads { threads: 600, waiting: 200 }
    }
}

impl Serialize for Executor {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Executor::Coroutines => to.serialize_str("coroutines"),
            Executor::Threads(threads) => threads.serialize(to),
        }
    }
}

/// Reads the key `executor`: `"coroutines"` or a table.
pub(crate) fn read(route: &mut Table<'_, '_>) -> Executor {
    match route.table_or_word("executor", "\"coroutines\" or { threads = 600, waiting = 200 }", "coroutines") {
        TableOrWord::Absent | TableOrWord::Word => Executor::Coroutines,
        TableOrWord::Table(mut table) => {
            let default = Threads::default();
            let threads = Threads {
                threads: table.count("threads", 1..=65_536).unwrap_or(default.threads),
                waiting: table.count("waiting", 0..=u64::MAX).unwrap_or(default.waiting),
            };
            table.finish();
            Executor::Threads(threads)
        }
    }
}
