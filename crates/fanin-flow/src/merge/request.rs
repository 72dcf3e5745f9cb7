//! Builds the request of a batch: the base request with the united keys and fields of its calls.

use std::collections::HashSet;

use bytes::Bytes;
use fanin_config::{Batch, Operation, Param, ParamLocation, QueryLists};
use fanin_json::{Doc, write_str};
use fanin_upstream::Request;
use http::header::{CONTENT_TYPE, HeaderValue};

use super::part::Part;
use super::requested_keys::Key;
use crate::encode;

/// Maximal nesting of a statement's parameters. Flows have a lower limit.
const DEPTH: usize = 1024;

/// The distinct keys of all parts, and the union of their fields; `None` if a part wants all fields. `7` and `"7"` are one key in a
/// URL and two keys of a statement.
pub(super) fn union<'a>(parts: &'a [Part], batch: &'a Batch) -> (Vec<&'a Key>, Option<Vec<&'a str>>) {
    let mut keys: Vec<&Key> = Vec::new();
    if let [only] = parts {
        keys.extend(only.keys());
    } else {
        let mut seen = HashSet::new();
        let typed = batch.rows.is_some();
        keys.extend(parts.iter().flat_map(Part::keys).filter(|key| seen.insert((&key.text, typed && key.quoted))));
    }
    if batch.fields.is_none() || parts.iter().any(|part| part.requested.fields.is_none()) {
        return (keys, None);
    }
    let mut fields: Vec<&str> = Vec::new();
    // Add the field that holds an item's key, which splitting the answer needs.
    let all = parts.iter().flat_map(|part| part.requested.fields.iter().flatten()).map(|field| &**field);
    for field in all.chain(batch.match_field.as_deref()) {
        if !fields.contains(&field) {
            fields.push(field);
        }
    }
    (keys, Some(fields))
}

/// The request for these keys and fields.
pub(super) fn request_for_keys(
    base: &Request,
    operation: &Operation,
    batch: &Batch,
    lists: QueryLists,
    keys: &[&Key],
    fields: Option<&[&str]>,
) -> Request {
    let mut request = base.clone();
    let param = |name: &str| operation.params.as_ref().and_then(|params| params.get(name));
    let texts: Vec<&str> = keys.iter().map(|key| &*key.text).collect();
    put(&mut request, &batch.key, param(&batch.key), lists, &texts, |at| keys[at].quoted);
    if let (Some(name), Some(fields)) = (&batch.fields, fields) {
        put(&mut request, name, param(name), lists, fields, |_| true);
    }
    request
}

/// The request of a statement for these keys: `base` has its other parameters, and null in place of the keys.
pub(super) fn statement_for_keys(base: &Request, operation: &Operation, batch: &Batch, keys: &[&Key]) -> Request {
    let position = operation.params.as_ref().and_then(|params| params.get_index_of(&batch.key));
    let params = Doc::parse(base.body.clone(), DEPTH).ok();
    let mut body = vec![b'['];
    for (at, param) in params.iter().flat_map(|params| params.root().elements()).enumerate() {
        if at > 0 {
            body.push(b',');
        }
        match Some(at) == position {
            true => put_list(&mut body, keys.iter().map(|key| (&*key.text, key.quoted))),
            false => body.extend_from_slice(param.raw()),
        }
    }
    // If parsing failed, which cannot happen with parameters written here, the database refuses the statement.
    body.push(b']');
    Request { body: Bytes::from(body), ..base.clone() }
}

fn put(
    request: &mut Request,
    name: &str,
    param: Option<&Param>,
    lists: QueryLists,
    items: &[&str],
    quoted: impl Fn(usize) -> bool,
) {
    let wire = param.map_or(name, |param| param.wire_name(name));
    if param.is_some_and(|param| param.location == ParamLocation::Json) {
        return put_json(request, wire, items, quoted);
    }
    let path = &mut request.path_and_query;
    let mut first = !path.contains('?');
    if items.is_empty() {
        return encode::pair(path, &mut first, wire, "");
    }
    for (at, item) in items.iter().enumerate() {
        match lists {
            QueryLists::Comma if at > 0 => {
                path.push(',');
                encode::component(path, item);
            }
            QueryLists::Comma | QueryLists::Repeat => encode::pair(path, &mut first, wire, item),
        }
    }
}

