//! A model of this process as an upstream: limit, breaker, timeout and metrics apply as to any other.
//!
//! This crate knows nothing of models. The program gives each worker a [`ModelBackend`].

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use http::{HeaderMap, StatusCode};
use tokio::time::Instant;

use super::attempt::{Attempt, Phase, Received};
use crate::endpoint::TransportData;
use crate::error::{ERROR_HEADER, ErrorKind, Failure, error_header_value};
use crate::metrics::Extra;

/// Header with the version of the model that answered.
const VERSION: HeaderName = HeaderName::from_static("model-version");

/// An inference request to a model.
#[derive(Clone, Debug)]
pub struct ModelRequest {
    /// The model's name.
    pub model: Arc<str>,
    /// Inputs, wanted outputs or null, and version or null, as JSON.
    pub body: Bytes,
    /// After this nobody needs the answer.
    pub deadline: Instant,
}

/// A model's answer.
#[derive(Clone, Debug)]
pub struct ModelAnswer {
    /// Outputs, as JSON.
    pub body: Bytes,
    /// The version that answered.
    pub version: Arc<str>,
}

/// Why a model gives no answer, each with a text for the error.
#[derive(Clone, Debug)]
pub enum ModelFailure {
    /// The request does not fit the model.
    Invalid(String),
    /// There is no such model or version.
    NotFound(String),
    /// No version of it is ready.
    Unavailable(String),
    /// The model's queue is full.
    Overloaded(String),
    /// The deadline passed.
    Late(String),
    /// The computation failed.
    Failed(String),
}

/// The future of [`ModelBackend::infer`]. It stays on its worker, and may be dropped at any point.
pub type ModelFuture = Pin<Box<dyn Future<Output = Result<ModelAnswer, ModelFailure>>>>;

/// Answers inference requests in this process.
pub trait ModelBackend: Send + Sync + fmt::Debug {
    /// Answers a request by its deadline.
    fn infer(&self, request: ModelRequest) -> ModelFuture;
}

/// The model's name, as its origin keeps it.
#[derive(Debug)]
pub(super) struct ModelName(pub Arc<str>);

impl TransportData for ModelName {}

/// A model, as a worker calls it.
#[derive(Debug)]
pub(crate) struct Model {
    pub name: Arc<str>,
    pub backend: Option<Arc<dyn ModelBackend>>,
}

impl Model {
    /// Sends the request to the backend.
    pub async fn send(&self, attempt: &Attempt<'_>) -> Result<Received, Failure> {
        let Some(backend) = &self.backend else {
            return Err(Failure::ours("this process serves no models"));
        };
        attempt.phase.set(Phase::Sent);
        attempt.metrics.count(Extra::Sent);
        let body = attempt.request.body.clone();
        let request = ModelRequest { model: self.name.clone(), body, deadline: attempt.deadline };
        match backend.infer(request).await {
            Ok(ModelAnswer { body, version }) => {
                let (size, most) = (body.len(), attempt.max_answer);
                if size > most {
                    let detail = format!("the outputs are {size} bytes as JSON, {most} are allowed (max_answer)");
                    return Err(Failure::new(ErrorKind::TooLarge, detail));
                }
                let mut headers = HeaderMap::with_capacity(2);
                headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
                if let Ok(version) = HeaderValue::from_str(&version) {
                    headers.insert(VERSION, version);
                }
                Ok(Received { status: StatusCode::OK, headers: headers.into(), body, at: Instant::now() })
            }
            Err(ModelFailure::Invalid(what)) => Ok(error_answer(StatusCode::BAD_REQUEST, &what)),
            Err(ModelFailure::NotFound(what)) => Ok(error_answer(StatusCode::NOT_FOUND, &what)),
            Err(ModelFailure::Unavailable(what)) => Ok(error_answer(StatusCode::SERVICE_UNAVAILABLE, &what)),
            Err(ModelFailure::Failed(what)) => Ok(error_answer(StatusCode::INTERNAL_SERVER_ERROR, &what)),
            Err(ModelFailure::Overloaded(what)) => Err(Failure::new(ErrorKind::Limit, what)),
            Err(ModelFailure::Late(what)) => Err(Failure::new(ErrorKind::Timeout, what)),
        }
    }
}

#[cold]
fn error_answer(status: StatusCode, message: &str) -> Received {
    let mut body = b"{\"message\":".to_vec();
    fanin_json::write_str(&mut body, message);
    body.push(b'}');
    let headers = HeaderMap::from_iter([(ERROR_HEADER, error_header_value(message))]);
    Received { status, headers: headers.into(), body: body.into(), at: Instant::now() }
}
