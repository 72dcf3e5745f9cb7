//! What is accepted and what is not, case by case (after the classes of the JSON parsing test
//! suite: structure, numbers, strings, literals, encoding), and where errors are said to be.

use bytes::Bytes;
use fanin_json::{Doc, JsonError, JsonErrorKind};

fn parse(body: impl AsRef<[u8]>) -> Result<Doc, JsonError> {
    let body = Bytes::copy_from_slice(body.as_ref());
    let (parsed, indexed) = (Doc::parse(body.clone(), 64), Doc::parse_indexed(body, 64));
    let text = |doc: &Result<Doc, JsonError>| doc.as_ref().map(|doc| doc.bytes().clone()).map_err(JsonError::clone);
    assert_eq!(text(&parsed), text(&indexed));
    parsed
}

#[test]
fn accepts() {
    let cases: &[&[u8]] = &[
        b"null",
        b"true",
        b"false",
        b"0",
        b"-0",
        b"-1",
        b"\"\"",
        b"[]",
        b"{}",
        b" [ ] ",
        b"\t{\n}\r\n",
        b"[[]   ]",
        b"[\"\"]",
        b"[1\n]",
        b" [1]",
        b"[1,null,null,null,2]",
        b"[2] ",
        b"[123e65]",
        b"[0e+1]",
        b"[0e1]",
        b"[ 4]",
        b"[-0.000000000000000000000000000000000000001]",
        b"[20e1]",
        b"[-123]",
        b"[1E22]",
        b"[1E-2]",
        b"[1E+2]",
        b"[123.456e78]",
        b"[123.456789]",
        b"1e999999",
        b"-1e-999999",
        b"123456789012345678901234567890",
        br#"{"a":"b","a":"c"}"#,
        br#"{"a":"b","a":"b"}"#,
        br#"{"":0}"#,
        br#"{"foo\u0000bar":42}"#,
        br#"{"min":-1.0e+28,"max":1.0e+28}"#,
        br#"{"a":[]}"#,
        b"{\n\"a\": \"b\"\n}",
        br#"["\u0060\u012a\u12AB"]"#,
        br#"["\ud801\udc37"]"#,
        br#"["\"\\\/\b\f\n\r\t"]"#,
        br#"["\\u0000"]"#,
        br#"["\""]"#,
        br#"["a/*b*/c/*d//e"]"#,
        br#"["\\a"]"#,
        br#"["\\n"]"#,
        br#"["\u0012"]"#,
        br#"["\uFFFF"]"#,
        br#"["\u0000"]"#,
        br#"["\uDBFF\uDFFF"]"#,
        // Lone surrogates are left open by RFC 8259.
        br#"["\uDADA"]"#,
        br#"["\uD888\u1234"]"#,
        br#"["\uDFAA"]"#,
        br#"["\ud800\n"]"#,
        "[\"\u{7f}\"]".as_bytes(),
        "[\"\u{2028}\u{2029}\u{feff}\u{ffff}\u{10ffff}\"]".as_bytes(),
        "[\"€𝄞\", {\"ключ\": \"значение\"}]".as_bytes(),
    ];
    for case in cases {
        let doc = parse(case).unwrap_or_else(|e| panic!("{}: {e}", String::from_utf8_lossy(case)));
        assert_eq!(&doc.bytes()[..], case.trim_ascii());
    }
}

