//! gRPC Server Reflection: a server describes its services, by `v1` or the older `v1alpha`, which differ only in name.
//!
//! A request names the service and gets its file. Further requests get the imports that are missing. The descriptors
//! are kept for the process. They are fetched again when they are old, or when a call does not fit them,
//! because servers change.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex as Lock, PoisonError};
use std::time::Duration;

use bytes::{BufMut, Bytes};
use http::uri::PathAndQuery;
use prost::Message;
use prost_reflect::DescriptorPool;
use prost_reflect::prost_types::FileDescriptorProto;
use rustc_hash::FxHashMap;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::method::Methods;
use super::status::{Code, Status};
use crate::error::{ErrorKind, Failure};

/// Age at which descriptors are fetched again.
pub(crate) const MAX_AGE: Duration = Duration::from_secs(300);
/// Age at which they are fetched again if a call does not fit them.
pub(crate) const MAX_AGE_ON_MISMATCH: Duration = Duration::from_secs(1);
/// Services that are kept. Their names may come from requests.
const MAX_SERVICES: usize = 1000;
/// Most files of one service.
pub(crate) const MAX_FILES: usize = 2000;
/// Most rounds of requests for missing imports.
const MAX_ROUNDS: usize = 20;

const V1: PathAndQuery = PathAndQuery::from_static("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo");
const V1_ALPHA: PathAndQuery =
    PathAndQuery::from_static("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo");

/// `ServerReflectionRequest`.
#[derive(Clone, PartialEq, Message)]
struct ReflectionRequest {
    #[prost(oneof = "RequestedFile", tags = "3, 4")]
    wanted: Option<RequestedFile>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum RequestedFile {
    #[prost(string, tag = "3")]
    FileByFilename(String),
    #[prost(string, tag = "4")]
    FileContainingSymbol(String),
}

/// `ServerReflectionResponse`.
#[derive(Clone, PartialEq, Message)]
struct ReflectionResponse {
    #[prost(oneof = "ResponseKind", tags = "4, 7")]
    kind: Option<ResponseKind>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum ResponseKind {
    #[prost(message, tag = "4")]
    Files(Files),
    #[prost(message, tag = "7")]
    Error(ErrorResponse),
}

#[derive(Clone, PartialEq, Message)]
struct Files {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    files: Vec<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
struct ErrorResponse {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
}

/// The server's answer to one round of requests.
pub(crate) struct RoundAnswer {
    pub status: Status,
    pub messages: Vec<Bytes>,
}

struct FetchedMethods {
    methods: Arc<Methods>,
    since: Instant,
}

/// The services that servers have described.
#[derive(Default)]
pub(crate) struct Reflection {
    known: Lock<FxHashMap<String, FetchedMethods>>,
    /// One call fetches, the others wait for its result. If it is dropped, the next one fetches.
    fetching: Mutex<()>,
    /// The server supports only `v1alpha`.
    v1alpha_only: AtomicBool,
}

impl std::fmt::Debug for Reflection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("by reflection")
    }
}

impl Reflection {
    fn get(&self, service: &str, max_age: Duration) -> Option<Arc<Methods>> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let found = known.get(service)?;
        (found.since.elapsed() < max_age).then(|| found.methods.clone())
    }

    /// The methods of a service, fetched at most `max_age` ago. `ask` sends a body to a path.
    pub async fn methods(
        &self,
        service: &str,
        max_age: Duration,
        safe: &[String],
        ask: &impl AsyncFn(PathAndQuery, Bytes) -> Result<RoundAnswer, Failure>,
    ) -> Result<Arc<Methods>, Failure> {
        if let Some(methods) = self.get(service, max_age) {
            return Ok(methods);
        }
        let _fetching = self.fetching.lock().await;
        if let Some(methods) = self.get(service, max_age) {
            return Ok(methods);
        }
        let pool = match self.fetch(service, ask).await {
            Ok(pool) => pool,
            // Old descriptors are better than none.
            Err(failure) => return self.get(service, Duration::MAX).ok_or(failure),
        };
        let found = pool.services().filter(|found| found.full_name() == service);
        let methods = Arc::new(Methods::new(found, safe));
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_SERVICES {
            known.clear();
        }
        known.insert(service.to_owned(), FetchedMethods { methods: methods.clone(), since: Instant::now() });
        Ok(methods)
    }

