//! Batches: which keys a request asks for, and an answer from items that other answers had.

use bytes::Bytes;
use fanin_config::{Batch, Operation, ParamLocation, QueryLists, Upstream, UpstreamKind};
use fanin_json::{Assembler, Doc, Node};
use fanin_recording::Exchange;

/// How deep JSON may be nested.
const MAX_DEPTH: usize = 128;

/// The keys that a request of a batched operation asks for.
pub(crate) fn keys(
    upstream: &Upstream,
    operation: &Operation,
    batch: &Batch,
    path: &str,
    body: &Bytes,
) -> Option<Vec<String>> {
    let param = operation.params.as_ref().and_then(|params| params.get(&batch.key));
    let name = param.map_or(batch.key.as_str(), |param| param.wire_name(&batch.key));
    match upstream.kind() {
        UpstreamKind::Http => match param.map(|param| param.location) {
            Some(ParamLocation::Json) => of_member(body, name),
            Some(ParamLocation::Header) => None,
            _ => Some(of_query(path, name, upstream.query_lists)),
        },
        UpstreamKind::Grpc => of_member(body, name),
        _ => {
            let position = operation.params.as_ref().and_then(|params| params.get_index_of(&batch.key))?;
            let doc = Doc::parse(body.clone(), MAX_DEPTH).ok()?;
            Some(texts(doc.root().index(position)?))
        }
    }
}

fn of_query(path: &str, name: &str, lists: QueryLists) -> Vec<String> {
    let query = path.split_once('?').map_or("", |(_, query)| query);
    let values = form_urlencoded::parse(query.as_bytes()).filter(|(given, _)| given == name);
    let split = |value: &str| match lists {
        QueryLists::Comma => value.split(',').map(ToOwned::to_owned).collect(),
        QueryLists::Repeat => vec![value.to_owned()],
    };
    values.flat_map(|(_, value)| split(&value)).collect()
}

fn of_member(body: &Bytes, name: &str) -> Option<Vec<String>> {
    let doc = Doc::parse(body.clone(), MAX_DEPTH).ok()?;
    Some(texts(doc.root().get(name)?))
}

fn texts(list: Node<'_>) -> Vec<String> {
    list.elements().filter_map(text).collect()
}

fn text(node: Node<'_>) -> Option<String> {
    node.as_number_text().map(str::to_owned).or_else(|| node.as_str().map(|text| text.into_owned()))
}

/// An item of an answer: its key as the answer has it, if that is an object, and its value.
pub(crate) struct Item {
    doc: Doc,
    key: Option<u32>,
    value: u32,
}

/// The items of a key in an exchange. `None` if it cannot be read.
pub(crate) fn items(exchange: &Exchange, batch: &Batch, key: &str) -> Option<Vec<Item>> {
    let answer = exchange.answer.as_ref().filter(|answer| (200..300).contains(&answer.status))?;
    if exchange.absent {
        return Some(Vec::new());
    }
    let doc = Doc::parse(answer.body.clone(), MAX_DEPTH).ok()?;
    let root = doc.root();
    if exchange.single && !exchange.keys.is_empty() {
        let value = root.at();
        return Some(vec![Item { doc: doc.clone(), key: None, value }]);
    }
    // What is shared is a call's own part: without the member that the whole answer has.
    let rows = match (&batch.items, exchange.keys.is_empty()) {
        (Some(name), true) => root.get(name)?,
        _ => root,
    };
    let mut found = Vec::new();
    match &batch.match_field {
        Some(field) => {
            for row in rows.elements().filter(|row| row.get(field).and_then(text).as_deref() == Some(key)) {
                found.push(Item { doc: doc.clone(), key: None, value: row.at() });
            }
        }
        None => {
            for (name, value) in rows.entries().filter(|(name, _)| name.as_str().as_deref() == Some(key)) {
                found.push(Item { doc: doc.clone(), key: Some(name.at()), value: value.at() });
            }
        }
    }
    Some(found)
}

/// An answer with these items, each with the key that asks for it.
pub(crate) fn assemble(batch: &Batch, items: &[(String, Vec<Item>)]) -> Bytes {
    let whole = match &batch.match_field {
        Some(_) => {
            let mut list = Assembler::list(256);
            items.iter().flat_map(|(_, items)| items).for_each(|item| list.item(item.doc.node(item.value)));
            list.finish()
        }
        None => {
            let mut object = Assembler::object(256);
            for (key, item) in items.iter().flat_map(|(key, items)| items.iter().map(move |item| (key, item))) {
                match item.key {
                    Some(at) => object.entry(item.doc.node(at), item.doc.node(item.value)),
                    None => {
                        let mut text = Vec::new();
                        fanin_json::write_str(&mut text, key);
                        if let Ok(key) = Doc::parse(text.into(), 1) {
                            object.entry(key.root(), item.doc.node(item.value));
                        }
                    }
                }
            }
            object.finish()
        }
    };
    match &batch.items {
        None => whole.bytes().clone(),
        Some(member) => {
            let mut text = vec![b'{'];
            fanin_json::write_str(&mut text, member);
            text.push(b':');
            text.extend_from_slice(whole.bytes());
            text.push(b'}');
            text.into()
        }
    }
}

#[cfg(test)]
mod tests {
    use fanin_recording::Answer;

    use super::*;

    fn exchange(body: &'static str, keys: &[&str]) -> Exchange {
        Exchange {
            answer: Some(Answer { status: 200, headers: Vec::new(), body: body.into() }),
            keys: keys.iter().map(|key| (*key).to_owned()).collect(),
            ..Exchange::default()
        }
    }

    fn assembled(batch: &Batch, from: &[(&Exchange, &str)]) -> String {
        let items: Vec<(String, Vec<Item>)> =
            from.iter().map(|(exchange, key)| ((*key).to_owned(), items(exchange, batch, key).unwrap())).collect();
        String::from_utf8(assemble(batch, &items).to_vec()).unwrap()
    }

    #[test]
    fn a_batch_is_made_of_items_of_others() {
        let list = Batch { match_field: Some("id".into()), items: Some("rows".into()), ..Batch::new("ids") };
        let one = exchange(r#"{"rows": [{"id": 1, "p": 1.50}, {"id": 2}]}"#, &[]);
        let own = exchange(r#"[{"id": "3", "own": true}]"#, &["3"]);
        let single = Exchange { single: true, ..exchange(r#"{"id": 4}"#, &["4"]) };
        let absent = Exchange { absent: true, ..exchange("", &["5"]) };
        assert_eq!(
            assembled(&list, &[(&own, "3"), (&one, "1"), (&single, "4"), (&absent, "5"), (&one, "9")]),
            r#"{"rows":[{"id": "3", "own": true},{"id": 1, "p": 1.50},{"id": 4}]}"#
        );
        let object = Batch { match_field: None, ..Batch::new("ids") };
        let one = exchange(r#"{"a": 1, "b": 2}"#, &[]);
        let single = Exchange { single: true, ..exchange("5", &["c\""]) };
        assert_eq!(assembled(&object, &[(&one, "b"), (&single, "c\"")]), r#"{"b":2,"c\"":5}"#);
    }

    #[test]
    fn keys_are_read_from_queries() {
        assert_eq!(of_query("/x?ids=1,2&y=3", "ids", QueryLists::Comma), ["1", "2"]);
        assert_eq!(of_query("/x?ids=1%2C2&ids=3", "ids", QueryLists::Repeat), ["1,2", "3"]);
        assert_eq!(of_member(&r#"{"ids": [7, "8"]}"#.into(), "ids").unwrap(), ["7", "8"]);
    }
}
