//! What a token's claims must be (RFC 7519, 4.1), and the conditions of routes.

use std::borrow::Cow;

use bytes::Bytes;
use fanin_config::Auth;
use fanin_json::{Doc, Kind, Node};
use serde_json::Value;

/// Deepest nesting of claims.
const MAX_DEPTH: usize = 32;

/// Parses the claims.
///
/// # Errors
/// They are no JSON object.
pub(crate) fn parse(payload: Vec<u8>) -> Result<Doc, &'static str> {
    const FORM: &str = "its claims are not a JSON object";
    let doc = Doc::parse_indexed(Bytes::from(payload), MAX_DEPTH).map_err(|_| FORM)?;
    if doc.root().kind() == Kind::Object { Ok(doc) } else { Err(FORM) }
}

/// Checks the claims. `now` is in seconds since 1970. Returns until when the token is valid.
///
/// # Errors
/// Which claim is not as it must be.
pub(crate) fn check(claims: &Doc, auth: &Auth, now: f64) -> Result<f64, Cow<'static, str>> {
    let root = claims.root();
    let leeway = auth.leeway.as_secs_f64();
    let date = |name: &'static str| match root.get(name) {
        None => Ok(None),
        Some(date) => match date.as_f64().filter(|date| date.is_finite()) {
            Some(date) => Ok(Some(date)),
            None => Err(Cow::from(format!("its claim {name} is not a date"))),
        },
    };
    let expires = date("exp")?.ok_or("it has no claim exp")?;
    if now >= expires + leeway {
        return Err("it has expired".into());
    }
    if date("nbf")?.is_some_and(|begins| now < begins - leeway) {
        return Err("it is not valid yet".into());
    }
    if date("iat")?.is_some_and(|issued| now < issued - leeway) {
        return Err("it was issued in the future".into());
    }
    let issuer = root.get("iss").and_then(Node::as_str);
    if !auth.issuers.is_empty() && !issuer.is_some_and(|issuer| auth.issuers.iter().any(|known| *known == *issuer)) {
        return Err("its issuer is not accepted".into());
    }
    if !auth.audiences.is_empty() && !root.get("aud").is_some_and(|aud| has_one_of(aud, &auth.audiences)) {
        return Err("it is for another audience".into());
    }
    match auth.required_claims.iter().find(|name| member(root, name).is_none()) {
        Some(missing) => Err(format!("it has no claim {missing}").into()),
        None => Ok(expires + leeway),
    }
}

/// One text, or a list that has one of them.
fn has_one_of(node: Node<'_>, wanted: &[String]) -> bool {
    let is_wanted = |node: Node<'_>| node.as_str().is_some_and(|text| wanted.iter().any(|one| *one == *text));
    if node.kind() == Kind::Array { node.elements().any(is_wanted) } else { is_wanted(node) }
}

/// A claim by its name, or else by a path with dots.
pub(crate) fn member<'a>(root: Node<'a>, name: &str) -> Option<Node<'a>> {
    if let Some(claim) = root.get(name) {
        return Some(claim).filter(|claim| !claim.is_null());
    }
    let (first, rest) = name.split_once('.')?;
    let inner = root.get(first).filter(|inner| inner.kind() == Kind::Object)?;
    member(inner, rest)
}

/// Whether a claim has one of these values.
pub(crate) fn satisfies(claims: &Doc, name: &str, wanted: &[Value]) -> bool {
    let Some(claim) = member(claims.root(), name) else { return false };
    let is_words = matches!(name, "scope" | "scp");
    let is_one = |node: Node<'_>| wanted.iter().any(|wanted| equals(node, wanted, is_words));
    if claim.kind() == Kind::Array { claim.elements().any(is_one) } else { is_one(claim) }
}

