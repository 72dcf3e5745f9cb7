//! Parameters: from a flow's values to PostgreSQL's types.
//!
//! They are sent as text, a format that every type has, and the server parses them like literals. Only the kind of
//! value is checked here, so that an error names the parameter, and nothing is converted silently: the text `"7"` is
//! not a number.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use fanin_json::{Kind, Node};
use postgres_types::{Kind as TypeKind, Type};

/// Writes a value as a type: its length, or -1 for NULL, and its text.
///
/// # Errors
/// What is wrong with it, for a message: `is a string; int4 needs a whole number`.
pub(super) fn write(value: Node<'_>, of: &Type, out: &mut Vec<u8>) -> Result<(), String> {
    let start = out.len();
    out.extend_from_slice(&u32::MAX.to_be_bytes());
    if value.is_null() {
        return Ok(());
    }
    text(value, of, out)?;
    // A flow's values are bounded far below 4 GB.
    let length = (out.len() - start - 4) as u32;
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
    Ok(())
}

fn kind(value: Node<'_>) -> &'static str {
    match value.kind() {
        Kind::Null => "None",
        Kind::Bool => "a boolean",
        Kind::Number => "a number",
        Kind::String => "a string",
        Kind::Array => "a list",
        Kind::Object => "a dict",
    }
}

fn text(value: Node<'_>, of: &Type, out: &mut Vec<u8>) -> Result<(), String> {
    let wrong = |needed: &str| Err(format!("is {}; {} needs {needed}", kind(value), of.name()));
    match of.kind() {
        TypeKind::Array(element) => return array(value, element, out),
        TypeKind::Domain(base) => return text(value, base, out),
        _ => {}
    }
    match *of {
        Type::INT2 | Type::INT4 | Type::INT8 | Type::OID => {
            let Some(digits) = value.as_number_text() else { return wrong("a whole number") };
            let (least, most) = match *of {
                Type::INT2 => (i64::from(i16::MIN), i64::from(i16::MAX)),
                Type::INT4 => (i64::from(i32::MIN), i64::from(i32::MAX)),
                Type::OID => (0, i64::from(u32::MAX)),
                _ => (i64::MIN, i64::MAX),
            };
            match value.as_i64() {
                Some(number) if (least..=most).contains(&number) => out.extend_from_slice(digits.as_bytes()),
                _ if digits.contains(['.', 'e', 'E']) => {
                    return Err(format!("is {digits}; {} needs a whole number", of.name()));
                }
                _ => return Err(format!("is {digits}, which does not fit into {}", of.name())),
            }
        }
        Type::FLOAT4 | Type::FLOAT8 | Type::NUMERIC => match (value.as_number_text(), value.as_str()) {
            (Some(digits), _) => out.extend_from_slice(digits.as_bytes()),
            // The database writes numbers that JSON does not have as strings.
            (None, Some(text)) if is_number(&text) => out.extend_from_slice(text.as_bytes()),
            (None, Some(_)) => return Err(format!("is a string that is not a number; {} needs one", of.name())),
            _ => return wrong("a number"),
        },
        Type::BOOL => match value.as_bool() {
            Some(value) => out.push(if value { b't' } else { b'f' }),
            None => return wrong("True or False"),
        },
        Type::JSON | Type::JSONB => out.extend_from_slice(value.raw()),
        Type::BYTEA => {
            let Some(encoded) = value.as_str() else { return wrong("a string of base64") };
            let bytes = STANDARD.decode(&*encoded).map_err(|_| "is not base64, which bytea needs".to_owned())?;
            out.reserve(2 + 2 * bytes.len());
            out.extend_from_slice(b"\\x");
            for byte in bytes {
                out.extend([byte >> 4, byte & 15].map(|digit| b"0123456789abcdef"[usize::from(digit)]));
            }
        }
        _ => match value.as_str() {
            Some(text) if text.contains('\0') => {
                return Err("holds a zero byte, which PostgreSQL's text types do not allow".to_owned());
            }
            Some(text) => out.extend_from_slice(text.as_bytes()),
            None => return wrong("a string"),
        },
    }
    Ok(())
}

fn is_number(text: &str) -> bool {
    matches!(text, "NaN" | "Infinity" | "-Infinity") || {
        let digits = text.strip_prefix('-').unwrap_or(text);
        digits.starts_with(|c: char| c.is_ascii_digit())
            && digits.parse::<f64>().is_ok()
            && digits.bytes().all(|byte| byte.is_ascii_digit() || b".eE+-".contains(&byte))
    }
}

/// `{1,NULL,"a \" b"}`
fn array(value: Node<'_>, element: &Type, out: &mut Vec<u8>) -> Result<(), String> {
    if value.kind() != Kind::Array {
        return Err(format!("is {}; {}[] needs a list", kind(value), element.name()));
    }
    let is_json = matches!(*element, Type::JSON | Type::JSONB);
    let is_plain = matches!(*element, Type::INT2 | Type::INT4 | Type::INT8 | Type::OID | Type::BOOL);
    let mut item_text = Vec::new();
    out.push(b'{');
    for (at, item) in value.elements().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        let inside = |what| format!("has an item {at} that {what}");
        match item.kind() {
            Kind::Null => out.extend_from_slice(b"NULL"),
            Kind::Array if !is_json => array(item, element, out)?,
            _ if is_plain => text(item, element, out).map_err(inside)?,
            _ => {
                item_text.clear();
                text(item, element, &mut item_text).map_err(inside)?;
                out.push(b'"');
                for &byte in &item_text {
                    if matches!(byte, b'"' | b'\\') {
                        out.push(b'\\');
                    }
                    out.push(byte);
                }
                out.push(b'"');
            }
        }
    }
    out.push(b'}');
    Ok(())
}

