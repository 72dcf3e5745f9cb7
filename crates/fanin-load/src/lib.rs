//! Open-loop load generator, and a fault injector for tests.
//!
//! A closed loop (clients that each wait for their answer) slows down with the server that it measures, and so hides an
//! overload. This generator is open: requests are *scheduled*, whatever became of earlier ones. Latency counts from the
//! scheduled moment and includes waiting for a connection.
//!
//! | module | content |
//! |---|---|
//! | `plan`, `shape`, `request`, `protocol` | what to send, at which rate over time |
//! | `run`, `pacer`, `dispatch` | the run: scheduling, requests in progress, retries |
//! | `http1`, `http2`, `grpc`, `tls`, `connect`, [`response`] | sending a request and reading its answer |
//! | `attempt`, `record`, `outcome`, `plot` | counting results, and showing them |
//! | [`fault_injector`] | a TCP proxy that delays, cuts or corrupts traffic |
//!
//! The crate must not know about Fanin: it tests any HTTP server.
//!
//! ```no_run
//! # async fn example() -> Result<(), fanin_load::LoadError> {
//! use std::time::Duration;
//! use fanin_load::{Arrivals, Plan, Request, Shape, run};
//!
//! let mut plan = Plan::new(Request::get("http://127.0.0.1:8080/products/1")?, Shape::constant(500.0, Duration::from_secs(10)));
//! plan.arrivals = Arrivals::Poisson { seed: 7 };
//! let outcome = run(&plan, |progress| eprintln!("{progress}")).await?;
//! println!("{}", outcome.text());
//! # Ok(()) }
//! ```

mod attempt;
mod connect;
mod dispatch;
mod error;
pub mod fault_injector;
mod grpc;
mod http1;
mod http2;
mod outcome;
mod pacer;
mod plan;
mod plot;
mod protocol;
mod record;
mod request;
pub mod response;
mod run;
mod shape;
mod tls;

pub use error::LoadError;
pub use outcome::{Interval, Latency, Outcome, Progress, Slow};
pub use plan::Plan;
pub use protocol::Protocol;
pub use request::{Request, parse_headers};
pub use run::run;
pub use shape::{Arrivals, Schedule, Segment, Shape};
pub use tls::Trust;
