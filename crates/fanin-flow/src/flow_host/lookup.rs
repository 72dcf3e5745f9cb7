//! Lookups in snapshots, and the values of answers that are parts of a document.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use fanin_lang::value::Frozen;
use fanin_lang::value::frozen::FrozenMap;
use fanin_lang::{Failure, FrozenValue, Kind, Value};
use fanin_trace::Sharing;
use fanin_upstream::shared::{Body, ParsedAnswer, RequestKey, SnapshotTable};
use fanin_upstream::{Answer, Request};

use super::FlowHost;
use crate::call::{Arguments, argument_error, text};
use crate::inflight::InFlight;
use crate::kinds::UpstreamObject;

impl FlowHost {
    /// `masks.lookup(key)` and `masks.table()`.
    pub(super) fn look_up(
        &mut self,
        index: usize,
        arguments: &Arguments,
        timeout: Option<Duration>,
    ) -> Result<(), Failure> {
        let object = self.calls[index].object.clone();
        let Some(object) = object.downcast::<UpstreamObject>() else { return Ok(()) };
        let Some(snapshot) = object.upstream.snapshot().cloned() else { return Ok(()) };
        self.record_sharing(index, Sharing::Snapshot);
        let key =
            match arguments.key() {
                Value::None => None,
                key => {
                    let name = object.upstream.name();
                    Some(text(key).ok_or_else(|| {
                        argument_error(format!("the key of {name}.lookup must be a string or a number"))
                    })?)
                }
            };
        let text = key.as_deref().unwrap_or("");
        self.identify(index, || RequestKey::with(&Request::get(""), |bytes| bytes.extend_from_slice(text.as_bytes())));
        if self.playback().is_some() {
            self.play_back(index, timeout.unwrap_or(object.upstream.config().timeout));
            return Ok(());
        }
        let find = |table: &SnapshotTable, key: Option<&str>| {
            let node = match key {
                None => Some(table.rows()),
                Some(key) => table.get(key),
            };
            let body = node.map_or(Body::Absent, |node| Body::Part { doc: table.doc().clone(), at: node.at() });
            let answer = Answer {
                status: http::StatusCode::OK,
                headers: http::HeaderMap::new().into(),
                body: bytes::Bytes::new(),
                elapsed: Duration::ZERO,
                unrequested_part: false,
            };
            ParsedAnswer { answer, body }
        };
        if let Some(table) = snapshot.table() {
            self.settle(index, &find(&table, key.as_deref()));
            return Ok(());
        }
        let deadline = self.call_deadline(index, timeout.unwrap_or(object.upstream.config().timeout));
        let (name, key) = (object.upstream.name().clone(), key.map(|key| key.into_owned()));
        self.push(InFlight::shared(
            index,
            Box::pin(async move {
                let table = snapshot.wait(&name, deadline).await?;
                Ok(Arc::new(find(&table, key.as_deref())))
            }),
        ));
        Ok(())
    }
}

/// The value of a shared answer.
pub(super) fn value(body: Body, upstream: &str) -> Value {
    match body {
        Body::Empty | Body::Text => Value::None,
        Body::Json(doc) => Value::json(doc),
        Body::Part { doc, at } => Value::Json { at, doc },
        Body::List { doc, at } => {
            let items = at.iter().map(|at| FrozenValue::Json { at: *at, doc: doc.clone() });
            Value::Frozen(Arc::new(Frozen::List(items.collect())))
        }
        Body::Entries { doc, at } => {
            let entries = at.iter().map(|(key, value)| {
                let name = doc.node(*key).as_str().unwrap_or_default().as_ref().into();
                (FrozenValue::Str(name), FrozenValue::Json { at: *value, doc: doc.clone() })
            });
            Value::Frozen(Arc::new(Frozen::Dict(FrozenMap::new(entries.collect()))))
        }
        // Items are assembled before they get here.
        Body::Absent | Body::Items(_) => {
            Value::Absent(Rc::new(Failure::new(Kind::Key, format!("{upstream} has no item with this key"))))
        }
    }
}

/// Whether the parts that [`value`] made belong to this document.
pub(super) fn belong_to(parts: &Frozen, doc: &fanin_json::Doc) -> bool {
    let first = match parts {
        Frozen::List(items) => items.first(),
        Frozen::Dict(map) => map.entries().first().map(|(_, value)| value),
        _ => None,
    };
    matches!(first, Some(FrozenValue::Json { doc: of, .. }) if of.same(doc))
}
