//! `[grpc]`: the services of which routes serve methods, and the route key `grpc`.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Serialize;

use crate::reader::Table;
use crate::schema::types;
use crate::upstream::grpc::{FieldNames, FieldNamesText, Int64, Int64Text, Services};
use crate::values::names::is_identifier;
use crate::values::serialize;
use crate::values::size::{parse_size, saturating_usize};

/// `[grpc]`: where the services are described of which routes serve methods (`grpc` of a route).
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Grpc {
    /// The `.proto` files that describe the services, one or a list. They are compiled when the configuration is loaded.
    #[serde(serialize_with = "serialize::paths", skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "types::OneOrMore<types::Text>")]
    pub proto: Vec<PathBuf>,
    /// Folders in which the files of `proto` and their imports are found. Default: the folders of the files in `proto`.
    #[serde(serialize_with = "serialize::paths", skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "types::OneOrMore<types::Text>")]
    pub proto_path: Vec<PathBuf>,
    /// A file with a compiled `FileDescriptorSet`, imports included. Use it instead of `proto`.
    #[serde(serialize_with = "serialize::optional_path", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub descriptors: Option<PathBuf>,
    /// How `req.body` represents 64-bit integers: `"string"`, as in the JSON mapping of protobuf, or `"number"`.
    #[schemars(with = "Int64Text")]
    pub int64: Int64,
    /// Field names in `req.body`: `"json"` (`userId`) or `"proto"` (`user_id`, as in the `.proto` file). What a flow returns may use
    /// both.
    #[schemars(with = "FieldNamesText")]
    pub field_names: FieldNames,
    /// Describes the methods of the routes to everybody who asks, by server reflection. Tools such as grpcurl then need no `.proto` file.
    #[schemars(with = "types::Flag")]
    pub reflection: bool,
    /// Messages of responses from this size on are compressed with gzip, if the client understands it. `"off"` compresses none.
    #[serde(serialize_with = "serialize::size_or_off")]
    #[schemars(with = "types::Or<types::Size<0>, types::Off>")]
    pub compress_from: Option<usize>,
}

impl Default for Grpc {
    fn default() -> Grpc {
        Grpc {
            proto: Vec::new(),
            proto_path: Vec::new(),
            descriptors: None,
            int64: Int64::default(),
            field_names: FieldNames::default(),
            reflection: false,
            compress_from: Some(16 << 10),
        }
    }
}

impl Grpc {
    pub(crate) fn read(mut table: Table<'_, '_>) -> Grpc {
        let Services { proto, proto_path, descriptors, .. } = Services::read_files(&mut table);
        let int64 = Int64::read(&mut table).unwrap_or_default();
        let field_names = FieldNames::read(&mut table).unwrap_or_default();
        let reflection = table.boolean("reflection").unwrap_or(false);
        let compress_from = read_compress_from(&mut table).unwrap_or(Grpc::default().compress_from);
        table.finish();
        Grpc { proto, proto_path, descriptors, int64, field_names, reflection, compress_from }
    }
}

/// Reads `compress_from`: a size or `"off"`.
fn read_compress_from(table: &mut Table<'_, '_>) -> Option<Option<usize>> {
    if table.is_integer("compress_from") {
        return table.size("compress_from", 0).map(Some);
    }
    let read = table.parsed("compress_from", "a size such as \"16KiB\", or \"off\"", |text| match text {
        "off" => Ok(None),
        size => parse_size(size).map(saturating_usize).map(Some),
    })?;
    Some(read.value)
}

/// Reads a method's full name: `package.Service/Method`.
pub(crate) fn full_method(text: &str) -> Result<String, String> {
    let is_full = text
        .split_once('/')
        .is_some_and(|(service, method)| service.split('.').all(is_identifier) && is_identifier(method));
    match is_full {
        true => Ok(text.to_owned()),
        false => Err(format!("`{text}` is no method; write \"package.Service/Method\"")),
    }
}
