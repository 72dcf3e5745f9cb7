//! Parameters: from a flow's values to MySQL's.
//!
//! The server does not tell the type of a parameter. So the value decides, and the server converts it.

use fanin_json::{Kind, Node};
use mysql_async::Value;

/// Decimal digits that a double always holds exactly.
const DOUBLE_DIGITS: usize = 15;

/// A value as a parameter. Lists and dicts are JSON, for `json_table(?, ...)` and JSON columns.
pub(crate) fn param(value: Node<'_>) -> Value {
    match value.kind() {
        Kind::Null => Value::NULL,
        Kind::Bool => Value::Int(value.as_bool().unwrap_or_default().into()),
        Kind::Number => number(value.as_number_text().unwrap_or_default()),
        Kind::String => Value::Bytes(value.as_str().unwrap_or_default().into_owned().into_bytes()),
        Kind::Array | Kind::Object => Value::Bytes(value.raw().to_vec()),
    }
}

/// Integers as such. Others as a double if that is exact, else as text.
fn number(digits: &str) -> Value {
    if let Ok(whole) = digits.parse() {
        return Value::Int(whole);
    }
    if let Ok(whole) = digits.parse() {
        return Value::UInt(whole);
    }
    let mantissa = digits.split(['e', 'E']).next().unwrap_or_default();
    match digits.parse() {
        Ok(double) if mantissa.bytes().filter(u8::is_ascii_digit).count() <= DOUBLE_DIGITS => Value::Double(double),
        _ => Value::Bytes(digits.as_bytes().to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use fanin_json::Doc;

    use super::*;

    #[test]
    fn each_kind_has_its_value() {
        let text = |text: &str| Value::Bytes(text.as_bytes().to_vec());
        for (json, value) in [
            ("null", Value::NULL),
            ("true", Value::Int(1)),
            ("-7", Value::Int(-7)),
            ("18446744073709551615", Value::UInt(u64::MAX)),
            ("18446744073709551616", text("18446744073709551616")),
            ("19.90", Value::Double(19.9)),
            ("1e3", Value::Double(1000.0)),
            ("0.1234567890123456", text("0.1234567890123456")),
            ("\"a\\nb\"", text("a\nb")),
            ("[1, \"a\"]", text("[1, \"a\"]")),
            ("{\"a\": 1.50}", text("{\"a\": 1.50}")),
        ] {
            let doc = Doc::parse(json.to_owned().into(), 16).unwrap();
            assert_eq!(param(doc.root()), value, "{json}");
        }
    }
}
