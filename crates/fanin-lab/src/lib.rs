//! Experiments about capacity: what a tier needs, and why.
//!
//! - [`lab`] runs experiments and puts their figures beside those of published stories;
//! - [`size`] reads access logs and says how many threads, or how much memory for coroutines, the tier behind them needs.

pub mod lab;
pub mod size;
