//! `rows` of a statement.

use schemars::json_schema;
use serde::Serialize;

use crate::schema::types::{leaf, variable};

/// What a call of a statement returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Rows {
    /// A list of rows.
    #[default]
    Many,
    /// The only row, or `None`. More than one row is an error.
    One,
}

leaf!(
    /// `"many"` or `"one"`.
    RowsText,
    json_schema!({ "anyOf": [{ "enum": ["many", "one"] }, variable()] })
);
