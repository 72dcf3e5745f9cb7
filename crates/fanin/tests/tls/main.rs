//! TLS of the listeners, as clients see it: by `openssl s_client`, grpcurl and h2spec.

#![cfg(unix)]
#![allow(clippy::disallowed_methods, reason = "a test may block")]

mod clients;
#[path = "../common/mod.rs"]
mod common;
mod files;
mod h2spec;
mod openssl;
mod reload;
mod table;
mod upstreams;
