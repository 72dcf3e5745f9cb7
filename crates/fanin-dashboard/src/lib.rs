//! The dashboard: what an operator looks at while something is wrong.
//!
//! A [`History`] takes the text of `/metrics` about once a second and keeps what the dashboard needs of the last quarter of an hour.
//! [`History::data`] is what it shows, as numbers with their units in the names. The page and `fanin top` show the same [`Data`].
//!
//! - `exposition` reads the text of metrics. `histogram` has quantiles. `sample` is one reading.
//! - `history` is the bounded ring of readings. `data` is what is shown, `compare` computes it from two readings, `problems` says what is
//!   wrong.
//! - `page` is the page: HTML, CSS and JavaScript of the folder `page`, put together once. `terminal` draws the data as text.
//!
//! The crate must not know where the metrics come from, or who asks for the page.

mod compare;
mod data;
mod exposition;
mod histogram;
mod history;
mod page;
mod problems;
mod sample;
mod terminal;

pub use data::{
    Cache, Data, Latency, Model, Objective, Point, Problem, Route, RouteSeries, Server, Upstream, UpstreamSeries,
};
pub use history::{History, Query};
pub use page::{Page, page};
pub use terminal::draw;
