//! Sizing from logs whose truth is known.

mod bad_input;
mod exact;
mod logs;
mod output;
mod saturation;
