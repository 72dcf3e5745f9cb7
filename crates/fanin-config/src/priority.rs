//! `priority` of a route or model.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use crate::reader::Table;

/// How important a request is: the more important waits in front, the less important is refused first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Priority {
    /// Refused last.
    Critical,
    /// What a route has if nothing is said.
    #[default]
    Normal,
    /// Refused before `Normal`.
    Low,
    /// Refused first.
    Background,
}

impl Priority {
    /// All, the most important first.
    pub const ALL: [Priority; 4] = [Priority::Critical, Priority::Normal, Priority::Low, Priority::Background];

    /// Its word in the file and in headers.
    pub fn as_str(self) -> &'static str {
        match self {
            Priority::Critical => "critical",
            Priority::Normal => "normal",
            Priority::Low => "low",
            Priority::Background => "background",
        }
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Priority {
    type Err = ();

    fn from_str(text: &str) -> Result<Priority, ()> {
        Priority::ALL.into_iter().find(|priority| priority.as_str() == text).ok_or(())
    }
}

/// Reads a route's `priority`.
pub(crate) fn read(table: &mut Table<'_, '_>) -> Option<Priority> {
    table.choice("priority", &Priority::ALL.map(|priority| (priority.as_str(), priority)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_priorities_are_read_back() {
        for priority in Priority::ALL {
            assert_eq!(priority.as_str().parse(), Ok(priority));
        }
        assert!("Critical".parse::<Priority>().is_err());
        assert!(Priority::Critical < Priority::Background);
    }
}
