//! Which values are secret, by their names and places.

use std::collections::BTreeSet;

/// Headers that are removed from every recording.
pub const HEADERS: [&str; 10] = [
    "authorization",
    "cookie",
    "proxy-authorization",
    "set-cookie",
    "x-amz-security-token",
    "x-api-key",
    "x-auth-token",
    "x-csrf-token",
    "x-forwarded-access-token",
    "x-xsrf-token",
];

/// Query parameters and fields of forms that are removed from every recording.
pub const QUERY: [&str; 11] = [
    "access_token",
    "api_key",
    "apikey",
    "client_secret",
    "id_token",
    "password",
    "refresh_token",
    "secret",
    "session",
    "signature",
    "token",
];

/// Places in JSON that are removed from every recording.
pub const JSON: [&str; 9] = [
    "**.access_token",
    "**.api_key",
    "**.client_secret",
    "**.id_token",
    "**.password",
    "**.private_key",
    "**.refresh_token",
    "**.secret",
    "**.token",
];

/// A place in JSON that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no place in JSON: write names with dots between them, `*` for any one, `**` for any number of them")]
pub struct RuleError(String);

/// A part of a place in JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    Name(String),
    Any,
    /// Any number of members below one another.
    Deep,
}

/// Which values are secret. Names do not depend on upper and lower case.
#[derive(Debug, Clone)]
pub struct Rules {
    headers: BTreeSet<String>,
    query: BTreeSet<String>,
    json: Vec<(String, Vec<Step>)>,
}

impl Default for Rules {
    fn default() -> Rules {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let mut rules = Rules { headers: set(&HEADERS), query: set(&QUERY), json: Vec::new() };
        JSON.iter().for_each(|place| {
            // The places above can be read, as a test shows.
            let _ = rules.add_json(place);
        });
        rules
    }
}

impl Rules {
    /// Adds a header.
    pub fn add_header(&mut self, name: &str) {
        self.headers.insert(name.to_ascii_lowercase());
    }

    /// Adds a query parameter or a field of forms.
    pub fn add_query(&mut self, name: &str) {
        self.query.insert(name.to_ascii_lowercase());
    }

    /// Adds a place in JSON: `user.password`, `**.card`, `items.*.key`. Elements of a list are at the place of the list.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn add_json(&mut self, place: &str) -> Result<(), RuleError> {
        let step = |text: &str| match text {
            "" => Err(RuleError(place.to_owned())),
            "*" => Ok(Step::Any),
            "**" => Ok(Step::Deep),
            name => Ok(Step::Name(name.to_ascii_lowercase())),
        };
        let steps: Vec<Step> = place.split('.').map(step).collect::<Result<_, _>>()?;
        if steps.last() == Some(&Step::Deep) {
            return Err(RuleError(place.to_owned()));
        }
        if !self.json.iter().any(|(known, _)| known == place) {
            self.json.push((place.to_owned(), steps));
        }
        Ok(())
    }

    /// Names of headers, in order.
    pub fn headers(&self) -> impl Iterator<Item = &str> {
        self.headers.iter().map(String::as_str)
    }

    /// Names of query parameters.
    pub fn query(&self) -> impl Iterator<Item = &str> {
        self.query.iter().map(String::as_str)
    }

    /// Places in JSON.
    pub fn json(&self) -> impl Iterator<Item = &str> {
        self.json.iter().map(|(place, _)| place.as_str())
    }

    pub(crate) fn removes_header(&self, name: &str) -> bool {
        self.headers.contains(name)
    }

    pub(crate) fn removes_query(&self, name: &str) -> bool {
        self.query.contains(&name.to_ascii_lowercase())
    }

    pub(crate) fn places(&self) -> impl Iterator<Item = &[Step]> {
        self.json.iter().map(|(_, steps)| &**steps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_built_in_places_can_be_read() {
        assert_eq!(Rules::default().json().count(), JSON.len());
    }

    #[test]
    fn wrong_places_are_named() {
        let mut rules = Rules::default();
        for wrong in ["", ".", "a..b", "a.", "a.**"] {
            assert!(rules.add_json(wrong).is_err(), "{wrong}");
        }
        assert!(rules.add_json("a.*.b").is_ok());
    }
}
