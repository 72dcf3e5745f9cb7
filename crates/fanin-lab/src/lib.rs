//! Experiments about capacity: what a tier needs, and why.
//!
//! - [`size`] reads access logs and says how many threads, or how much memory for coroutines, the tier behind them needs.

pub mod size;