#[test]
fn refuses() {
    let cases: &[&[u8]] = &[
        b"",
        b" ",
        b"[",
        b"]",
        b"{",
        b"}",
        b"[1",
        b"[1,",
        b"[1,]",
        b"[,1]",
        b"[,]",
        b"[1,,2]",
        b"[1 2]",
        b"[1]]",
        b"[1}",
        b"{]",
        b"{\"a\":1]",
        b"[}",
        b"[\"x\"",
        b"[\"x\",,]",
        b"[\"\": 1]",
        b"[3[4]]",
        b"[:]",
        b"[1:2]",
        b"[] []",
        b"{} x",
        b"1 2",
        b"1,",
        b"[1]#",
        b"[1]/**/",
        b"/**/1",
        b"[1]//",
        b"{\"a\"",
        b"{\"a\":",
        b"{\"a\":1",
        b"{\"a\":1,",
        b"{\"a\":1,}",
        b"{,}",
        b"{\"a\" 1}",
        b"{\"a\"::1}",
        b"{\"a\",1}",
        b"{a:1}",
        b"{'a':1}",
        b"{1:1}",
        b"{null:1}",
        b"{\"a\":1 \"b\":2}",
        b"{\"a\":1,,\"b\":2}",
        b"{\"a\":}",
        b"{:1}",
        b"{\"a\":1,1}",
        b"{\"x\"::\"b\"}",
        b"{[:\"x\"}",
        b"{\"a\":\"a\" 123}",
        b"nul",
        b"nulll",
        b"nan",
        b"NaN",
        b"Infinity",
        b"-Infinity",
        b"True",
        b"TRUE",
        b"tru",
        b"truee",
        b"fals",
        b"undefined",
        b"'x'",
        b"`x`",
        b"a",
        b"*",
        b"<null>",
        b"[*]",
        b"-",
        b"+1",
        b"01",
        b"-01",
        b"00",
        b"012",
        b"1.",
        b".1",
        b"-.1",
        b"1.e1",
        b"1e",
        b"1e+",
        b"1E-",
        b"1e1.5",
        b"1eE2",
        b"0x1",
        b"0e",
        b"0e+",
        b"0.e1",
        b"0.3e",
        b"1_000",
        b"1 000",
        b"- 1",
        b"--1",
        b"1+1",
        b"1-",
        b"[-]",
        b"2.e3",
        b"9.e+",
        b"1.2.3",
        b"1a",
        b"-a",
        b"-NaN",
        b"0x",
        b"1ea",
        b"[0e+-1]",
        b"1\0",
        "１".as_bytes(),
        "[１]".as_bytes(),
        "\u{a0}1".as_bytes(),
        "[\u{2060}]".as_bytes(),
        "[1]\u{c}".as_bytes(),
        b"[\x0b1]",
        b"[1]\0",
        b"\0",
        b"\xef\xbb\xbf[1]",
        b"\xff\xfe[\0",
        b"[\x0c]",
        b"\"",
        b"\"a",
        b"\"\\\"",
        b"\"\\",
        b"\"\\u\"",
        b"\"\\u1\"",
        b"\"\\u12\"",
        b"\"\\u123\"",
        b"\"\\u12G4\"",
        b"\"\\u 123\"",
        b"\"\\x00\"",
        b"\"\\a\"",
        b"\"\\'\"",
        b"\"\\U0041\"",
        b"\"\\0\"",
        b"\"\\\x00\"",
        b"\"\\\n\"",
        b"\"\\ud800\\\"",
        b"\"\\ud800\\u\"",
        b"\"\x00\"",
        b"\"\x1f\"",
        b"\"a\nb\"",
        b"\"a\tb\"",
        b"\"a\rb\"",
        b"\"\"\"",
        b"\"\" \"\"",
        // Not UTF-8: stray continuation, cut short, overlong, surrogate, beyond U+10FFFF.
        b"\"\x80\"",
        b"\"\xc3\"",
        b"\"\xe2\x82\"",
        b"\"\xc0\xaf\"",
        b"\"\xe0\x80\xaf\"",
        b"\"\xed\xa0\x80\"",
        b"\"\xf4\x90\x80\x80\"",
        b"\"\xff\"",
        b"\"\xf8\x88\x80\x80\x80\"",
        b"[\xe5]",
        b"{\"\xb9\":1}",
        b"[\"\\u00e9\xe9\"]",
    ];
    for case in cases {
        assert!(parse(case).is_err(), "accepted: {}", String::from_utf8_lossy(case));
        // Between other values too, after a string long enough for the vector loop. Some cases are
        // fine there (`1,`), which serde_json decides; it does not inspect UTF-8 here.
        let wrapped = [b"[\"", &[b'x'; 100][..], b"\",", case, b"]"].concat();
        if serde_json::from_slice::<serde::de::IgnoredAny>(&wrapped).is_err() {
            assert!(parse(&wrapped).is_err(), "accepted: {}", String::from_utf8_lossy(&wrapped));
        }
    }
}

