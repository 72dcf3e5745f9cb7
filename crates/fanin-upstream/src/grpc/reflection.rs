//! gRPC Server Reflection: a server describes its services, by `v1` or the older `v1alpha`, which differ only in name.
//!
//! The server is asked for the file that contains a service, then for imports that are missing, until none is. The
//! descriptors are kept for the process. They are fetched again when they are old, or when a call does not fit them,
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
pub(crate) const OLD: Duration = Duration::from_secs(300);
/// Age at which they are fetched again if a call does not fit them.
pub(crate) const DOUBTFUL: Duration = Duration::from_secs(1);
/// Services that are kept. Their names may come from requests.
const MOST_SERVICES: usize = 1000;
/// Most files of one service.
pub(crate) const MOST_FILES: usize = 2000;
/// Most rounds of requests for missing imports.
const MOST_ROUNDS: usize = 20;

const V1: PathAndQuery = PathAndQuery::from_static("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo");
const V1_ALPHA: PathAndQuery =
    PathAndQuery::from_static("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo");

/// `ServerReflectionRequest`.
#[derive(Clone, PartialEq, Message)]
struct Question {
    #[prost(oneof = "Wanted", tags = "3, 4")]
    wanted: Option<Wanted>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Wanted {
    #[prost(string, tag = "3")]
    FileByFilename(String),
    #[prost(string, tag = "4")]
    FileContainingSymbol(String),
}

/// `ServerReflectionResponse`.
#[derive(Clone, PartialEq, Message)]
struct Reply {
    #[prost(oneof = "Said", tags = "4, 7")]
    said: Option<Said>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Said {
    #[prost(message, tag = "4")]
    Files(Files),
    #[prost(message, tag = "7")]
    Error(Trouble),
}

#[derive(Clone, PartialEq, Message)]
struct Files {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    files: Vec<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
struct Trouble {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
}

/// The server's answer to one round of requests.
pub(crate) struct Round {
    pub status: Status,
    pub messages: Vec<Bytes>,
}

struct Known {
    methods: Arc<Methods>,
    since: Instant,
}

/// The services that servers have described.
#[derive(Default)]
pub(crate) struct Reflected {
    known: Lock<FxHashMap<String, Known>>,
    /// One call fetches, the others wait for its result. If it is dropped, the next one fetches.
    asking: Mutex<()>,
    /// The server supports only `v1alpha`.
    older: AtomicBool,
}

impl std::fmt::Debug for Reflected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("by reflection")
    }
}

impl Reflected {
    fn get(&self, service: &str, oldest: Duration) -> Option<Arc<Methods>> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let found = known.get(service)?;
        (found.since.elapsed() < oldest).then(|| found.methods.clone())
    }

    /// The methods of a service, fetched at most `oldest` ago. `ask` sends a body to a path.
    pub async fn methods(
        &self,
        service: &str,
        oldest: Duration,
        safe: &[String],
        ask: &impl AsyncFn(PathAndQuery, Bytes) -> Result<Round, Failure>,
    ) -> Result<Arc<Methods>, Failure> {
        if let Some(methods) = self.get(service, oldest) {
            return Ok(methods);
        }
        let _asking = self.asking.lock().await;
        if let Some(methods) = self.get(service, oldest) {
            return Ok(methods);
        }
        let heard = match self.hear(service, ask).await {
            Ok(pool) => pool,
            // Old descriptors are better than none.
            Err(failure) => return self.get(service, Duration::MAX).ok_or(failure),
        };
        let found = heard.services().filter(|found| found.full_name() == service);
        let methods = Arc::new(Methods::new(found, safe));
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST_SERVICES {
            known.clear();
        }
        known.insert(service.to_owned(), Known { methods: methods.clone(), since: Instant::now() });
        Ok(methods)
    }

    async fn hear(
        &self,
        service: &str,
        ask: &impl AsyncFn(PathAndQuery, Bytes) -> Result<Round, Failure>,
    ) -> Result<DescriptorPool, Failure> {
        let mut files: FxHashMap<String, FileDescriptorProto> = FxHashMap::default();
        let mut wanted = vec![Wanted::FileContainingSymbol(service.to_owned())];
        for _ in 0..MOST_ROUNDS {
            let body = questions(std::mem::take(&mut wanted));
            for message in self.round(body, ask).await? {
                let reply = Reply::decode(message).map_err(|error| broken(error.to_string()))?;
                match reply.said {
                    Some(Said::Files(said)) => {
                        for file in said.files {
                            let file = FileDescriptorProto::decode(file).map_err(|error| broken(error.to_string()))?;
                            files.insert(file.name().to_owned(), file);
                        }
                    }
                    Some(Said::Error(trouble)) => {
                        let Trouble { code, message } = trouble;
                        let detail = format!("the server does not describe {service}: {message} (code {code})");
                        return Err(Failure::ours(detail));
                    }
                    None => return Err(broken("an empty answer")),
                }
            }
            if files.len() > MOST_FILES {
                return Err(broken(format!("more than {MOST_FILES} files")));
            }
            let mut missing: Vec<&String> =
                files.values().flat_map(|file| &file.dependency).filter(|name| !files.contains_key(*name)).collect();
            missing.sort_unstable();
            missing.dedup();
            if missing.is_empty() {
                let mut pool = DescriptorPool::new();
                pool.add_file_descriptor_protos(files.into_values()).map_err(|error| broken(error.to_string()))?;
                return Ok(pool);
            }
            wanted = missing.into_iter().cloned().map(Wanted::FileByFilename).collect();
        }
        Err(broken("imports without an end"))
    }

    async fn round(
        &self,
        body: Bytes,
        ask: &impl AsyncFn(PathAndQuery, Bytes) -> Result<Round, Failure>,
    ) -> Result<Vec<Bytes>, Failure> {
        let older = self.older.load(Relaxed);
        for (path, is_older) in [(V1, false), (V1_ALPHA, true)] {
            if older && !is_older {
                continue;
            }
            let Round { status, messages } = ask(path, body.clone()).await?;
            match status.code {
                Code::OK => {
                    self.older.store(is_older, Relaxed);
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
        self.older.store(false, Relaxed);
        Err(Failure::new(ErrorKind::Protocol, "the server has no server reflection (neither v1 nor v1alpha)"))
    }
}

fn questions(wanted: Vec<Wanted>) -> Bytes {
    let mut body = Vec::new();
    for wanted in wanted {
        let question = Question { wanted: Some(wanted) };
        body.put_u8(0);
        // A name is short.
        body.put_u32(question.encoded_len() as u32);
        body.put_slice(&question.encode_to_vec());
    }
    body.into()
}

#[cold]
fn broken(what: impl std::fmt::Display) -> Failure {
    Failure::new(ErrorKind::Decode, format!("server reflection: {what}"))
}
