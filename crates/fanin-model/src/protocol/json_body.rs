//! Inference requests and answers over HTTP: JSON, followed by the tensors' data in binary form where the client wants that
//! (the protocol's binary tensor data extension).

use std::borrow::Cow;

use bytes::Bytes;
use fanin_json::{Doc, Kind, Node, Writer};

use super::tensor_codec;
use crate::{Answer, Tensor, json as tensors};

/// The header that holds the length of the JSON if binary data follows it.
pub(super) const LENGTH: &str = "inference-header-content-length";

/// Inputs of a request, and outputs that it names. Models have fewer.
pub(super) const MAX_TENSORS: usize = 1000;

/// A parsed request.
#[derive(Debug)]
pub(crate) struct JsonRequest {
    doc: Doc,
    pub inputs: Vec<Tensor>,
    /// Names of the requested outputs; empty means all.
    pub outputs: Vec<String>,
}

impl JsonRequest {
    /// Parses a body of which the first `length` bytes are JSON.
    ///
    /// # Errors
    /// What is malformed.
    pub fn read(mut bytes: Bytes, length: usize) -> Result<JsonRequest, String> {
        if length > bytes.len() {
            return Err(format!("{LENGTH} is {length}, the body has {} bytes", bytes.len()));
        }
        let mut rest = bytes.split_off(length);
        let doc = Doc::parse(bytes, tensors::MAX_DEPTH).map_err(|error| format!("the body is not JSON: {error}"))?;
        let list = doc.root().get("inputs").filter(|list| list.kind() == Kind::Array);
        let mut inputs = Vec::new();
        for node in list.ok_or("the body has no list `inputs`")?.elements() {
            let size = node.get("parameters").and_then(|parameters| parameters.get("binary_data_size"));
            let binary = match size {
                None => None,
                Some(size) => {
                    let size = size.as_i64().and_then(|size| usize::try_from(size).ok());
                    let size = size.ok_or("a binary_data_size is not a count")?;
                    let left = rest.len();
                    let error = || format!("a tensor's binary_data_size is {size}, {left} bytes are left");
                    Some(tensor_codec::take(&mut rest, size).ok_or_else(error)?)
                }
            };
            if inputs.len() == MAX_TENSORS {
                return Err(format!("the body has more than {MAX_TENSORS} inputs"));
            }
            inputs.push(tensors::tensor(node, binary)?);
        }
        if !rest.is_empty() {
            return Err(format!("{} bytes of binary data belong to no tensor", rest.len()));
        }
        let mut outputs = Vec::new();
        for output in requested_outputs(&doc) {
            if outputs.len() == MAX_TENSORS {
                return Err(format!("the body has more than {MAX_TENSORS} outputs"));
            }
            outputs.push(name_of(output).ok_or("an output has no `name`")?.into_owned());
        }
        Ok(JsonRequest { doc, inputs, outputs })
    }

    /// Whether an output is requested in binary form.
    fn is_binary(&self, name: &str) -> bool {
        let output = requested_outputs(&self.doc).find(|output| name_of(*output).as_deref() == Some(name));
        let request_message = output.and_then(|output| flag(output, "binary_data"));
        request_message.unwrap_or_else(|| flag(self.doc.root(), "binary_data_output").unwrap_or(false))
    }

    /// Encodes the response's body: JSON, then the data of outputs requested in binary form. If there are any, returns the
    /// length of the JSON as well.
    ///
    /// # Errors
    /// An output has no form in JSON.
    pub fn encode_answer(&self, answer: &Answer) -> Result<(Bytes, Option<usize>), String> {
        let mut text = Vec::with_capacity(512);
        let mut writer = Writer::new(&mut text);
        let mut binary: Vec<Bytes> = Vec::new();
        writer.begin_object();
        writer.key("model_name");
        writer.str(answer.version.model());
        writer.key("model_version");
        writer.str(answer.version.text());
        if let Some(id) = self.doc.root().get("id").and_then(|id| id.as_str()) {
            writer.key("id");
            writer.str(&id);
        }
        writer.key("outputs");
        writer.begin_array();
        for output in &answer.outputs {
            writer.begin_object();
            writer.key("name");
            writer.str(&output.name);
            writer.key("datatype");
            writer.str(output.datatype.as_str());
            writer.key("shape");
            writer.begin_array();
            output.shape.iter().for_each(|size| writer.int(*size));
            writer.end_array();
            if self.is_binary(&output.name) {
                let raw = output.to_raw();
                writer.key("parameters");
                writer.begin_object();
                writer.key("binary_data_size");
                writer.int(raw.len() as i64);
                writer.end_object();
                binary.push(raw);
            } else {
                writer.key("data");
                tensors::write_data(&mut writer, output)?;
            }
            writer.end_object();
        }
        writer.end_array();
        writer.end_object();
        let length = (!binary.is_empty()).then_some(text.len());
        binary.iter().for_each(|raw| text.extend_from_slice(raw));
        Ok((text.into(), length))
    }
}

fn requested_outputs(doc: &Doc) -> impl Iterator<Item = Node<'_>> {
    doc.root().get("outputs").into_iter().flat_map(Node::elements)
}

fn name_of(output: Node<'_>) -> Option<Cow<'_, str>> {
    output.get("name").and_then(|name| name.as_str())
}

/// A flag of a `parameters` object.
fn flag(node: Node<'_>, name: &str) -> Option<bool> {
    node.get("parameters")?.get(name)?.as_bool()
}