    async fn fetch(
        &self,
        service: &str,
        ask: &impl AsyncFn(PathAndQuery, Bytes) -> Result<RoundAnswer, Failure>,
    ) -> Result<DescriptorPool, Failure> {
        let mut files: FxHashMap<String, FileDescriptorProto> = FxHashMap::default();
        let mut wanted = vec![RequestedFile::FileContainingSymbol(service.to_owned())];
        for _ in 0..MAX_ROUNDS {
            let body = request_body(std::mem::take(&mut wanted));
            for message in self.round(body, ask).await? {
                let reply = ReflectionResponse::decode(message).map_err(|error| invalid(error.to_string()))?;
                match reply.kind {
                    Some(ResponseKind::Files(response)) => {
                        for file in response.files {
                            let file = FileDescriptorProto::decode(file).map_err(|error| invalid(error.to_string()))?;
                            files.insert(file.name().to_owned(), file);
                        }
                    }
                    Some(ResponseKind::Error(error)) => {
                        let ErrorResponse { code, message } = error;
                        let detail = format!("the server does not describe {service}: {message} (code {code})");
                        return Err(Failure::ours(detail));
                    }
                    None => return Err(invalid("an empty answer")),
                }
            }
            if files.len() > MAX_FILES {
                return Err(invalid(format!("more than {MAX_FILES} files")));
            }
            let mut missing: Vec<&String> =
                files.values().flat_map(|file| &file.dependency).filter(|name| !files.contains_key(*name)).collect();
            missing.sort_unstable();
            missing.dedup();
            if missing.is_empty() {
                let mut pool = DescriptorPool::new();
                pool.add_file_descriptor_protos(files.into_values()).map_err(|error| invalid(error.to_string()))?;
                return Ok(pool);
            }
            wanted = missing.into_iter().cloned().map(RequestedFile::FileByFilename).collect();
        }
        Err(invalid("too many levels of imports"))
    }

    async fn round(
        &self,
        body: Bytes,
        ask: &impl AsyncFn(PathAndQuery, Bytes) -> Result<RoundAnswer, Failure>,
    ) -> Result<Vec<Bytes>, Failure> {
        let v1alpha_only = self.v1alpha_only.load(Relaxed);
        for (path, is_v1alpha) in [(V1, false), (V1_ALPHA, true)] {
            if v1alpha_only && !is_v1alpha {
                continue;
            }
            let RoundAnswer { status, messages } = ask(path, body.clone()).await?;
            match status.code {
                Code::OK => {
                    self.v1alpha_only.store(is_v1alpha, Relaxed);
                    return Ok(messages);
                }
                Code::UNIMPLEMENTED => {}
                code => {
                    let detail = format!("server reflection: {}: {}", code.name(), status.message);
                    return Err(Failure::new(ErrorKind::Protocol, detail));
                }
            }
        }
        // The server may support `v1` by now.
        self.v1alpha_only.store(false, Relaxed);
        Err(Failure::new(ErrorKind::Protocol, "the server has no server reflection (neither v1 nor v1alpha)"))
    }
}

fn request_body(wanted: Vec<RequestedFile>) -> Bytes {
    let mut body = Vec::new();
    for wanted in wanted {
        let request = ReflectionRequest { wanted: Some(wanted) };
        body.put_u8(0);
        // A name is short.
        body.put_u32(request.encoded_len() as u32);
        body.put_slice(&request.encode_to_vec());
    }
    body.into()
}

#[cold]
fn invalid(what: impl std::fmt::Display) -> Failure {
    Failure::new(ErrorKind::Decode, format!("server reflection: {what}"))
}
