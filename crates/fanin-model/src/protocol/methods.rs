//! The protocol's methods, on its messages.

use std::net::SocketAddr;

use bytes::Bytes;
use prost::Message;
use tokio::time::Instant;

use super::framing::framed;
use super::json_body::MAX_TENSORS;
use super::large::{LARGE, off_worker};
use super::proto::model_infer_request::InferRequestedOutputTensor;
use super::proto::model_metadata_response::TensorMetadata;
use super::proto::repository_index_response::ModelIndex;
use super::proto::*;
use super::request_head::{decoding_cost, parse_head};
use super::service::Service;
use super::status::{Code, Status};
use super::{json_messages, tensor_codec};
use crate::{Infer, Models, Tensor, TensorSpec, Version};

/// A method of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    Infer,
    Live,
    Ready,
    Metadata,
    ModelReady,
    ModelMetadata,
    ModelConfig,
    Statistics,
    Index,
    Load,
    Unload,
}

impl Method {
    pub fn parse(name: &str) -> Option<Method> {
        Some(match name {
            "ModelInfer" => Method::Infer,
            "ServerLive" => Method::Live,
            "ServerReady" => Method::Ready,
            "ServerMetadata" => Method::Metadata,
            "ModelReady" => Method::ModelReady,
            "ModelMetadata" => Method::ModelMetadata,
            "ModelConfig" => Method::ModelConfig,
            "ModelStatistics" => Method::Statistics,
            "RepositoryIndex" => Method::Index,
            "RepositoryModelLoad" => Method::Load,
            "RepositoryModelUnload" => Method::Unload,
            _ => return None,
        })
    }
}

/// What Fanin has beyond the protocol's core.
pub(super) const EXTENSIONS: [&str; 4] =
    ["binary_tensor_data", "model_configuration", "model_repository", "statistics"];

pub(super) fn decoded<M: Message + Default>(message: Bytes) -> Result<M, Status> {
    M::decode(message).map_err(|error| Status::new(Code::InvalidArgument, format!("the message is broken: {error}")))
}

/// Answers a call.
pub(super) async fn call(
    service: &Service,
    peer: SocketAddr,
    method: Method,
    message: Bytes,
    deadline: Instant,
) -> Result<Bytes, Status> {
    let models = &service.models;
    Ok(match method {
        Method::Infer if decoding_cost(&message, LARGE) > LARGE => {
            let request = off_worker(usize::MAX, deadline, move || InferRequest::large(message)).await??;
            let rows = request.inputs.first().and_then(|input| input.shape.first()).map_or(1, |rows| (*rows).max(1));
            check(service, &request.model, &request.version, usize::try_from(rows).unwrap_or(1), deadline)?;
            infer(models, request, deadline).await?
        }
        Method::Infer => {
            // Most of what an overloaded server reads it refuses.
            if let Some(about) = parse_head(&message) {
                check(service, about.model, about.version, about.rows, deadline)?;
            }
            infer(models, InferRequest::read(message)?, deadline).await?
        }
        Method::Live => framed(&ServerLiveResponse { live: true }),
        Method::Ready => framed(&ServerReadyResponse { ready: models.is_ready() }),
        Method::Metadata => framed(&ServerMetadataResponse {
            name: "fanin".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            extensions: EXTENSIONS.map(str::to_owned).into(),
        }),
        Method::ModelReady => {
            let request_message: ModelReadyRequest = decoded(message)?;
            framed(&ModelReadyResponse { ready: models.find(&request_message.name, &request_message.version).is_ok() })
        }
        Method::ModelMetadata => {
            let request_message: ModelMetadataRequest = decoded(message)?;
            framed(&metadata(models, &request_message.name, &request_message.version)?)
        }
        Method::ModelConfig => {
            let request_message: ModelConfigRequest = decoded(message)?;
            framed(&ModelConfigResponse {
                config: Some(config(models, &request_message.name, &request_message.version)?),
            })
        }
        Method::Statistics => {
            let request_message: ModelStatisticsRequest = decoded(message)?;
            framed(&statistics(models, &request_message.name, &request_message.version)?)
        }
        Method::Index => {
            let request_message: RepositoryIndexRequest = decoded(message)?;
            framed(&index(models, request_message.ready))
        }
        Method::Load => {
            let request_message: RepositoryModelLoadRequest = decoded(message)?;
            if !request_message.parameters.is_empty() {
                return Err(Status::new(
                    Code::InvalidArgument,
                    "models are loaded from the repository's folder as they are",
                ));
            }
            change(models, peer, Change::Load, &request_message.model_name).await?;
            framed(&RepositoryModelLoadResponse {})
        }
        Method::Unload => {
            let request_message: RepositoryModelUnloadRequest = decoded(message)?;
            change(models, peer, Change::Unload, &request_message.model_name).await?;
            framed(&RepositoryModelUnloadResponse {})
        }
    })
}

