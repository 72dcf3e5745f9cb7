//! Who may use a route, and how often: tokens, API keys, passwords, addresses, rate limits.
//!
//! [`Guards`] are made of a configuration. The [`RouteGuard`] of a route decides about each request ([`Subject`]) before its body is read:
//! it admits, refuses, or waits for a fetch of keys or for a slow hash.
//!
//! - `guards`, `guard`: of a configuration, of a route. `refusal`: why not. `identity`: who.
//! - `jwt`: tokens and their keys. `api_keys`, `passwords`: those of files. `rate`: limits.
//! - `metrics`: what is counted.
//!
//! This crate must not know sockets, connections, flows or upstreams. Whoever uses it fetches keys ([`KeySource`]) and sends refusals.

mod api_keys;
#[doc(hidden)]
pub mod fuzzing;
mod guard;
mod guards;
mod identity;
mod jwt;
mod metrics;
mod passwords;
mod rate;
mod refusal;

pub use guard::{Admitted, Decision, PendingCheck, RouteGuard, Subject};
pub use guards::{Guards, KeySource};
pub use identity::Identity;
pub use jwt::IssuerKeys;
pub use refusal::{Reason, Refusal};
