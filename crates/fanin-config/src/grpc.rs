//! Keys of gRPC upstreams: where their services are described, which methods change nothing, how messages become JSON.

use std::path::PathBuf;

use serde::Serialize;

use crate::Upstream;
use crate::backend::UpstreamKind;
use crate::read::At;
use crate::table::Table;
use crate::upstream::{is_identifier, set};
use crate::urls::endpoints;

/// How 64-bit integers of messages stand in answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Int64 {
    /// As strings: the protobuf rules for JSON, made for readers whose numbers are floats.
    #[default]
    String,
    /// As numbers with all their digits.
    Number,
}

/// Names of fields in answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FieldNames {
    /// As the protobuf rules for JSON have it: `userId`.
    #[default]
    Json,
    /// As in the `.proto` file: `user_id`.
    Proto,
}

/// Reads the keys that only gRPC upstreams have.
pub(crate) fn read(table: &mut Table<'_, '_>, upstream: &mut Upstream, kind: UpstreamKind) {
    upstream.grpc = endpoints(table, "grpc", None);
    if upstream.grpc.iter().any(|url| url.path() != "/") {
        table.error("grpc", "gRPC servers have no path before their methods; end the URL with the port");
    }
    read_descriptors(table, upstream, kind);
    let safe = table.list("safe_methods", "a method or a service", false, method_or_service);
    set(&mut upstream.safe_methods, safe.map(values));
    set(&mut upstream.max_messages, table.count("max_messages", 1..=u64::MAX));
    set(&mut upstream.int64, table.choice("int64", &[("string", Int64::String), ("number", Int64::Number)]));
    let names = [("json", FieldNames::Json), ("proto", FieldNames::Proto)];
    set(&mut upstream.field_names, table.choice("field_names", &names));
}

/// `Method`, `package.Service` or `package.Service/Method`.
fn method_or_service(text: &str) -> Result<String, String> {
    let named = |name: &str| name.split('.').all(is_identifier);
    let right = match text.split_once('/') {
        Some((service, method)) => named(service) && is_identifier(method),
        None => named(text),
    };
    match right {
        true => Ok(text.to_owned()),
        false => Err(format!("`{text}` is neither a method nor a service; write \"Get\" or \"shop.Users/Get\"")),
    }
}

fn values<T>(list: Vec<At<T>>) -> Vec<T> {
    list.into_iter().map(|at| at.value).collect()
}

/// Reads `proto`, `proto_path`, `descriptors` and `reflection`: exactly one of the ways must be there.
fn read_descriptors(table: &mut Table<'_, '_>, upstream: &mut Upstream, kind: UpstreamKind) {
    let dir = table.reader().dir().to_owned();
    let existing = |text: &str, is: fn(&PathBuf) -> bool, what: &str| {
        Some(dir.join(text)).filter(is).ok_or_else(|| format!("there is no {what} {text}"))
    };
    let proto = table.list("proto", "a .proto file", true, |text| existing(text, |at| at.is_file(), "file"));
    let folders = table.list("proto_path", "a folder", true, |text| existing(text, |at| at.is_dir(), "folder"));
    upstream.proto = proto.map(values).unwrap_or_default();
    upstream.proto_path = folders.map(values).unwrap_or_default();
    upstream.descriptors = table.path("descriptors");
    upstream.reflection = table.flag("reflection").unwrap_or(false);
    if kind != UpstreamKind::Grpc {
        return;
    }
    if table.is_empty_list("proto") {
        table.error("proto", "is empty; name the file that describes the service");
    }
    let written = ["proto", "descriptors"].into_iter().filter(|key| table.at(key).is_some());
    let given: Vec<&str> = written.chain(upstream.reflection.then_some("reflection")).collect();
    match given.as_slice() {
        [] => table.missing("proto", "proto = \"service.proto\", descriptors = \"set.binpb\" or reflection = true"),
        [_] => {}
        [first, second, ..] => table.error(second, format_args!("stands beside `{first}`; keep one of them")),
    }
    if table.at("proto_path").is_some() && table.at("proto").is_none() {
        table.error("proto_path", "is where `proto` looks for imports; there is no `proto`");
    }
}
