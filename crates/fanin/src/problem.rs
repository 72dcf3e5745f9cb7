//! The error of a flow as clients see it.

use fanin_flow::FlowError;
use fanin_server::Problem;

/// The problem document of an error.
pub fn problem(error: FlowError) -> Problem {
    let mut problem = Problem::new(error.status, error.kind, error.title).detail(error.detail);
    if let Some(upstream) = error.upstream {
        problem = problem.member("upstream", upstream);
    }
    match error.retry_after {
        Some(after) => problem.retry_after(after),
        None => problem,
    }
}
