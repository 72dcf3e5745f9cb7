//! The suite's messages, by their descriptors.

use std::path::{Path, PathBuf};

use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor, Value};

const PACKAGE: &str = "connectrpc.conformance.v1";

/// The descriptors of the suite.
pub struct Messages {
    pool: DescriptorPool,
    pub files: [PathBuf; 2],
    pub folder: PathBuf,
}

impl Messages {
    pub fn load(folder: &Path) -> Messages {
        let files =
            ["client_compat", "service"].map(|name| folder.join(format!("connectrpc/conformance/v1/{name}.proto")));
        let pool = protox::compile(&files, [folder]).expect("the suite's files are valid");
        Messages {
            pool: DescriptorPool::from_file_descriptor_set(pool).expect("complete"),
            files,
            folder: folder.to_owned(),
        }
    }

    fn of(&self, name: &str) -> MessageDescriptor {
        let name = if name.contains('.') { name.to_owned() } else { format!("{PACKAGE}.{name}") };
        self.pool.get_message_by_name(&name).unwrap_or_else(|| panic!("no message {name}"))
    }

    pub fn empty(&self, name: &str) -> DynamicMessage {
        DynamicMessage::new(self.of(name))
    }

    pub fn decode(&self, name: &str, bytes: &[u8]) -> DynamicMessage {
        DynamicMessage::decode(self.of(name), bytes).expect("a valid message")
    }

    pub fn read_json(&self, name: &str, json: &[u8]) -> DynamicMessage {
        let mut from = serde_json::Deserializer::from_slice(json);
        DynamicMessage::deserialize(self.of(name), &mut from).expect("JSON of the message")
    }

    /// The message in a `google.protobuf.Any`, as JSON.
    pub fn any_as_json(&self, any: &DynamicMessage) -> String {
        let (url, value) = (string(any, "type_url"), get(any, "value"));
        let message = self.decode(url.rsplit('/').next().unwrap_or_default(), value.as_bytes().expect("bytes"));
        serde_json::to_string(&message).expect("JSON")
    }

    /// The name of a method's answer.
    pub fn output(&self, service: &str, method: &str) -> String {
        let service = self.pool.get_service_by_name(service).unwrap_or_else(|| panic!("no service {service}"));
        let method = service.methods().find(|found| found.name() == method).expect("a method of the suite");
        method.output().full_name().to_owned()
    }

    /// The number of a status code.
    pub fn code(&self, name: &str) -> i32 {
        let codes = self.pool.get_enum_by_name(&format!("{PACKAGE}.Code")).expect("an enum of the suite");
        let name = if name == "CANCELLED" { "CANCELED" } else { name };
        codes.get_value_by_name(&format!("CODE_{name}")).unwrap_or_else(|| panic!("no code {name}")).number()
    }
}

pub fn get<'m>(message: &'m DynamicMessage, field: &str) -> std::borrow::Cow<'m, Value> {
    message.get_field_by_name(field).unwrap_or_else(|| panic!("no field {field}"))
}

pub fn has(message: &DynamicMessage, field: &str) -> bool {
    message.has_field_by_name(field)
}

pub fn string(message: &DynamicMessage, field: &str) -> String {
    get(message, field).as_str().expect("a string").to_owned()
}

pub fn number(message: &DynamicMessage, field: &str) -> u32 {
    match &*get(message, field) {
        Value::U32(number) => *number,
        Value::EnumNumber(number) => u32::try_from(*number).expect("not negative"),
        other => panic!("{field} is {other:?}"),
    }
}

pub fn list(message: &DynamicMessage, field: &str) -> Vec<DynamicMessage> {
    let value = get(message, field);
    value.as_list().expect("a list").iter().map(|one| one.as_message().expect("a message").clone()).collect()
}

pub fn message(of: &DynamicMessage, field: &str) -> DynamicMessage {
    get(of, field).as_message().expect("a message").clone()
}

pub fn set(message: &mut DynamicMessage, field: &str, value: Value) {
    message.try_set_field_by_name(field, value).unwrap_or_else(|error| panic!("{field}: {error}"));
}
