//! How one value of JSON differs from another: the first place, for people.

use serde_json::Value;

/// The longest value that is shown.
const LONGEST: usize = 200;

/// The first difference, with its path.
pub(crate) fn describe(actual: &Value, expected: &Value) -> String {
    find(actual, expected, &mut String::new()).unwrap_or_else(|| "they are equal".to_owned())
}

fn find(actual: &Value, expected: &Value, path: &mut String) -> Option<String> {
    if actual == expected {
        return None;
    }
    let before = path.len();
    match (actual, expected) {
        (Value::Object(a), Value::Object(b)) => {
            for (name, value) in b {
                path.push_str(&format!("[{name:?}]"));
                match a.get(name) {
                    None => return Some(format!("{path} is missing; expected {}", short(value))),
                    Some(other) => {
                        if let Some(found) = find(other, value, path) {
                            return Some(found);
                        }
                    }
                }
                path.truncate(before);
            }
            let more = a.iter().find(|(name, _)| !b.contains_key(*name))?;
            Some(format!("{path}[{:?}] is not expected: {}", more.0, short(more.1)))
        }
        (Value::Array(a), Value::Array(b)) => {
            for (at, (one, other)) in a.iter().zip(b).enumerate() {
                path.push_str(&format!("[{at}]"));
                if let Some(found) = find(one, other, path) {
                    return Some(found);
                }
                path.truncate(before);
            }
            Some(format!("{} has {} items; expected {}", place(path), a.len(), b.len()))
        }
        _ => Some(format!("{} is {}; expected {}", place(path), short(actual), short(expected))),
    }
}

fn place(path: &str) -> &str {
    if path.is_empty() { "it" } else { path }
}

fn short(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(LONGEST) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn first_difference_is_named() {
        let cases = [
            (json!(1), json!(2), "it is 1; expected 2"),
            (json!({"a": [1, {"b": 2}]}), json!({"a": [1, {"b": 3}]}), "[\"a\"][1][\"b\"] is 2; expected 3"),
            (json!({"a": 1}), json!({"a": 1, "b": 2}), "[\"b\"] is missing; expected 2"),
            (json!({"a": 1, "b": 2}), json!({"a": 1}), "[\"b\"] is not expected: 2"),
            (json!([1]), json!([1, 2]), "it has 1 items; expected 2"),
        ];
        for (actual, expected, text) in cases {
            assert_eq!(describe(&actual, &expected), text);
        }
    }
}