/// What a client may do with a model, besides asking it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    Load,
    Unload,
}

/// Loads or unloads a model for a client, and logs who asked for it.
pub(super) async fn change(models: &Models, peer: SocketAddr, change: Change, model: &str) -> Result<(), Status> {
    if !models.config().control {
        let told = "loading and unloading by the protocol is off (models.control)";
        return Err(Status::new(Code::PermissionDenied, told));
    }
    let result = match change {
        Change::Load => models.load(model).await,
        Change::Unload => models.unload(model).await,
    };
    let outcome = result.as_ref().map_or_else(ToString::to_string, |()| "done".to_owned());
    tracing::info!(target: "fanin::audit", %peer, ?change, model, outcome, "requested on the models' port");
    Ok(result?)
}

/// Whether memory and deadline allow an inference.
fn check(service: &Service, model: &str, version: &str, rows: usize, deadline: Instant) -> Result<(), Status> {
    service.check_memory_for_model(model)?;
    Ok(service.models.check_deadline(model, version, rows, deadline)?)
}

/// A request to a model.
struct InferRequest {
    model: String,
    version: String,
    id: String,
    inputs: Vec<Tensor>,
    outputs: Vec<InferRequestedOutputTensor>,
    /// The inputs came raw, and so do the outputs.
    is_raw: bool,
}

impl InferRequest {
    fn read(message: Bytes) -> Result<InferRequest, Status> {
        let mut request: ModelInferRequest = decoded(message)?;
        if request.inputs.len().max(request.outputs.len()) > MAX_TENSORS {
            return Err(invalid(format!("a request has at most {MAX_TENSORS} inputs and outputs")));
        }
        let (inputs, is_raw) = tensor_codec::inputs(&mut request).map_err(invalid)?;
        let ModelInferRequest { model_name: model, model_version: version, id, outputs, .. } = request;
        Ok(InferRequest { model, version, id, inputs, outputs, is_raw })
    }

    /// A large one. What is left of it is dropped at once, wherever that is.
    fn large(message: Bytes) -> Result<InferRequest, Status> {
        let mut request = InferRequest::read(message)?;
        request.outputs.iter_mut().for_each(|output| output.parameters.clear());
        request.inputs = request.inputs.into_iter().map(Tensor::with_packed_strings).collect();
        Ok(request)
    }
}

fn invalid(problem: String) -> Status {
    Status::new(Code::InvalidArgument, problem)
}

/// Runs an inference. Gives the response with its frame.
async fn infer(models: &Models, request: InferRequest, deadline: Instant) -> Result<Bytes, Status> {
    let InferRequest { model, version, id, inputs, outputs, is_raw } = request;
    let outputs: smallvec::SmallVec<[&str; 4]> = outputs.iter().map(|output| output.name.as_str()).collect();
    let infer = Infer { model: &model, version: &version, inputs, outputs: &outputs, deadline };
    let answer = models.infer(infer).await?;
    // Raw outputs are only copied.
    let cost = if is_raw { answer.bytes() / 32 } else { answer.bytes() };
    let encode = move || tensor_codec::response(answer, id, is_raw).map(|response| framed(&response));
    let encoded = off_worker(cost, deadline, encode).await?;
    encoded.map_err(|problem| Status::new(Code::Internal, problem))
}

