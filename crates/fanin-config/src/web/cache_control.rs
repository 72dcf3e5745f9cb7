//! `cache_control` of a route: the value of `Cache-Control` (RFC 9111, 5.2).

use http::HeaderValue;

/// Directives of responses, and whether each has a value: seconds, perhaps a list of header names, or none.
const DIRECTIVES: [(&str, Argument); 13] = [
    ("public", Argument::None),
    ("private", Argument::Names),
    ("no-store", Argument::None),
    ("no-cache", Argument::Names),
    ("no-transform", Argument::None),
    ("must-revalidate", Argument::None),
    ("proxy-revalidate", Argument::None),
    ("must-understand", Argument::None),
    ("immutable", Argument::None),
    ("max-age", Argument::Seconds),
    ("s-maxage", Argument::Seconds),
    ("stale-while-revalidate", Argument::Seconds),
    ("stale-if-error", Argument::Seconds),
];

#[derive(Clone, Copy, PartialEq)]
enum Argument {
    None,
    Seconds,
    Names,
}

/// Reads directives. Caches ignore what they do not know, so a mistake would go unnoticed.
pub(crate) fn parse(text: &str) -> Result<HeaderValue, String> {
    let mut seen = Vec::new();
    for directive in text.split(',').map(str::trim) {
        let (name, argument) = directive.split_once('=').map_or((directive, None), |(name, value)| (name, Some(value)));
        let Some((name, takes)) = DIRECTIVES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)) else {
            let known = DIRECTIVES.map(|(name, _)| name).join(", ");
            return Err(format!("`{directive}` is not a directive of Cache-Control; write some of {known}"));
        };
        match (takes, argument) {
            (Argument::Seconds, Some(seconds)) if seconds.parse::<u32>().is_ok() => {}
            (Argument::Seconds, _) => return Err(format!("`{name}` needs a number of seconds, as in {name}=60")),
            (Argument::None, Some(_)) => return Err(format!("`{name}` takes no value")),
            _ => {}
        }
        if seen.contains(name) {
            return Err(format!("`{name}` occurs twice"));
        }
        seen.push(*name);
    }
    for other in ["public", "max-age", "s-maxage"] {
        if seen.contains(&"no-store") && seen.contains(&other) {
            return Err(format!("`no-store` and `{other}` contradict each other"));
        }
    }
    if seen.contains(&"public") && seen.contains(&"private") {
        return Err("`public` and `private` contradict each other".to_owned());
    }
    HeaderValue::from_str(text.trim()).map_err(|_| "has characters that are not allowed in a header".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directives_are_checked() {
        for text in
            ["public, max-age=60", "no-store", "Private,MAX-AGE=0 , stale-while-revalidate=30", "no-cache=set-cookie"]
        {
            assert!(parse(text).is_ok(), "{text}");
        }
        for (text, problem) in [
            ("", "`` is not a directive"),
            ("public max-age=60", "`public max-age=60` is not a directive"),
            ("max_age=60", "is not a directive"),
            ("max-age", "needs a number of seconds, as in max-age=60"),
            ("max-age=1m", "needs a number of seconds"),
            ("immutable=1", "takes no value"),
            ("public, public", "occurs twice"),
            ("no-store, max-age=5", "`no-store` and `max-age` contradict"),
            ("public, private", "contradict"),
            ("no-cache=\u{7}", "not allowed in a header"),
        ] {
            let told = parse(text).unwrap_err();
            assert!(told.contains(problem), "{text}: {told}");
        }
    }
}
