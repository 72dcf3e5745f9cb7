//! Open-loop load, and a fault gate.
//!
//! A closed loop (so many clients, each waiting for its answer) slows down with the server that it measures, and so
//! hides the very overload that it was to show. This generator is open: requests are *scheduled*, whatever becomes of the
//! earlier ones, and latency counts from the scheduled moment, waiting for a connection included.
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
//!
//! [`gate`] is a TCP relay that fails on command, for tests of what stands behind it.

mod client;
mod error;
pub mod gate;
mod grpc;
mod lane;
mod outcome;
mod pace;
mod plan;
mod plot;
mod record;
mod request;
pub mod response;
mod run;
mod shape;
mod tls;

pub use error::LoadError;
pub use outcome::{Interval, Latency, Outcome, Progress, Slow};
pub use plan::{Arrivals, Plan, Protocol};
pub use request::{Request, parse_headers};
pub use run::run;
pub use shape::{Schedule, Segment, Shape};
pub use tls::Trust;
