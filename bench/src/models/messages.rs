//! The part of the protocol's messages that the benchmark speaks.

use bytes::Bytes;

/// `inference.ModelInferRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct InferRequest {
    /// Which model.
    #[prost(string, tag = "1")]
    pub model_name: String,
    /// What is put in.
    #[prost(message, repeated, tag = "5")]
    pub inputs: Vec<InputTensor>,
    /// Which outputs are wanted.
    #[prost(message, repeated, tag = "6")]
    pub outputs: Vec<WantedOutput>,
    /// Data of the inputs.
    #[prost(bytes = "bytes", repeated, tag = "7")]
    pub raw_input_contents: Vec<Bytes>,
}

/// An output that is wanted.
#[derive(Clone, PartialEq, prost::Message)]
pub struct WantedOutput {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
}

/// Head of an input or output tensor.
#[derive(Clone, PartialEq, prost::Message)]
pub struct InputTensor {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Type of its elements.
    #[prost(string, tag = "2")]
    pub datatype: String,
    /// Its dimensions.
    #[prost(int64, repeated, tag = "3")]
    pub shape: Vec<i64>,
}

/// `inference.ModelInferResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct InferResponse {
    /// Which model.
    #[prost(string, tag = "1")]
    pub model_name: String,
    /// Which version.
    #[prost(string, tag = "2")]
    pub model_version: String,
    /// What came out.
    #[prost(message, repeated, tag = "5")]
    pub outputs: Vec<InputTensor>,
    /// Data of the outputs.
    #[prost(bytes = "bytes", repeated, tag = "6")]
    pub raw_output_contents: Vec<Bytes>,
}

/// The path of the one method.
pub const PATH: &str = "/inference.GRPCInferenceService/ModelInfer";