fn put_json(request: &mut Request, wire: &str, items: &[&str], quoted: impl Fn(usize) -> bool) {
    // The body is the object of the call's other parameters, or empty.
    let mut body = match request.body.strip_suffix(b"}") {
        Some(open) => open.to_vec(),
        None => vec![b'{'],
    };
    if body.len() > 1 {
        body.push(b',');
    }
    write_str(&mut body, wire);
    body.push(b':');
    put_list(&mut body, items.iter().enumerate().map(|(at, item)| (*item, quoted(at))));
    body.push(b'}');
    request.body = Bytes::from(body);
    request.headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static("application/json"));
}

fn put_list<'a>(body: &mut Vec<u8>, items: impl Iterator<Item = (&'a str, bool)>) {
    body.push(b'[');
    for (at, (item, quoted)) in items.enumerate() {
        if at > 0 {
            body.push(b',');
        }
        match quoted {
            true => write_str(body, item),
            false => body.extend_from_slice(item.as_bytes()),
        }
    }
    body.push(b']');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(texts: &[(&str, bool)]) -> Vec<Key> {
        texts.iter().map(|(text, quoted)| Key { text: (*text).into(), quoted: *quoted }).collect()
    }

    #[test]
    fn keys_and_fields_are_placed_by_the_operation() {
        let owned = keys(&[("1", false), ("a b", true)]);
        let keys: Vec<&Key> = owned.iter().collect();
        let batch = Batch { fields: Some("fields".into()), ..Batch::new("ids") };
        let mut operation = Operation::new("/p");
        let path = |operation: &Operation, base: &str, lists| {
            request_for_keys(&Request::get(base), operation, &batch, lists, &keys, Some(&["x", "y"])).path_and_query
        };
        assert_eq!(path(&operation, "/p", QueryLists::Comma), "/p?ids=1,a%20b&fields=x,y");
        assert_eq!(path(&operation, "/p?z=1", QueryLists::Repeat), "/p?z=1&ids=1&ids=a%20b&fields=x&fields=y");
        let mut ids = Param::new(fanin_config::ParamType::List);
        ids.location = ParamLocation::Json;
        ids.name = Some("id_list".into());
        let fields = Param { name: None, ..ids.clone() };
        operation.params = Some([("ids".to_owned(), ids), ("fields".to_owned(), fields)].into_iter().collect());
        for (body, expected) in [
            ("", r#"{"id_list":[1,"a b"],"fields":["x","y"]}"#),
            ("{}", r#"{"id_list":[1,"a b"],"fields":["x","y"]}"#),
            (r#"{"n":1}"#, r#"{"n":1,"id_list":[1,"a b"],"fields":["x","y"]}"#),
        ] {
            let base = Request { body: body.into(), ..Request::get("/p") };
            let made = request_for_keys(&base, &operation, &batch, QueryLists::Comma, &keys, Some(&["x", "y"]));
            assert_eq!((made.path_and_query.as_str(), made.body.as_ref()), ("/p", expected.as_bytes()));
        }
    }

    #[test]
    fn keys_of_a_statement_replace_its_parameter() {
        let owned = keys(&[("1", false), ("a\"b", true)]);
        let keys: Vec<&Key> = owned.iter().collect();
        let mut operation = Operation::new("/p");
        let names = ["city", "ids"].map(|name| (name.to_owned(), Param::new(fanin_config::ParamType::Any)));
        operation.params = Some(names.into_iter().collect());
        for (base, expected) in [
            (r#"["Rome",null]"#, r#"["Rome",[1,"a\"b"]]"#),
            (r#"[{"x":[null,2]},null]"#, r#"[{"x":[null,2]},[1,"a\"b"]]"#),
        ] {
            let base = Request { body: base.into(), ..Request::get("/p") };
            let made = statement_for_keys(&base, &operation, &Batch::new("ids"), &keys);
            assert_eq!((made.path_and_query.as_str(), made.body.as_ref()), ("/p", expected.as_bytes()));
        }
    }
}
