//! Splits the answer of a batch by key.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use fanin_config::Batch;
use fanin_json::{Assembler, Doc, Kind, Node};
use fanin_upstream::shared::{Body, Item, ParsedAnswer};
use fanin_upstream::{Answer, CallError};
use smallvec::SmallVec;

use super::requested_keys::{Key, RequestedKeys};

/// The positions of each key's items in an answer.
#[derive(Debug)]
pub(crate) struct Split {
    /// Status and headers, without the body.
    answer: Arc<Answer>,
    doc: Doc,
    rows: Rows,
    /// Items without a readable key. They may belong to any key that has no item.
    unattributed: usize,
}

#[derive(Debug)]
enum Rows {
    /// Positions by the key's text; a key may have several.
    List(HashMap<Box<str>, SmallVec<[u32; 1]>>),
    /// The position of an object of items by key.
    Object(u32),
}

/// An item in an answer: its value, and its key if the answer is an object.
#[derive(Debug, Clone, Copy)]
struct Located<'a> {
    key: Option<Node<'a>>,
    value: Node<'a>,
}

impl Split {
    /// Indexes an answer by key.
    ///
    /// # Errors
    /// If it is not as the operation's `batch` describes it.
    pub(crate) fn read(mut answer: Answer, doc: Doc, batch: &Batch) -> Result<Split, String> {
        let whole = doc.root();
        let items = match &batch.items {
            None => whole,
            Some(name) => whole.get(name).ok_or_else(|| format!("the answer has no {name:?}"))?,
        };
        let mut unattributed = 0;
        let rows = match (&batch.match_field, items.kind()) {
            (None, Kind::Object) => Rows::Object(items.at()),
            (None, _) => return Err("the items are not an object by key".into()),
            (Some(_), kind) if kind != Kind::Array => return Err("the items are not a list".into()),
            (Some(matched), _) => {
                let mut rows: HashMap<Box<str>, SmallVec<[u32; 1]>> =
                    HashMap::with_capacity(items.len().unwrap_or_default());
                for item in items.elements() {
                    match item.get(matched).and_then(text) {
                        Some(key) => rows.entry(key.into()).or_default().push(item.at()),
                        None => unattributed += 1,
                    }
                }
                Rows::List(rows)
            }
        };
        answer.body = bytes::Bytes::new();
        Ok(Split { answer: Arc::new(answer), doc, rows, unattributed })
    }

    /// Status and headers of the answer, without the body.
    pub(crate) fn answer(&self) -> &Arc<Answer> {
        &self.answer
    }

    /// The item of one key.
    ///
    /// # Errors
    /// If it may be among the unattributed items.
    pub(crate) fn item(&self, batch: &Batch, key: &str) -> Result<Item, String> {
        let mut found = Vec::new();
        self.locate(batch, key, &mut found)?;
        let values = found.iter().map(|located| (self.doc.clone(), located.value.at())).collect();
        Ok(Item { answer: self.answer.clone(), values })
    }

    /// The error of a call that this answer cannot serve.
    pub(crate) fn error(&self, upstream: &Arc<str>, problem: String) -> CallError {
        CallError::decode(upstream, &self.answer, problem)
    }

    /// Number of items that belong to none of the requested keys.
    pub(crate) fn strays(&self, requested: &[&Key]) -> usize {
        match &self.rows {
            Rows::List(rows) => {
                let known = |key: &str| requested.iter().any(|requested| *requested.text == *key);
                // Quadratic, but only for the rare answer with more keys than requested.
                let more = if rows.len() > requested.len() { rows.keys().filter(|key| !known(key)).count() } else { 0 };
                self.unattributed + more
            }
            Rows::Object(at) => self.doc.node(*at).len().unwrap_or_default().saturating_sub(requested.len()),
        }
    }

    /// Counts items that belong to none of these keys as unattributed.
    pub(crate) fn count_strays_as_unattributed(&mut self, requested: &[&Key]) {
        let Rows::List(rows) = &self.rows else { return };
        let requested: HashSet<&str> = requested.iter().map(|key| &*key.text).collect();
        self.unattributed += rows.keys().filter(|key| !requested.contains(&***key)).count();
    }

