//! What comes from outside as any bytes: for the targets in `fuzz/`, and the bounded runs of them in the tests.
//!
//! Each function panics if something that must hold does not, which is what it is for.

use bytes::Bytes;
use fanin_json::{Doc, Writer};
use prost::Message;
use smallvec::smallvec;

use crate::engine::{Engine, trees::Trees};
use crate::protocol::{fuzz_entry, proto::ModelInferRequest};
use crate::{Data, DataType, Signature, Tensor, TensorSpec, json};

/// What a model may take here.
const ROOM: usize = 1 << 20;
/// A model with more features or outputs is not computed: a row of it takes too long to try many.
const COLUMNS: usize = 1 << 10;

/// Bytes as a model's file, in each of the formats. Gives how many could be read: each computes rows, and each row as it does
/// alone.
///
/// # Panics
/// If a model answers with too much or too little, or rows have to do with each other.
pub fn model(bytes: &[u8]) -> usize {
    let read = [Trees::lightgbm(bytes, ROOM), Trees::xgboost(bytes, ROOM)];
    let read: Vec<Trees> = read.into_iter().filter_map(Result::ok).collect();
    for trees in &read {
        let signature = trees.signature();
        assert!(trees.memory() < ROOM + 100 * bytes.len() + (1 << 12), "a model of {} bytes", trees.memory());
        if trees.features() > COLUMNS || signature.outputs.iter().any(|spec| spec.shape[1] > COLUMNS as i64) {
            continue;
        }
        let rows: Vec<Vec<f64>> = [0.0, f64::NAN, 1.0, -1e30, 16_777_216.0, f64::INFINITY]
            .into_iter()
            .map(|first| (0..trees.features()).map(|feature| first * (feature + 1) as f64).collect())
            .collect();
        let answer = |rows: &[Vec<f64>]| {
            let datatype = signature.inputs[0].datatype;
            let raw: Vec<u8> = match datatype {
                DataType::Fp32 => rows.iter().flatten().flat_map(|value| (*value as f32).to_le_bytes()).collect(),
                _ => rows.iter().flatten().flat_map(|value| value.to_le_bytes()).collect(),
            };
            let shape = smallvec![rows.len() as i64, trees.features() as i64];
            let input = Tensor { name: "input".into(), datatype, shape, data: Data::Raw(raw.into()) };
            let inputs = [input];
            assert_eq!(signature.check(&inputs), Ok(()));
            let outputs = trees.infer(&inputs, u64::MAX).expect("its inputs are right");
            let bytes: usize = outputs.iter().map(Tensor::bytes).sum();
            assert_eq!(bytes, signature.bytes_of_outputs(rows.len(), u64::MAX));
            outputs
        };
        let together = answer(&rows);
        for (at, row) in rows.iter().enumerate() {
            for (alone, all) in answer(std::slice::from_ref(row)).iter().zip(&together) {
                let (alone, all) = (alone.to_raw(), all.to_raw());
                assert_eq!(alone, all[at * alone.len()..][..alone.len()], "row {at}");
            }
        }
    }
    read.len()
}

/// Bytes as a ModelInferRequest over gRPC. Gives whether its inputs could be read: then they are as well formed as they were
/// checked to be.
///
/// # Panics
/// If a look at the bytes says something else than the decoder.
pub fn message(bytes: &[u8]) -> bool {
    let Ok(mut request) = ModelInferRequest::decode(bytes) else { return false };
    let said = request.inputs.first().and_then(|input| input.shape.first().copied());
    fuzz_entry::check_head(bytes, &request.model_name, &request.model_version, said);
    let Ok(inputs) = fuzz_entry::inputs(&mut request) else { return false };
    inputs.iter().for_each(tensor);
    // Whatever it is asked, a signature gives an answer.
    let _ = signature().check(&inputs);
    true
}

/// Bytes as the body of an infer over HTTP, of which so many are JSON. Gives whether it could be read.
///
/// # Panics
/// If a tensor is not what it was before it was written.
pub fn body(bytes: &[u8], length: usize) -> bool {
    let Ok(inputs) = fuzz_entry::body(Bytes::copy_from_slice(bytes), length) else { return false };
    inputs.iter().for_each(tensor);
    let _ = signature().check(&inputs);
    true
}

