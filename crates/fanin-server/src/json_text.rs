//! JSON strings, written without an intermediate value.

/// Appends the inside of a JSON string.
pub(crate) fn escape(text: &str, to: &mut Vec<u8>) {
    let bytes = text.as_bytes();
    let mut from = 0;
    for (at, byte) in bytes.iter().enumerate() {
        if matches!(byte, b'"' | b'\\' | 0..=0x1f | 0x7f) {
            to.extend_from_slice(&bytes[from..at]);
            from = at + 1;
            match byte {
                b'"' | b'\\' => to.extend_from_slice(&[b'\\', *byte]),
                _ => to.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            }
        }
    }
    to.extend_from_slice(&bytes[from..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_text_is_read_as_it_was() {
        let text = "a\"b\\c\nd\u{1}\u{7f}é";
        let mut json = vec![b'"'];
        escape(text, &mut json);
        json.push(b'"');
        assert_eq!(serde_json::from_slice::<String>(&json).unwrap(), text);
    }
}