    fn locate<'a>(&'a self, batch: &Batch, key: &str, found: &mut Vec<Located<'a>>) -> Result<(), String> {
        match &self.rows {
            Rows::List(rows) => match rows.get(key) {
                Some(at) if at.len() > 1 && batch.rows == Some(fanin_config::Rows::One) => {
                    return Err(format!("{} rows for the key {key:?}, but the statement has rows = \"one\"", at.len()));
                }
                Some(at) => found.extend(at.iter().map(|at| Located { key: None, value: self.doc.node(*at) })),
                None if self.unattributed > 0 && batch.rows.is_some() => {
                    let column = batch.match_field.as_deref().unwrap_or_default();
                    return Err(format!(
                        "{} rows whose column {column:?} contains none of the requested keys",
                        self.unattributed
                    ));
                }
                None if self.unattributed > 0 => {
                    return Err(format!("{} of the items do not have their key", self.unattributed));
                }
                None => {}
            },
            Rows::Object(at) => {
                let object = self.doc.node(*at);
                if let Some(value) = object.get(key) {
                    // In a document's index, a key is directly before its value.
                    let key = self.doc.node(value.at() - 1);
                    found.push(Located { key: Some(key), value });
                }
            }
        }
        Ok(())
    }
}

/// Assembles a call's answer from the answers that hold its keys, in the order of its keys, with its requested fields.
///
/// # Errors
/// If an item may be among the unattributed ones.
pub(crate) fn gather<'a>(
    requested: &RequestedKeys,
    batch: &Batch,
    splits: impl Fn(&Key) -> Option<&'a Split>,
) -> Result<ParsedAnswer, String> {
    let mut found = Vec::with_capacity(requested.keys.len());
    let mut first: Option<&Split> = None;
    for key in &requested.keys {
        let Some(split) = splits(key) else { continue };
        first = first.or(Some(split));
        split.locate(batch, &key.text, &mut found)?;
    }
    // Calls without keys have been answered before.
    let first = first.ok_or("internal error: no answer for a key")?;
    Ok(ready(requested, batch, &first.answer, &found))
}

/// Assembles a call's answer from items, in the order of its keys, with its requested fields.
pub(crate) fn assemble<'a>(
    requested: &RequestedKeys,
    batch: &Batch,
    items: impl Iterator<Item = &'a Item>,
) -> Option<ParsedAnswer> {
    let mut found = Vec::with_capacity(requested.keys.len());
    let mut first = None;
    for item in items {
        first = first.or(Some(item));
        // In a document's index, a key is directly before its value.
        let located = |(doc, at): &'a (Doc, u32)| Located {
            key: batch.match_field.is_none().then(|| doc.node(at - 1)),
            value: doc.node(*at),
        };
        found.extend(item.values.iter().map(located));
    }
    Some(ready(requested, batch, &first?.answer, &found))
}

fn ready(requested: &RequestedKeys, batch: &Batch, answer: &Answer, found: &[Located<'_>]) -> ParsedAnswer {
    let matched = batch.match_field.as_deref();
    let keep = |key: Node<'_>| key.as_str().is_some_and(|key| matched == Some(&*key) || requested.wants(&key));
    let whole = |located: &Located<'_>| {
        requested.fields.is_none()
            || located.value.kind() != Kind::Object
            || located.value.entries().all(|(key, _)| keep(key))
    };
    let body = match (requested.single, found) {
        (true, []) => Body::Absent,
        (true, [located, ..]) if whole(located) => {
            Body::Part { doc: located.value.doc().clone(), at: located.value.at() }
        }
        (true, [located, ..]) => Body::Json(located.value.pick(keep)),
        (false, [first, rest @ ..])
            if rest.iter().all(|located| located.value.doc().same(first.value.doc())) && found.iter().all(whole) =>
        {
            let doc = first.value.doc().clone();
            match matched {
                Some(_) => Body::List { doc, at: found.iter().map(|located| located.value.at()).collect() },
                None => {
                    let entries = found.iter().filter_map(|located| Some((located.key?.at(), located.value.at())));
                    Body::Entries { doc, at: entries.collect::<Arc<[_]>>() }
                }
            }
        }
        (false, _) => Body::Json(copied(matched.is_some(), found, whole, keep)),
    };
    let mut answer = answer.clone();
    if let Body::Json(doc) = &body {
        answer.body = doc.bytes().clone();
    }
    ParsedAnswer { answer, body }
}