#[cfg(test)]
mod tests {
    use fanin_json::Doc;

    use super::*;

    fn written(json: &str, of: &Type) -> Result<Option<String>, String> {
        let doc = Doc::parse(json.to_owned().into(), 16).unwrap();
        let mut out = Vec::new();
        write(doc.root(), of, &mut out)?;
        let (length, text) = out.split_first_chunk().unwrap();
        let length = u32::from_be_bytes(*length);
        assert_eq!(length as usize, if length == u32::MAX { length as usize } else { text.len() });
        Ok((length != u32::MAX).then(|| String::from_utf8(text.to_vec()).unwrap()))
    }

    #[test]
    fn each_kind_has_its_text() {
        for (json, of, text) in [
            ("7", Type::INT4, "7"),
            ("-32768", Type::INT2, "-32768"),
            ("12345678901234567890.50", Type::NUMERIC, "12345678901234567890.50"),
            ("\"1.10\"", Type::NUMERIC, "1.10"),
            ("\"NaN\"", Type::FLOAT8, "NaN"),
            ("true", Type::BOOL, "t"),
            ("\"a\\nb\"", Type::TEXT, "a\nb"),
            ("{\"a\": [1]}", Type::JSONB, "{\"a\": [1]}"),
            ("\"aGk=\"", Type::BYTEA, "\\x6869"),
            ("[1, null, 3]", Type::INT4_ARRAY, "{1,NULL,3}"),
            ("[[\"a\"], [\"b \\\" \\\\\"]]", Type::TEXT_ARRAY, "{{\"a\"},{\"b \\\" \\\\\"}}"),
            ("[[1]]", Type::JSONB_ARRAY, "{\"[1]\"}"),
            ("[]", Type::INT8_ARRAY, "{}"),
        ] {
            assert_eq!(written(json, &of).unwrap().as_deref(), Some(text), "{json} as {of}");
        }
        assert_eq!(written("null", &Type::INT4).unwrap(), None);
    }

    #[test]
    fn a_wrong_kind_has_a_clear_error() {
        for (json, of, what) in [
            ("\"7\"", Type::INT4, "is a string; int4 needs a whole number"),
            ("1.5", Type::INT4, "is 1.5; int4 needs a whole number"),
            ("40000", Type::INT2, "is 40000, which does not fit into int2"),
            ("99999999999999999999", Type::INT8, "does not fit into int8"),
            ("\"abc\"", Type::NUMERIC, "is a string that is not a number"),
            ("1", Type::BOOL, "is a number; bool needs True or False"),
            ("1", Type::TEXT, "is a number; text needs a string"),
            ("\"!\"", Type::BYTEA, "is not base64"),
            ("1", Type::INT4_ARRAY, "is a number; int4[] needs a list"),
            ("[\"a\"]", Type::INT4_ARRAY, "has an item 0 that is a string; int4 needs a whole number"),
            ("{}", Type::UUID, "is a dict; uuid needs a string"),
            ("\"\\u0000\"", Type::TEXT, "a zero byte"),
        ] {
            let error = written(json, &of).unwrap_err();
            assert!(error.contains(what), "{json} as {of}: {error}");
        }
    }
}
