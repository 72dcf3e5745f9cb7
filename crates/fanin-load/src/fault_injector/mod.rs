//! Fault injector: a TCP proxy between a client and a server that delays, cuts or corrupts traffic on command.
//!
//! ```no_run
//! # async fn example(upstream: std::net::SocketAddr) -> Result<(), fanin_load::LoadError> {
//! use fanin_load::fault_injector::{Fault, FaultInjector};
//!
//! let injector = FaultInjector::start(upstream, 1).await?;
//! // the server under test is configured with injector.addr() as its upstream
//! injector.set(Fault::Hang);
//! // ... its calls must end at their deadlines
//! injector.set(Fault::Pass);
//! // ... and it must recover
//! # Ok(()) }
//! ```

mod fault;
mod injector;
mod relay;
mod state;

pub use fault::{Fault, Step, random_steps};
pub use injector::FaultInjector;