#[test]
fn every_prefix_is_refused() {
    let body = r#"{"a":[1,-2.5e+3,"x\u00e9\n",true,false,null,{"k":{}}],"б":[]}"#.as_bytes();
    assert!(parse(body).is_ok());
    for end in 0..body.len() {
        assert!(parse(&body[..end]).is_err(), "{}", String::from_utf8_lossy(&body[..end]));
    }
}

#[test]
fn depth_is_bounded_without_recursion() {
    let nested = |depth: usize| Bytes::from("[".repeat(depth) + &"]".repeat(depth));
    for depth in [0, 1, 63, 64, 65, 127, 128, 129, 1000] {
        assert!(Doc::parse("1".into(), depth).is_ok());
        if depth > 0 {
            assert!(Doc::parse(nested(depth), depth).is_ok(), "{depth}");
        }
        let error = Doc::parse(nested(depth + 1), depth).unwrap_err();
        assert_eq!((error.kind, error.offset), (JsonErrorKind::TooDeep { limit: depth }, depth));
    }
    let doc = Doc::parse(nested(1_000_000), usize::MAX).unwrap();
    assert_eq!(doc.root().len(), Some(1));
    assert!(Doc::parse(Bytes::from("[".repeat(1_000_000)), usize::MAX).is_err());
}

#[test]
fn brackets_are_matched_at_every_depth() {
    // The stack of bits crosses a word at 64.
    for depth in [1, 2, 63, 64, 65, 66, 128, 129, 200] {
        let mut open = String::new();
        let mut close = Vec::new();
        for level in 0..depth {
            let object = level % 3 == 0;
            open.push_str(if object { r#"{"a":"# } else { "[" });
            close.push(if object { '}' } else { ']' });
        }
        close.reverse();
        let good: String = close.iter().collect();
        assert!(Doc::parse(format!("{open}1{good}").into(), 500).is_ok(), "{depth}");
        for wrong in 0..depth {
            let mut bad = close.clone();
            bad[wrong] = if bad[wrong] == '}' { ']' } else { '}' };
            let bad: String = bad.into_iter().collect();
            assert!(Doc::parse(format!("{open}1{bad}").into(), 500).is_err(), "{depth} {wrong}");
        }
    }
}

#[test]
fn errors_say_what_and_where() {
    let message = |body: &[u8]| parse(body).unwrap_err().to_string();
    assert_eq!(message(b""), "expected a value, found the end at line 1, column 1 (byte 0)");
    assert_eq!(message(b"{\n  \"a\": 1,\n  b\n}"), "expected a string as key, found `b` at line 3, column 3 (byte 14)");
    assert_eq!(message("[\"é\" 1]".as_bytes()), "expected `,` or `]`, found `1` at line 1, column 6 (byte 6)");
    assert_eq!(message(b"{\"a\":1"), "expected `,` or `}`, found the end at line 1, column 7 (byte 6)");
    assert_eq!(message(b"[1] x"), "expected the end, found `x` at line 1, column 5 (byte 4)");
    assert_eq!(message(b"[\"a\nb\"]"), "control character 0x0A in a string at line 1, column 4 (byte 3)");
    assert_eq!(message(b"[\"ab\xff\"]"), "not UTF-8 at line 1, column 5 (byte 4)");
    assert_eq!(message(b"[1.x]"), "expected a digit, found `x` at line 1, column 4 (byte 3)");
    assert_eq!(
        message(b"\xef\xbb\xbf1"),
        "expected a value, found byte 0xEF (a byte order mark?) at line 1, column 1 (byte 0)"
    );
    assert_eq!(message(b"[tru"), "expected `true`, found `t` at line 1, column 2 (byte 1)");
    assert_eq!(message(b"\"abc"), "expected `\"` to end the string, found the end at line 1, column 5 (byte 4)");
}
