//! TLS of listeners: which certificate a client gets, whether it presents its own, and how it comes back.
//!
//! - [`Listener`]: what is made of a section of the configuration and its files. `loading` reads the files.
//! - `names`: the certificate by the host that a client names.
//! - [`ClientCertificate`]: what is known of a client that has presented one.
//! - `sessions`: resumption, kept by reloads. [`Handshakes`]: what is counted. [`Expiry`]: when files expire.
//!
//! This crate must not know sockets, HTTP or routes.

mod client_certificate;
mod expiry;
#[doc(hidden)]
pub mod fuzzing;
mod handshakes;
mod listener;
mod loading;
mod names;
mod sessions;

pub use client_certificate::ClientCertificate;
pub use expiry::{Expiry, ExpiryMetrics};
pub use handshakes::{Handshakes, Outcome};
pub use listener::Listener;
pub use loading::FileError;
