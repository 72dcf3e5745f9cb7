//! Tests of the test runner: folders with flows and tests, and how they end.

mod failures;
mod folder;
mod policies;
mod reports;
mod stubs;