pub(super) fn metadata(models: &Models, name: &str, version: &str) -> Result<ModelMetadataResponse, Status> {
    let (model, version) = models.find(name, version)?;
    let tensors = |specs: &[TensorSpec]| {
        let one = |spec: &TensorSpec| TensorMetadata {
            name: spec.name.to_string(),
            datatype: spec.datatype.as_str().to_owned(),
            shape: spec.shape.to_vec(),
        };
        specs.iter().map(one).collect()
    };
    let signature = version.engine().signature();
    Ok(ModelMetadataResponse {
        name: model.name().to_string(),
        versions: model.ready().iter().map(|version| version.text().to_string()).collect(),
        platform: version.engine().platform().to_owned(),
        inputs: tensors(&signature.inputs),
        outputs: tensors(&signature.outputs),
    })
}

pub(super) fn config(models: &Models, name: &str, version: &str) -> Result<ModelConfig, Status> {
    let (model, version) = models.find(name, version)?;
    let signature = version.engine().signature();
    let kind = |spec: &TensorSpec| json_messages::config_type(spec.datatype);
    Ok(ModelConfig {
        name: model.name().to_string(),
        platform: version.engine().platform().to_owned(),
        // Shapes tell the first dimension themselves.
        max_batch_size: 0,
        input: signature
            .inputs
            .iter()
            .map(|spec| ModelInput {
                name: spec.name.to_string(),
                data_type: kind(spec).into(),
                dims: spec.shape.to_vec(),
            })
            .collect(),
        output: signature
            .outputs
            .iter()
            .map(|spec| ModelOutput {
                name: spec.name.to_string(),
                data_type: kind(spec).into(),
                dims: spec.shape.to_vec(),
            })
            .collect(),
        backend: "fanin".to_owned(),
    })
}

pub(super) fn statistics(models: &Models, name: &str, version: &str) -> Result<ModelStatisticsResponse, Status> {
    let model_stats = if name.is_empty() {
        let versions = |model: std::sync::Arc<crate::Model>| {
            model.ready().iter().map(|version| counted(version)).collect::<Vec<_>>()
        };
        models.all().into_iter().flat_map(versions).collect()
    } else if version.is_empty() {
        models.find(name, "")?.0.ready().iter().map(|version| counted(version)).collect()
    } else {
        vec![counted(&models.find(name, version)?.1)]
    };
    Ok(ModelStatisticsResponse { model_stats })
}

fn counted(version: &Version) -> ModelStatistics {
    let counted = version.stats().counted();
    let duration = |count, ns| Some(StatisticDuration { count, ns });
    ModelStatistics {
        name: version.model().to_string(),
        version: version.text().to_string(),
        last_inference: counted.last,
        inference_count: counted.rows,
        execution_count: counted.executions,
        inference_stats: Some(InferStatistics {
            success: duration(counted.success, counted.success_ns),
            fail: duration(counted.fail, 0),
            queue: duration(counted.success, counted.queue_ns),
            compute_input: duration(counted.success, 0),
            compute_infer: duration(counted.success, counted.compute_ns),
            compute_output: duration(counted.success, 0),
        }),
    }
}

pub(super) fn index(models: &Models, only_ready: bool) -> RepositoryIndexResponse {
    let entry = |entry: crate::Indexed| ModelIndex {
        name: entry.model.to_string(),
        version: entry.version,
        state: if entry.ready { "READY" } else { "UNAVAILABLE" }.to_owned(),
        reason: entry.reason,
    };
    RepositoryIndexResponse {
        models: models.index().into_iter().filter(|entry| entry.ready || !only_ready).map(entry).collect(),
    }
}