/// A new document with these items and their requested fields. Items with all fields are copied as bytes.
fn copied(
    list: bool,
    found: &[Located<'_>],
    whole: impl Fn(&Located<'_>) -> bool,
    keep: impl Fn(Node<'_>) -> bool,
) -> Doc {
    let size = found.iter().map(|located| located.value.raw().len() + 16).sum();
    if list {
        let mut list = Assembler::list(size);
        for located in found {
            match whole(located) {
                true => list.item(located.value),
                false => list.picked(located.value, &keep),
            }
        }
        return list.finish();
    }
    let mut object = Assembler::object(size);
    for located in found {
        match located.key {
            Some(key) if whole(located) => object.entry(key, located.value),
            Some(key) => object.picked_entry(key, located.value, &keep),
            None => {}
        }
    }
    object.finish()
}

/// The answer of a call without keys, which is not sent: no items.
pub(crate) fn empty_answer(batch: &Batch) -> ParsedAnswer {
    let doc = match batch.match_field {
        Some(_) => Assembler::list(2).finish(),
        None => Assembler::object(2).finish(),
    };
    let mut headers = http::HeaderMap::new();
    headers.insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    let answer = Answer {
        status: http::StatusCode::OK,
        headers: headers.into(),
        body: doc.bytes().clone(),
        elapsed: std::time::Duration::ZERO,
        unrequested_part: false,
    };
    ParsedAnswer { answer, body: Body::Json(doc) }
}

/// A scalar's text.
fn text(node: Node<'_>) -> Option<std::borrow::Cow<'_, str>> {
    node.as_number_text().map(Into::into).or_else(|| node.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(matched: Option<&str>, items: Option<&str>) -> Batch {
        Batch { match_field: matched.map(Into::into), items: items.map(Into::into), ..Batch::new("ids") }
    }

    fn answer() -> Answer {
        let headers = http::HeaderMap::new().into();
        Answer {
            status: http::StatusCode::OK,
            headers,
            body: "x".into(),
            elapsed: std::time::Duration::ZERO,
            unrequested_part: false,
        }
    }

    fn split(text: &'static str, batch: &Batch) -> Result<Split, String> {
        Split::read(answer(), Doc::parse(text.into(), 16).unwrap(), batch)
    }

    fn requested(keys: &[&str], fields: Option<&[&str]>) -> RequestedKeys {
        RequestedKeys {
            keys: keys.iter().map(|key| Key { text: (*key).into(), quoted: true }).collect(),
            single: false,
            fields: fields.map(|fields| fields.iter().map(|field| (*field).into()).collect()),
        }
    }

    fn get(split: &Split, batch: &Batch, requested: &RequestedKeys) -> Result<String, String> {
        let ready = gather(requested, batch, |_| Some(split))?;
        Ok(match ready.detached().body {
            Body::Json(doc) => String::from_utf8(doc.bytes().to_vec()).unwrap(),
            Body::Absent => "absent".to_owned(),
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn items_in_the_order_of_the_call() {
        let list = batch(Some("id"), None);
        let all = split(r#"[{"id": 3, "a": 1}, {"id": "1", "a": 2.50, "b": 3}, {"id": 9}, {"id": 3, "a": 4}]"#, &list)
            .unwrap();
        let is = |keys: &[&str], fields: Option<&[&str]>, text: &str| {
            assert_eq!(get(&all, &list, &requested(keys, fields)).unwrap(), text);
        };
        is(&["1", "3"], None, r#"[{"id": "1", "a": 2.50, "b": 3},{"id": 3, "a": 1},{"id": 3, "a": 4}]"#);
        is(&["1"], Some(&["b"]), r#"[{"id":"1","b":3}]"#);
        is(&["7"], None, "[]");
        is(&["7", "9"], Some(&[]), r#"[{"id": 9}]"#);
        let one =
            |key: &str, fields| get(&all, &list, &RequestedKeys { single: true, ..requested(&[key], fields) }).unwrap();
        assert_eq!((one("9", None).as_str(), one("7", None).as_str()), (r#"{"id": 9}"#, "absent"));
        assert_eq!(one("1", Some(&["a"])), r#"{"id":"1","a":2.50}"#);
        assert_eq!(all.strays(&requested(&["1", "3"], None).keys.iter().collect::<Vec<_>>()), 1);

        let object = batch(None, Some("rows"));
        let all = split(r#"{"rows": {"x": {"a": 1, "b": 2}, "y": 5}, "n": 2}"#, &object).unwrap();
        let is = |keys: &[&str], fields: Option<&[&str]>, text: &str| {
            assert_eq!(get(&all, &object, &requested(keys, fields)).unwrap(), text);
        };
        is(&["y", "x", "z"], None, r#"{"y":5,"x":{"a": 1, "b": 2}}"#);
        is(&["y", "x"], Some(&["b"]), r#"{"y":5,"x":{"b":2}}"#);
        is(&["z"], None, "{}");
    }

    #[test]
    fn parts_of_one_document_are_not_copied() {
        let list = batch(Some("id"), None);
        let all = split(r#"[{"id": 1}, {"id": 2}]"#, &list).unwrap();
        let two = gather(&requested(&["2", "1"], Some(&[])), &list, |_| Some(&all)).unwrap();
        assert!(matches!(&two.body, Body::List { doc, at } if doc.same(&all.doc) && at.len() == 2), "{two:?}");
        let one = gather(&RequestedKeys { single: true, ..requested(&["2"], None) }, &list, |_| Some(&all)).unwrap();
        assert!(matches!(&one.body, Body::Part { doc, .. } if doc.same(&all.doc)), "{one:?}");
        let other = split(r#"[{"id": 3}]"#, &list).unwrap();
        let spread = requested(&["3", "1"], None);
        let spread = gather(&spread, &list, |key| Some(if &*key.text == "3" { &other } else { &all })).unwrap();
        assert!(matches!(&spread.body, Body::Json(doc) if doc.bytes() == r#"[{"id": 3},{"id": 1}]"#), "{spread:?}");
    }

    #[test]
    fn unattributed_items_fail_only_calls_with_a_missing_key() {
        let list = batch(Some("id"), None);
        let all = split(r#"[{"id": 1}, {"ID": 2}, 7, {"id": [3]}]"#, &list).unwrap();
        assert_eq!(get(&all, &list, &requested(&["1"], None)).unwrap(), r#"[{"id": 1}]"#);
        let error = get(&all, &list, &requested(&["1", "2"], None)).unwrap_err();
        assert!(error.contains("3 of the items"), "{error}");
    }

    #[test]
    fn rows_of_a_statement() {
        let mut many = batch(Some("id"), None);
        many.rows = Some(fanin_config::Rows::Many);
        let one = Batch { rows: Some(fanin_config::Rows::One), ..many.clone() };
        let text = r#"[{"id": 1, "a": 1}, {"id": 1, "a": 2}, {"id": 2}]"#;
        let mut all = split(text, &many).unwrap();
        let keys = requested(&["1", "2", "3"], None).keys;
        all.count_strays_as_unattributed(&keys.iter().collect::<Vec<_>>());
        assert_eq!(
            get(&all, &many, &requested(&["3", "1"], None)).unwrap(),
            r#"[{"id": 1, "a": 1},{"id": 1, "a": 2}]"#
        );
        assert_eq!(get(&all, &one, &requested(&["2"], None)).unwrap(), r#"[{"id": 2}]"#);
        assert!(get(&all, &one, &requested(&["2", "1"], None)).unwrap_err().contains("2 rows for the key \"1\""));

        // The database matched "a" with "A" by its collation. So a key without a row is an error, not an absence.
        let mut all = split(r#"[{"id": "a"}, {"id": "b"}]"#, &many).unwrap();
        let keys = requested(&["A", "b"], None).keys;
        all.count_strays_as_unattributed(&keys.iter().collect::<Vec<_>>());
        assert_eq!(get(&all, &many, &requested(&["b"], None)).unwrap(), r#"[{"id": "b"}]"#);
        assert!(
            get(&all, &many, &requested(&["A"], None))
                .unwrap_err()
                .contains("1 rows whose column \"id\" contains none")
        );
    }

    #[test]
    fn answers_of_the_wrong_shape() {
        assert!(split("{}", &batch(Some("id"), None)).unwrap_err().contains("not a list"));
        assert!(split("[]", &batch(None, None)).unwrap_err().contains("not an object"));
        assert!(split("{}", &batch(None, Some("rows"))).unwrap_err().contains("has no \"rows\""));
        assert!(split("3", &batch(Some("id"), Some("rows"))).unwrap_err().contains("has no \"rows\""));
    }
}
