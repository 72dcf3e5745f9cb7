//! What reflection answers: names of services, and the files that describe a symbol.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use prost::Message;
use prost_types::{DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet};

use crate::DESCRIPTORS;
use crate::reflection::server_reflection_request::MessageRequest;
use crate::reflection::server_reflection_response::MessageResponse;
use crate::reflection::{
    ErrorResponse, ExtensionNumberResponse, FileDescriptorResponse, ListServiceResponse, ServerReflectionRequest,
    ServerReflectionResponse, ServiceResponse,
};

const NOT_FOUND: i32 = 5;
const INVALID_ARGUMENT: i32 = 3;

/// The files that describe some services, by what they contain.
#[derive(Debug, Default)]
pub struct Reflector {
    services: Vec<String>,
    files: HashMap<String, Described>,
    /// The file of each symbol.
    symbols: HashMap<String, String>,
    /// The file of each extension, by the extended message and the number.
    extensions: HashMap<String, BTreeMap<i32, String>>,
}

#[derive(Debug)]
struct Described {
    bytes: Bytes,
    imports: Vec<String>,
}

impl Reflector {
    /// Describes these services and nothing that they do not need. `files` are sets of descriptions that have them, imports included.
    /// A description that two sets have is taken from the first.
    ///
    /// # Errors
    /// A set is none.
    pub fn new(services: &[&str], files: &[&[u8]]) -> Result<Reflector, prost::DecodeError> {
        let mut all: HashMap<String, FileDescriptorProto> = HashMap::new();
        for set in files.iter().copied().chain([DESCRIPTORS]) {
            for file in FileDescriptorSet::decode(set)?.file {
                all.entry(file.name().to_owned()).or_insert(file);
            }
        }
        let has = |file: &FileDescriptorProto, name: &str| {
            file.service.iter().any(|service| full(file.package(), service.name()) == name)
        };
        let found = |name: &&str| all.values().find(|file| has(file, name)).map(|file| file.name().to_owned());
        let mut wanted: Vec<String> = services.iter().filter_map(found).collect();
        let mut reflector =
            Reflector { services: services.iter().map(|name| (*name).to_owned()).collect(), ..Reflector::default() };
        reflector.services.sort_unstable();
        reflector.services.dedup();
        while let Some(name) = wanted.pop() {
            let Some(file) = all.get(&name).filter(|_| !reflector.files.contains_key(&name)) else { continue };
            wanted.extend(file.dependency.iter().cloned());
            reflector.add(file);
        }
        Ok(reflector)
    }

    fn add(&mut self, file: &FileDescriptorProto) {
        let package = file.package();
        for message in &file.message_type {
            self.add_message(file.name(), package, message);
        }
        for one in &file.enum_type {
            self.add_enum(file.name(), package, one);
        }
        for service in &file.service {
            let name = full(package, service.name());
            for method in &service.method {
                self.add_symbol(file.name(), full(&name, method.name()));
            }
            self.add_symbol(file.name(), name);
        }
        for extension in &file.extension {
            self.add_extension(file.name(), package, extension);
        }
        let described = Described { bytes: file.encode_to_vec().into(), imports: file.dependency.clone() };
        self.files.insert(file.name().to_owned(), described);
    }

    fn add_symbol(&mut self, file: &str, name: String) {
        self.symbols.insert(name, file.to_owned());
    }

    fn add_message(&mut self, file: &str, scope: &str, message: &DescriptorProto) {
        let name = full(scope, message.name());
        for field in &message.field {
            self.add_symbol(file, full(&name, field.name()));
        }
        for nested in &message.nested_type {
            self.add_message(file, &name, nested);
        }
        for one in &message.enum_type {
            self.add_enum(file, &name, one);
        }
        for extension in &message.extension {
            self.add_extension(file, &name, extension);
        }
        self.add_symbol(file, name);
    }

    fn add_enum(&mut self, file: &str, scope: &str, one: &EnumDescriptorProto) {
        // The values of an enum stand beside it.
        for value in &one.value {
            self.add_symbol(file, full(scope, value.name()));
        }
        self.add_symbol(file, full(scope, one.name()));
    }

    fn add_extension(&mut self, file: &str, scope: &str, extension: &FieldDescriptorProto) {
        let extended = extension.extendee().trim_start_matches('.').to_owned();
        self.extensions.entry(extended).or_default().insert(extension.number(), file.to_owned());
        self.add_symbol(file, full(scope, extension.name()));
    }

