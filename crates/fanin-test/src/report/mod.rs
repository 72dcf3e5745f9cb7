//! Reports of a run: text for people, JUnit XML and TAP for CI, JSON for programs.

mod json;
mod junit;
mod tap;
mod text;

pub use json::json;
pub use junit::junit;
pub use tap::tap;
pub use text::text;