/// Bytes as a flow's flow_request. Gives whether its inputs could be read: then they fit the signature.
///
/// # Panics
/// If they do not.
pub fn flow_request(bytes: &[u8]) -> bool {
    let Ok(doc) = Doc::parse(Bytes::copy_from_slice(bytes), json::MAX_DEPTH) else { return false };
    let Ok((inputs, _)) = crate::flow_request::parse_inputs(&signature(), doc.root()) else { return false };
    for tensor in &inputs {
        let spec =
            signature().inputs.into_iter().find(|spec| spec.name == tensor.name).expect("it is of the signature");
        assert_eq!(spec.datatype, tensor.datatype);
    }
    inputs.iter().for_each(tensor);
    let _ = signature().check(&inputs);
    true
}

/// Two inputs of what tensors may be.
fn signature() -> Signature {
    let spec = |name: &str, datatype, shape: &[i64]| TensorSpec {
        name: name.into(),
        datatype,
        also: &[],
        shape: shape.into(),
    };
    Signature {
        inputs: vec![spec("a", DataType::Fp32, &[-1, 3]), spec("b", DataType::Bytes, &[-1])],
        outputs: vec![spec("c", DataType::Int8, &[-1, 2])],
    }
}

/// What a tensor is in its several forms, it is in all.
fn tensor(tensor: &Tensor) {
    let Ok(data) = tensor.unpacked() else { return };
    // FP16 has one form only.
    if matches!(data, Data::Raw(_)) {
        return;
    }
    let elements = data.len();
    let fits = Tensor::elements(&tensor.shape) == Some(elements);
    let typed = Tensor { data, ..tensor.clone() };
    if fits {
        let raw = Tensor { data: Data::Raw(typed.to_raw()), ..tensor.clone() };
        let again = Tensor { data: raw.unpacked().expect("it was written by us"), ..tensor.clone() };
        assert_eq!(again.to_raw(), typed.to_raw(), "{tensor:?}");
    }
    let mut text = Vec::new();
    json::write_data(&mut Writer::new(&mut text), &typed).expect("all but FP16 has a form in JSON");
    let doc = Doc::parse(text.into(), json::MAX_DEPTH).expect("it was written by us");
    let read = json::data_of(tensor.datatype, doc.root());
    let same = match (&typed.data, &read) {
        // JSON has neither the infinities, nor NaN's bits, nor bytes that are no text.
        (Data::Fp32(ours), Ok(Data::Fp32(theirs))) => {
            ours.iter().zip(theirs).all(|(ours, theirs)| ours == theirs || !ours.is_finite() && theirs.is_nan())
        }
        (Data::Fp64(ours), Ok(Data::Fp64(theirs))) => {
            ours.iter().zip(theirs).all(|(ours, theirs)| ours == theirs || !ours.is_finite() && theirs.is_nan())
        }
        (Data::Bytes(ours), Ok(Data::Bytes(theirs))) => {
            ours.iter().zip(theirs).all(|(ours, theirs)| String::from_utf8_lossy(ours).as_bytes() == &theirs[..])
        }
        // A narrow type's bounds are looked at when it is narrowed: typed contents may be beyond them.
        (Data::Int(_) | Data::Uint(_), Err(_)) => true,
        (ours, Ok(theirs)) => ours == theirs,
        _ => false,
    };
    assert!(same && read.as_ref().map_or(elements, Data::len) == elements, "{typed:?} came back as {read:?}");
}

/// Bytes as a body, with an end of its JSON wherever there is one, and as a flow_request. Gives whether it could be read as one of
/// them.
pub fn json_request(bytes: &[u8]) -> bool {
    let length = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    // The zero itself is where data begins that is not there in JSON.
    let data = [&bytes[..length], bytes.get(length + 1..).unwrap_or_default()].concat();
    body(&data, length) | flow_request(bytes)
}

/// Bytes as the body of a gRPC request. Whether it is one message.
pub fn frame(bytes: &[u8]) -> bool {
    fuzz_entry::frame(bytes, 1000)
}