    /// The answer to one message of a client.
    ///
    /// # Errors
    /// It is no request of reflection.
    pub fn answer(&self, message: Bytes) -> Result<Vec<u8>, prost::DecodeError> {
        let request = ServerReflectionRequest::decode(message)?;
        let error = |error_code, error_message: String| {
            MessageResponse::ErrorResponse(ErrorResponse { error_code, error_message })
        };
        let none = |what: &str| error(NOT_FOUND, format!("nothing here has {what}"));
        let files = |file: Option<&String>, what: &str| file.map_or_else(|| none(what), |file| self.with_imports(file));
        let answer = match &request.message_request {
            Some(MessageRequest::ListServices(_)) => MessageResponse::ListServicesResponse(ListServiceResponse {
                service: self.services.iter().map(|name| ServiceResponse { name: name.clone() }).collect(),
            }),
            Some(MessageRequest::FileByFilename(name)) => {
                files(self.files.get_key_value(name).map(|(name, _)| name), &format!("the file {name}"))
            }
            Some(MessageRequest::FileContainingSymbol(name)) => {
                files(self.symbols.get(name.trim_start_matches('.')), &format!("the symbol {name}"))
            }
            Some(MessageRequest::FileContainingExtension(wanted)) => {
                let numbers = self.extensions.get(&wanted.containing_type);
                let file = numbers.and_then(|numbers| numbers.get(&wanted.extension_number));
                files(file, &format!("the extension {} of {}", wanted.extension_number, wanted.containing_type))
            }
            Some(MessageRequest::AllExtensionNumbersOfType(name)) => match self.extensions.get(name) {
                Some(numbers) => MessageResponse::AllExtensionNumbersResponse(ExtensionNumberResponse {
                    base_type_name: name.clone(),
                    extension_number: numbers.keys().copied().collect(),
                }),
                None if self.symbols.contains_key(name) => {
                    MessageResponse::AllExtensionNumbersResponse(ExtensionNumberResponse {
                        base_type_name: name.clone(),
                        extension_number: Vec::new(),
                    })
                }
                None => none(&format!("the message {name}")),
            },
            None => error(INVALID_ARGUMENT, "the request asks for nothing".to_owned()),
        };
        let response = ServerReflectionResponse {
            valid_host: request.host.clone(),
            original_request: Some(request),
            message_response: Some(answer),
        };
        Ok(response.encode_to_vec())
    }

    /// A file and all that it imports.
    fn with_imports(&self, name: &str) -> MessageResponse {
        let mut names = vec![name];
        let mut at = 0;
        while let Some(file) = names.get(at).and_then(|name| self.files.get(*name)) {
            for import in &file.imports {
                if self.files.contains_key(import) && !names.contains(&import.as_str()) {
                    names.push(import);
                }
            }
            at += 1;
        }
        let files = names.iter().filter_map(|name| self.files.get(*name));
        let file_descriptor_proto = files.map(|file| file.bytes.clone()).collect();
        MessageResponse::FileDescriptorResponse(FileDescriptorResponse { file_descriptor_proto })
    }
}

fn full(scope: &str, name: &str) -> String {
    if scope.is_empty() { name.to_owned() } else { format!("{scope}.{name}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HEALTH, REFLECTION};

    fn ask(reflector: &Reflector, request: MessageRequest) -> MessageResponse {
        let request = ServerReflectionRequest { host: "h".to_owned(), message_request: Some(request) };
        let answer = reflector.answer(request.encode_to_vec().into()).expect("a request");
        let answer = ServerReflectionResponse::decode(&answer[..]).expect("an answer");
        assert_eq!((answer.valid_host.as_str(), answer.original_request), ("h", Some(request)));
        answer.message_response.expect("something")
    }

    fn names(answer: MessageResponse) -> Vec<String> {
        let MessageResponse::FileDescriptorResponse(files) = answer else { panic!("{answer:?}") };
        let name = |file: &Bytes| FileDescriptorProto::decode(file.clone()).expect("a file").name().to_owned();
        files.file_descriptor_proto.iter().map(name).collect()
    }

    #[test]
    fn files_are_found_by_what_they_contain() {
        let reflector = Reflector::new(&[REFLECTION[0], HEALTH], &[]).expect("descriptions");
        let MessageResponse::ListServicesResponse(list) = ask(&reflector, MessageRequest::ListServices("*".into()))
        else {
            panic!("no list")
        };
        assert_eq!(list.service.iter().map(|one| &*one.name).collect::<Vec<_>>(), [HEALTH, REFLECTION[0]]);
        for symbol in [HEALTH, "grpc.health.v1.Health.Check", "grpc.health.v1.HealthCheckResponse.ServingStatus"] {
            assert_eq!(
                names(ask(&reflector, MessageRequest::FileContainingSymbol(symbol.into()))),
                ["grpc/health/v1/health.proto"]
            );
        }
        assert_eq!(
            names(ask(&reflector, MessageRequest::FileByFilename("grpc/reflection/v1/reflection.proto".into()))),
            ["grpc/reflection/v1/reflection.proto"]
        );
        // What no service needs is not told.
        for absent in ["grpc/reflection/v1alpha/reflection.proto", "x.proto"] {
            let MessageResponse::ErrorResponse(error) = ask(&reflector, MessageRequest::FileByFilename(absent.into()))
            else {
                panic!("{absent} is described")
            };
            assert_eq!(error.error_code, NOT_FOUND);
        }
        assert!(reflector.answer(Bytes::from_static(b"\xff")).is_err());
    }
}