fn equals(node: Node<'_>, wanted: &Value, is_words: bool) -> bool {
    match wanted {
        Value::String(wanted) => node.as_str().is_some_and(|text| match is_words {
            true => text.split(' ').any(|word| word == wanted),
            false => *text == **wanted,
        }),
        Value::Bool(wanted) => node.as_bool() == Some(*wanted),
        Value::Number(wanted) => node.as_i64().is_some() && node.as_i64() == wanted.as_i64(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use fanin_config::AuthKind;

    use super::*;

    fn doc(text: &str) -> Doc {
        parse(text.as_bytes().to_vec()).expect("an object")
    }

    fn auth() -> Auth {
        Auth { issuers: vec!["i".into()], audiences: vec!["a".into(), "b".into()], ..Auth::new(AuthKind::Jwt) }
    }

    fn checked(text: &str) -> Result<f64, String> {
        check(&doc(text), &auth(), 1000.0).map_err(Cow::into_owned)
    }

    #[test]
    fn claims_are_checked_with_leeway() {
        assert_eq!(checked(r#"{"iss":"i","aud":"a","exp":2000}"#), Ok(2030.0));
        assert_eq!(checked(r#"{"iss":"i","aud":["x","b"],"exp":971,"nbf":1029.5,"iat":1030}"#), Ok(1001.0));
        for (text, why) in [
            (r#"{"iss":"i","aud":"a"}"#, "no claim exp"),
            (r#"{"iss":"i","aud":"a","exp":970}"#, "expired"),
            (r#"{"iss":"i","aud":"a","exp":"2000"}"#, "exp is not a date"),
            (r#"{"iss":"i","aud":"a","exp":1e400}"#, "exp is not a date"),
            (r#"{"iss":"i","aud":"a","exp":2000,"nbf":1031}"#, "not valid yet"),
            (r#"{"iss":"i","aud":"a","exp":2000,"nbf":null}"#, "nbf is not a date"),
            (r#"{"iss":"i","aud":"a","exp":2000,"iat":1031}"#, "in the future"),
            (r#"{"iss":"x","aud":"a","exp":2000}"#, "issuer"),
            (r#"{"iss":["i"],"aud":"a","exp":2000}"#, "issuer"),
            (r#"{"aud":"a","exp":2000}"#, "issuer"),
            (r#"{"iss":"i","aud":"A","exp":2000}"#, "audience"),
            (r#"{"iss":"i","aud":[["a"]],"exp":2000}"#, "audience"),
            (r#"{"iss":"i","exp":2000}"#, "audience"),
        ] {
            let error = checked(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
        let mut strict = auth();
        strict.required_claims = vec!["sub".into(), "org.id".into()];
        let check = |text| check(&doc(text), &strict, 0.0).map(drop).map_err(Cow::into_owned);
        assert_eq!(check(r#"{"iss":"i","aud":"a","exp":1,"sub":"s","org":{"id":7}}"#), Ok(()));
        assert_eq!(check(r#"{"iss":"i","aud":"a","exp":1,"sub":null}"#), Err("it has no claim sub".into()));
        assert_eq!(check(r#"{"iss":"i","aud":"a","exp":1,"sub":"s","org":{}}"#), Err("it has no claim org.id".into()));
    }

    #[test]
    fn conditions_look_into_lists_words_and_members() {
        let claims = doc(
            r#"{"scope":"read orders:write","role":["staff","x"],"name":"a b","n":7,"ok":true,"org":{"kind":"shop"},"https://x.y/z":"v"}"#,
        );
        for (name, wanted, satisfied) in [
            ("scope", serde_json::json!(["orders:write"]), true),
            ("scope", serde_json::json!(["orders"]), false),
            ("scope", serde_json::json!(["read orders:write"]), false),
            ("role", serde_json::json!(["admin", "staff"]), true),
            ("role", serde_json::json!(["admin"]), false),
            // Words are those of `scope` only.
            ("name", serde_json::json!(["a"]), false),
            ("name", serde_json::json!(["a b"]), true),
            ("n", serde_json::json!([7]), true),
            ("n", serde_json::json!(["7"]), false),
            ("ok", serde_json::json!([true]), true),
            ("ok", serde_json::json!([false]), false),
            ("org.kind", serde_json::json!(["shop"]), true),
            ("org.other", serde_json::json!(["shop"]), false),
            ("https://x.y/z", serde_json::json!(["v"]), true),
            ("absent", serde_json::json!(["v"]), false),
        ] {
            let wanted = wanted.as_array().expect("a list");
            assert_eq!(satisfies(&claims, name, wanted), satisfied, "{name} {wanted:?}");
        }
    }
}
