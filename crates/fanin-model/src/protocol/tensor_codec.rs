//! Tensors between the protocol's messages and ours.

use bytes::Bytes;
use fanin_json::{Doc, Kind, Node};
use prost::Message;

use super::proto::model_infer_request::{InferInputTensor, InferRequestedOutputTensor};
use super::proto::model_infer_response::InferOutputTensor;
use super::proto::{InferTensorContents, ModelInferRequest, ModelInferResponse};
use crate::{Answer, Data, DataType, Tensor, json};

/// The inputs of a request, and whether they came raw.
pub(super) fn inputs(request: &mut ModelInferRequest) -> Result<(Vec<Tensor>, bool), String> {
    let mut raw = std::mem::take(&mut request.raw_input_contents);
    let is_raw = !raw.is_empty();
    let inputs = std::mem::take(&mut request.inputs);
    if is_raw && raw.len() != inputs.len() {
        return Err(format!("raw_input_contents has {} entries for {} inputs", raw.len(), inputs.len()));
    }
    let mut raw = raw.drain(..);
    let tensors = inputs.into_iter().map(|input| {
        let InferInputTensor { name, datatype, shape, contents, parameters: _ } = input;
        let kind = DataType::parse(&datatype)
            .ok_or_else(|| format!("input `{name}` has datatype `{datatype}`, which is none of the protocol's"))?;
        let data = match (raw.next(), contents) {
            (Some(_), Some(_)) => return Err(format!("input `{name}` has contents beside raw_input_contents")),
            (Some(raw), None) => Data::Raw(raw),
            (None, Some(contents)) => typed(&name, kind, contents)?,
            (None, None) => typed(&name, kind, InferTensorContents::default())?,
        };
        Ok(Tensor { name: name.into(), datatype: kind, shape: shape.into(), data })
    });
    Ok((tensors.collect::<Result<_, String>>()?, is_raw))
}

/// The list of a message that belongs to a type.
fn typed(name: &str, kind: DataType, contents: InferTensorContents) -> Result<Data, String> {
    let filled = [
        ("bool_contents", contents.bool_contents.len()),
        ("int_contents", contents.int_contents.len()),
        ("int64_contents", contents.int64_contents.len()),
        ("uint_contents", contents.uint_contents.len()),
        ("uint64_contents", contents.uint64_contents.len()),
        ("fp32_contents", contents.fp32_contents.len()),
        ("fp64_contents", contents.fp64_contents.len()),
        ("bytes_contents", contents.bytes_contents.len()),
    ];
    let (expected, data) = match kind {
        DataType::Bool => ("bool_contents", Data::Bool(contents.bool_contents)),
        DataType::Int8 | DataType::Int16 | DataType::Int32 => ("int_contents", Data::Int(contents.int_contents)),
        DataType::Int64 => ("int64_contents", Data::Int64(contents.int64_contents)),
        DataType::Uint8 | DataType::Uint16 | DataType::Uint32 => ("uint_contents", Data::Uint(contents.uint_contents)),
        DataType::Uint64 => ("uint64_contents", Data::Uint64(contents.uint64_contents)),
        DataType::Fp32 => ("fp32_contents", Data::Fp32(contents.fp32_contents)),
        DataType::Fp64 => ("fp64_contents", Data::Fp64(contents.fp64_contents)),
        DataType::Bytes => ("bytes_contents", Data::Bytes(contents.bytes_contents)),
        DataType::Fp16 => return Err(format!("input `{name}` of FP16 must come in raw_input_contents")),
    };
    match filled.iter().find(|(field, count)| *count > 0 && *field != expected) {
        Some((field, _)) => Err(format!("input `{name}` of {kind} has {field}, {expected} is expected")),
        None => Ok(data),
    }
}

/// The response to a request, raw if that was.
pub(super) fn response(answer: Answer, id: String, raw: bool) -> Result<ModelInferResponse, String> {
    let mut response = ModelInferResponse {
        model_name: answer.version.model().to_string(),
        model_version: answer.version.text().to_string(),
        id,
        ..ModelInferResponse::default()
    };
    response.outputs.reserve_exact(answer.outputs.len());
    for tensor in answer.outputs {
        let contents = if raw {
            response.raw_output_contents.push(tensor.to_raw());
            None
        } else {
            Some(contents(&tensor)?)
        };
        response.outputs.push(InferOutputTensor {
            name: tensor.name.to_string(),
            datatype: tensor.datatype.as_str().to_owned(),
            shape: tensor.shape.to_vec(),
            contents,
            ..InferOutputTensor::default()
        });
    }
    Ok(response)
}

fn contents(tensor: &Tensor) -> Result<InferTensorContents, String> {
    let mut contents = InferTensorContents::default();
    match tensor.unpacked()? {
        Data::Bool(all) => contents.bool_contents = all,
        Data::Int(all) => contents.int_contents = all,
        Data::Int64(all) => contents.int64_contents = all,
        Data::Uint(all) => contents.uint_contents = all,
        Data::Uint64(all) => contents.uint64_contents = all,
        Data::Fp32(all) => contents.fp32_contents = all,
        Data::Fp64(all) => contents.fp64_contents = all,
        Data::Bytes(all) => contents.bytes_contents = all,
        Data::Raw(_) => return Err(format!("output `{}` of FP16 can only be sent raw", tensor.name)),
    }
    Ok(contents)
}

/// A ModelInferRequest, encoded, of inputs that are written as JSON: `{"inputs": [...]}`, and if only some outputs are wanted
/// `"outputs": [{"name": ...}]`. Data is sent raw, as clients do. An empty version is the highest one that is ready.
///
/// # Errors
/// What is wrong with the JSON.
pub fn infer_message(model: &str, version: &str, json: Bytes) -> Result<Bytes, String> {
    let doc = Doc::parse(json, json::MAX_DEPTH).map_err(|error| error.to_string())?;
    let list = doc.root().get("inputs").filter(|list| list.kind() == Kind::Array);
    let list = list.ok_or("there is no list `inputs`")?;
    let mut request = ModelInferRequest {
        model_name: model.to_owned(),
        model_version: version.to_owned(),
        ..ModelInferRequest::default()
    };
    for node in list.elements() {
        let tensor = json::tensor(node, None)?;
        request.raw_input_contents.push(tensor.to_raw());
        request.inputs.push(InferInputTensor {
            name: tensor.name.to_string(),
            datatype: tensor.datatype.as_str().to_owned(),
            shape: tensor.shape.to_vec(),
            ..InferInputTensor::default()
        });
    }
    for output in doc.root().get("outputs").into_iter().flat_map(Node::elements) {
        let name = output.get("name").and_then(|name| name.as_str()).ok_or("an output has no `name`")?;
        request.outputs.push(InferRequestedOutputTensor { name: name.into_owned(), ..Default::default() });
    }
    Ok(request.encode_to_vec().into())
}

/// Raw data of all inputs of a binary HTTP body, one after the other.
pub(super) fn take(rest: &mut Bytes, size: usize) -> Option<Bytes> {
    (size <= rest.len()).then(|| rest.split_to(size))
}
