//! What clients send, read as flows read it: for fuzz targets, and for the tests that look for inputs which take too long.

use std::net::Ipv4Addr;
use std::time::Duration;

use bytes::Bytes;
use fanin_json::{Doc, Node};
use fanin_lang::Value;
use fanin_lang::value::Object;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use tokio::time::Instant;

use crate::cookies;
use crate::form;
use crate::incoming_request::IncomingRequest;
use crate::request_object::RequestObject;

const MAX_DEPTH: usize = 64;

fn request(uri: Uri, headers: HeaderMap, body: Bytes) -> RequestObject {
    let start = Instant::now();
    let incoming = IncomingRequest {
        number: 0,
        known_id: None,
        method: Method::POST,
        uri,
        params: Vec::new(),
        headers,
        body,
        upload: None,
        identity: None,
        remote: (Ipv4Addr::LOCALHOST, 1).into(),
        start,
        deadline: start + Duration::from_secs(1),
        trace: None,
        permit: None,
        detail: crate::call_record::Detail::Nothing,
    };
    RequestObject::new(incoming, MAX_DEPTH)
}

/// Reads an attribute of `req`, and all that is in it.
fn read(request: &RequestObject, attribute: &str) -> bool {
    match request.attribute(attribute) {
        Ok(Some(Value::Json { at, doc })) => {
            look(doc.node(at));
            true
        }
        _ => false,
    }
}

/// Each member by its name, each item by its index.
fn look(node: Node<'_>) {
    for (key, value) in node.entries() {
        let key = key.as_str().expect("keys are strings");
        // A key that is written twice stands for its last value.
        assert!(node.get(&key).is_some());
        look(value);
    }
    for (index, item) in node.elements().enumerate() {
        assert!(node.index(index).is_some());
        look(item);
    }
}

/// Bytes as a query. Whether it could be read.
pub fn query(bytes: &[u8]) -> bool {
    let Ok(uri) = Uri::try_from([b"/?", bytes].concat()) else { return false };
    let request = request(uri, HeaderMap::new(), Bytes::new());
    read(&request, "query") & read(&request, "query_all")
}

/// Bytes as header lines, `name: value` each. Whether they could be read.
pub fn headers(bytes: &[u8]) -> bool {
    let mut headers = HeaderMap::new();
    for line in bytes.split(|byte| *byte == b'\n') {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let name = HeaderName::from_bytes(&line[..colon]);
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(line[colon + 1..].trim_ascii())) {
            headers.append(name, value);
        }
    }
    !headers.is_empty() && read(&request(Uri::from_static("/"), headers, Bytes::new()), "headers")
}

/// Bytes as a JSON body. Whether it is an object or a list.
pub fn json_body(bytes: &[u8]) -> bool {
    let body = Bytes::copy_from_slice(bytes);
    // As on the thread for large bodies, and as on the worker.
    let ahead = Doc::parse_for_reading(body.clone(), MAX_DEPTH, || ());
    ahead.is_ok_and(|doc| {
        look(doc.root());
        read(&request(Uri::from_static("/"), HeaderMap::new(), body), "body")
    })
}

/// Reads any bytes as a form: the first line is its content type. Whether it is one.
///
/// # Panics
/// If what was read is not read back from what is sent.
pub fn form(bytes: &[u8]) -> bool {
    let end = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
    let (kind, body) = (String::from_utf8_lossy(&bytes[..end]), &bytes[(end + 1).min(bytes.len())..]);
    let Ok(form) = form::read(&kind, &Bytes::copy_from_slice(body)) else { return false };
    let mut names: Vec<&str> = form.fields.iter().map(|(name, _)| &**name).collect();
    names.sort_unstable();
    names.dedup();
    // A dict has each name once.
    if names.len() == form.fields.len() {
        let fields = Value::record(form.fields.iter().map(|(name, value)| (&**name, Value::str(value))));
        if let Ok((sent, kind)) = form::encode(&fields) {
            let again = form::read(kind.to_str().unwrap_or_default(), &sent).map(|form| form.fields);
            assert_eq!(again, Ok(form.fields));
        }
    }
    true
}

/// Reads any bytes as cookies, a header in each line. Whether there are any.
///
/// # Panics
/// If a name occurs twice, or has a part of the syntax in it.
pub fn cookies(bytes: &[u8]) -> bool {
    let found = cookies::parse(bytes.split(|byte| *byte == b'\n'));
    for (at, (name, _)) in found.iter().enumerate() {
        assert!(!name.is_empty() && !name.contains([';', '=']), "{name:?}");
        assert!(!found[..at].iter().any(|(other, _)| other == name), "{name:?} twice");
    }
    !found.is_empty()
}
