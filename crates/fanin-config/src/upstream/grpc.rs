//! Keys that only gRPC upstreams have: service descriptions, safe methods, the mapping of messages to JSON.

use std::path::PathBuf;

use schemars::json_schema;
use serde::Serialize;
use url::Url;

use crate::reader::{Located, Table};
use crate::schema::types::{leaf, variable};
use crate::upstream::http::read_endpoints;
use crate::values::names::is_identifier;

/// How answers represent 64-bit integers of messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Int64 {
    /// As strings, as in the JSON mapping of protobuf. It suits readers whose numbers are floats.
    #[default]
    String,
    /// As numbers with all their digits.
    Number,
}

impl Int64 {
    pub(crate) fn read(table: &mut Table<'_, '_>) -> Option<Int64> {
        table.choice("int64", &[("string", Int64::String), ("number", Int64::Number)])
    }
}

leaf!(
    /// `"string"` or `"number"`.
    Int64Text,
    json_schema!({ "anyOf": [{ "enum": ["string", "number"] }, variable()] })
);

/// The names of fields in answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FieldNames {
    /// As in the JSON mapping of protobuf: `userId`.
    #[default]
    Json,
    /// As in the `.proto` file: `user_id`.
    Proto,
}

impl FieldNames {
    pub(crate) fn read(table: &mut Table<'_, '_>) -> Option<FieldNames> {
        table.choice("field_names", &[("json", FieldNames::Json), ("proto", FieldNames::Proto)])
    }
}

leaf!(
    /// `"json"` or `"proto"`.
    FieldNamesText,
    json_schema!({ "anyOf": [{ "enum": ["json", "proto"] }, variable()] })
);

/// Whether messages are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum GrpcCompression {
    /// They are not.
    #[default]
    Off,
    /// Messages of requests are, and those of answers may be.
    Gzip,
}

impl GrpcCompression {
    pub(crate) fn read(table: &mut Table<'_, '_>) -> Option<GrpcCompression> {
        table.choice("compression", &[("off", GrpcCompression::Off), ("gzip", GrpcCompression::Gzip)])
    }
}

leaf!(
    /// `"off"` or `"gzip"`.
    GrpcCompressionText,
    json_schema!({ "anyOf": [{ "enum": ["off", "gzip"] }, variable()] })
);

/// Reads `grpc`, the URLs of the servers.
pub(super) fn read_urls(table: &mut Table<'_, '_>) -> Vec<Url> {
    let urls = read_endpoints(table, "grpc", None);
    if urls.iter().any(|url| url.path() != "/") {
        table.error("grpc", "the URL of a gRPC server has no path; end it with the port");
    }
    urls
}

/// Reads `safe_methods`.
pub(super) fn read_safe_methods(table: &mut Table<'_, '_>) -> Option<Vec<String>> {
    table.list("safe_methods", "a method or a service", false, method_or_service).map(values)
}

/// Parses `Method`, `package.Service` or `package.Service/Method`.
fn method_or_service(text: &str) -> Result<String, String> {
    let is_path = |name: &str| name.split('.').all(is_identifier);
    let valid = match text.split_once('/') {
        Some((service, method)) => is_path(service) && is_identifier(method),
        None => is_path(text),
    };
    match valid {
        true => Ok(text.to_owned()),
        false => Err(format!("`{text}` is neither a method nor a service; write \"Get\" or \"shop.Users/Get\"")),
    }
}

fn values<T>(list: Vec<Located<T>>) -> Vec<T> {
    list.into_iter().map(|item| item.value).collect()
}

/// Where the services are described: `proto` with `proto_path`, `descriptors`, or `reflection`.
pub(crate) struct Services {
    pub proto: Vec<PathBuf>,
    pub proto_path: Vec<PathBuf>,
    pub descriptors: Option<PathBuf>,
    pub reflection: bool,
}

impl Services {
    /// Reads the keys. A gRPC upstream must have exactly one of the descriptions.
    pub fn read(table: &mut Table<'_, '_>, is_grpc: bool) -> Services {
        let services = Services::read_keys(table, true);
        if is_grpc {
            let hint = "write proto = \"service.proto\", descriptors = \"set.binpb\" or reflection = true";
            services.check(table, hint);
        }
        services
    }

    fn read_keys(table: &mut Table<'_, '_>, has_reflection: bool) -> Services {
        let dir = table.reader().dir().to_owned();
        let existing = |text: &str, exists: fn(&PathBuf) -> bool, what: &str| {
            Some(dir.join(text)).filter(exists).ok_or_else(|| format!("there is no {what} {text}"))
        };
        let proto = table.list("proto", "a .proto file", true, |text| existing(text, |path| path.is_file(), "file"));
        let folders = table.list("proto_path", "a folder", true, |text| existing(text, |path| path.is_dir(), "folder"));
        Services {
            proto: proto.map(values).unwrap_or_default(),
            proto_path: folders.map(values).unwrap_or_default(),
            descriptors: table.file("descriptors"),
            reflection: has_reflection && table.boolean("reflection").unwrap_or(false),
        }
    }

    /// The same for services that are served: they are described by files.
    pub fn read_files(table: &mut Table<'_, '_>) -> Services {
        let services = Services::read_keys(table, false);
        services.check(table, "write proto = \"service.proto\" or descriptors = \"set.binpb\"");
        services
    }

    fn check(&self, table: &Table<'_, '_>, hint: &str) {
        if table.is_empty_list("proto") {
            table.error("proto", "must not be empty; name the file that describes the service");
        }
        let files = ["proto", "descriptors"].into_iter().filter(|key| table.has(key));
        let given: Vec<&str> = files.chain(self.reflection.then_some("reflection")).collect();
        match given.as_slice() {
            [] => table.missing("proto", hint),
            [_] => {}
            [first, second, ..] => {
                table.error(second, format_args!("cannot be combined with `{first}`; remove one of them"));
            }
        }
        if table.has("proto_path") && !table.has("proto") {
            table.error("proto_path", "is used only with `proto`, which is missing; add `proto` or remove this key");
        }
    }
}
