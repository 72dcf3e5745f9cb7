//! What the HTTP side shares: types' names, and messages as JSON.

use serde_json::{Value, json};

use super::proto::*;
use crate::DataType;

/// A type as the model configuration calls it.
pub(super) fn config_type(datatype: DataType) -> super::proto::DataType {
    use super::proto::DataType as Proto;
    match datatype {
        DataType::Bool => Proto::TypeBool,
        DataType::Uint8 => Proto::TypeUint8,
        DataType::Uint16 => Proto::TypeUint16,
        DataType::Uint32 => Proto::TypeUint32,
        DataType::Uint64 => Proto::TypeUint64,
        DataType::Int8 => Proto::TypeInt8,
        DataType::Int16 => Proto::TypeInt16,
        DataType::Int32 => Proto::TypeInt32,
        DataType::Int64 => Proto::TypeInt64,
        DataType::Fp16 => Proto::TypeFp16,
        DataType::Fp32 => Proto::TypeFp32,
        DataType::Fp64 => Proto::TypeFp64,
        DataType::Bytes => Proto::TypeString,
    }
}

pub(super) fn metadata(message: &ModelMetadataResponse) -> Value {
    let tensors = |all: &[model_metadata_response::TensorMetadata]| -> Vec<Value> {
        all.iter().map(|one| json!({"name": one.name, "datatype": one.datatype, "shape": one.shape})).collect()
    };
    json!({
        "name": message.name,
        "versions": message.versions,
        "platform": message.platform,
        "inputs": tensors(&message.inputs),
        "outputs": tensors(&message.outputs),
    })
}

pub(super) fn config(message: &ModelConfig) -> Value {
    let name = |kind: i32| super::proto::DataType::try_from(kind).unwrap_or_default().as_str_name();
    let input = |one: &ModelInput| json!({"name": one.name, "data_type": name(one.data_type), "dims": one.dims});
    let output = |one: &ModelOutput| json!({"name": one.name, "data_type": name(one.data_type), "dims": one.dims});
    json!({
        "name": message.name,
        "platform": message.platform,
        "backend": message.backend,
        "max_batch_size": message.max_batch_size,
        "input": message.input.iter().map(input).collect::<Vec<_>>(),
        "output": message.output.iter().map(output).collect::<Vec<_>>(),
    })
}

pub(super) fn statistics(message: &ModelStatisticsResponse) -> Value {
    let duration = |one: &Option<StatisticDuration>| {
        let one = one.unwrap_or_default();
        json!({"count": one.count, "ns": one.ns})
    };
    let model = |one: &ModelStatistics| {
        let stats = one.inference_stats.unwrap_or_default();
        json!({
            "name": one.name,
            "version": one.version,
            "last_inference": one.last_inference,
            "inference_count": one.inference_count,
            "execution_count": one.execution_count,
            "inference_stats": {
                "success": duration(&stats.success),
                "fail": duration(&stats.fail),
                "queue": duration(&stats.queue),
                "compute_input": duration(&stats.compute_input),
                "compute_infer": duration(&stats.compute_infer),
                "compute_output": duration(&stats.compute_output),
            },
            "batch_stats": [],
        })
    };
    json!({"model_stats": message.model_stats.iter().map(model).collect::<Vec<_>>()})
}

pub(super) fn index(message: &RepositoryIndexResponse) -> Value {
    let entry = |one: &repository_index_response::ModelIndex| json!({"name": one.name, "version": one.version, "state": one.state, "reason": one.reason});
    message.models.iter().map(entry).collect()
}
