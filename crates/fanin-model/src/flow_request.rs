//! Flow inference requests: JSON without the protocol's envelope, because the model's signature is known in this process.
//!
//! A request is `[inputs, outputs, version]`. `inputs` is an object of lists by the names of the inputs, or a list if there is
//! only one input. Types and shapes are the signature's. Inputs that lack the first dimension are a single row, and then the
//! outputs lack it too.

use std::sync::Arc;

use bytes::Bytes;
use fanin_json::{Doc, Kind, Node, Writer};
use tokio::time::Instant;

use crate::{Data, InferError, Models, Shape, Signature, Tensor, TensorSpec, Version, json};

impl Models {
    /// Runs a flow's inference request. Returns the outputs as a JSON object of nested lists, and the version that computed them.
    ///
    /// # Errors
    /// See [`InferError`].
    pub async fn infer_from_flow(
        &self,
        model: &str,
        body: Bytes,
        deadline: Instant,
    ) -> Result<(Bytes, Arc<Version>), InferError> {
        let result = self.infer_flow_request(model, body, deadline).await;
        if let Err(error) = &result {
            self.shared().outcomes.count(error);
        }
        result
    }

    async fn infer_flow_request(
        &self,
        name: &str,
        body: Bytes,
        deadline: Instant,
    ) -> Result<(Bytes, Arc<Version>), InferError> {
        let invalid = |problem: String| InferError::Invalid(format!("model `{name}`: {problem}"));
        let doc = Doc::parse(body, json::MAX_DEPTH).map_err(|error| invalid(error.to_string()))?;
        let root = doc.root();
        let (model, version) = self.find(name, &parse_version(root.index(2)).map_err(invalid)?)?;
        let signature = version.engine().signature();
        let inputs = root.index(0).ok_or_else(|| invalid("the inputs are missing".to_owned()))?;
        let (inputs, single_row) = parse_inputs(signature, inputs).map_err(invalid)?;
        let output_names = parse_output_names(root.index(1)).map_err(invalid)?;
        let output_names: Vec<&str> = output_names.iter().map(String::as_str).collect();
        let outputs = self.infer_version(&model, &version, inputs, &output_names, deadline).await?;
        let body = write_outputs(&outputs, single_row).map_err(InferError::Engine)?;
        Ok((body, version))
    }
}

fn parse_version(node: Option<Node<'_>>) -> Result<String, String> {
    match node {
        None => Ok(String::new()),
        Some(node) if node.is_null() => Ok(String::new()),
        Some(node) => match node.as_i64() {
            Some(number) => Ok(number.to_string()),
            None => Err("`version` is not a whole number".to_owned()),
        },
    }
}

fn parse_output_names(node: Option<Node<'_>>) -> Result<Vec<String>, String> {
    let error = || "`outputs` is not a list of names of outputs".to_owned();
    match node {
        None => Ok(Vec::new()),
        Some(node) if node.is_null() => Ok(Vec::new()),
        Some(node) if node.kind() == Kind::Array && !node.is_empty() => {
            node.elements().map(|name| name.as_str().map(|name| name.into_owned()).ok_or_else(error)).collect()
        }
        Some(_) => Err(error()),
    }
}

/// Parses the inputs. Returns as well whether all of them are a single row that lacks its dimension.
pub(crate) fn parse_inputs(signature: &Signature, given: Node<'_>) -> Result<(Vec<Tensor>, bool), String> {
    let known = || signature.inputs.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let mut tensors = Vec::with_capacity(signature.inputs.len());
    let mut all_single_row = true;
    let mut add = |spec: &TensorSpec, node| -> Result<(), String> {
        let (tensor, single_row) = parse_input(spec, node)?;
        tensors.push(tensor);
        all_single_row &= single_row;
        Ok(())
    };
    match (given.kind(), &signature.inputs[..]) {
        (Kind::Array, [only]) => add(only, given)?,
        (Kind::Object, specs) => {
            for (name, node) in given.entries() {
                let name = name.as_str().unwrap_or_default();
                let spec = specs.iter().find(|spec| *spec.name == *name);
                let spec = spec.ok_or_else(|| format!("there is no input `{name}`; it takes {}", known()))?;
                add(spec, node)?;
            }
        }
        (Kind::Array, _) => return Err(format!("a list does not name its input; it takes {}", known())),
        _ => return Err(format!("the inputs are neither a dict nor a list; it takes {}", known())),
    }
    Ok((tensors, all_single_row))
}

fn parse_input(spec: &TensorSpec, node: Node<'_>) -> Result<(Tensor, bool), String> {
    let about = |problem: String| format!("input `{}`: {problem}", spec.name);
    if node.kind() != Kind::Array {
        return Err(about(format!("is not a list; {:?} of {} is expected", spec.shape.as_slice(), spec.datatype)));
    }
    let mut shape = Shape::new();
    let mut inner = Some(node);
    while let Some(list) = inner.filter(|inner| inner.kind() == Kind::Array) {
        shape.push(list.len().unwrap_or_default() as i64);
        inner = list.index(0);
    }
    // Recursion is bounded: the parser limits the depth.
    if !has_shape(node, &shape) {
        return Err(about("its nested lists differ in length".to_owned()));
    }
    let single_row = shape.len() + 1 == spec.shape.len() && spec.shape.first() == Some(&-1);
    if single_row {
        shape.insert(0, 1);
    }
    let data = json::data_of(spec.datatype, node).map_err(about)?;
    Ok((Tensor { name: spec.name.clone(), datatype: spec.datatype, shape, data }, single_row))
}

/// Whether nested lists have this shape throughout.
fn has_shape(node: Node<'_>, shape: &[i64]) -> bool {
    match shape {
        [] => node.kind() != Kind::Array,
        [size, rest @ ..] => {
            node.kind() == Kind::Array
                && node.len() == usize::try_from(*size).ok()
                && node.elements().all(|inner| has_shape(inner, rest))
        }
    }
}

fn write_outputs(outputs: &[Tensor], single_row: bool) -> Result<Bytes, String> {
    let mut text = Vec::with_capacity(64 + outputs.iter().map(|output| output.bytes() * 2).sum::<usize>());
    let mut writer = Writer::new(&mut text);
    writer.begin_object();
    for output in outputs {
        writer.key(&output.name);
        let shape = match &output.shape[..] {
            [1, rest @ ..] if single_row => rest,
            all => all,
        };
        let data = output.unpacked()?;
        write_nested(&mut writer, shape, &data, &mut 0)?;
    }
    writer.end_object();
    Ok(text.into())
}

fn write_nested(writer: &mut Writer<'_>, shape: &[i64], data: &Data, at: &mut usize) -> Result<(), String> {
    match shape {
        [] => {
            json::write_element(writer, data, *at)?;
            *at += 1;
        }
        [size, rest @ ..] => {
            writer.begin_array();
            for _ in 0..*size {
                write_nested(writer, rest, data, at)?;
            }
            writer.end_array();
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use smallvec::smallvec;

    use super::*;
    use crate::DataType;

    fn spec(name: &str, datatype: DataType, shape: &[i64]) -> TensorSpec {
        TensorSpec { name: name.into(), datatype, also: &[], shape: shape.into() }
    }

    fn read(signature: &Signature, text: &str) -> Result<(Vec<Tensor>, bool), String> {
        parse_inputs(signature, Doc::parse(Bytes::copy_from_slice(text.as_bytes()), 8).expect("JSON").root())
    }

    #[test]
    fn a_single_row_may_lack_its_dimension() {
        let one = Signature { inputs: vec![spec("x", DataType::Fp64, &[-1, 2])], outputs: vec![] };
        for (text, shape, single_row) in [
            ("[1, null]", &[1, 2][..], true),
            (r#"{"x": [1, null]}"#, &[1, 2], true),
            (r#"{"x": [[1, null]]}"#, &[1, 2], false),
            ("[[1, 2], [3, 4], [5, 6]]", &[3, 2], false),
        ] {
            let (tensors, single_row_found) = read(&one, text).expect(text);
            assert_eq!((tensors[0].shape.as_slice(), single_row_found), (shape, single_row), "{text}");
        }
        let error = |text: &str| read(&one, text).expect_err(text);
        assert_eq!(error("[[1, 2], [3], [4, 5, 6]]"), "input `x`: its nested lists differ in length");
        assert_eq!(error("[1, [2]]"), "input `x`: its nested lists differ in length");
        assert_eq!(error(r#"{"y": [1, 2]}"#), "there is no input `y`; it takes `x` FP64[-1, 2]");
        assert_eq!(error(r#"{"x": 1}"#), "input `x`: is not a list; [-1, 2] of FP64 is expected");
        assert_eq!(error("7"), "the inputs are neither a dict nor a list; it takes `x` FP64[-1, 2]");
        assert_eq!(error(r#"["a", "b"]"#), r#"input `x`: element 0 is "a", not a number"#);
    }

    #[test]
    fn several_inputs_need_their_names() {
        let two = vec![spec("a", DataType::Int64, &[-1]), spec("b", DataType::Bytes, &[-1, 1])];
        let two = Signature { inputs: two, outputs: vec![] };
        let (tensors, single_row) = read(&two, r#"{"b": [["u"], ["v"]], "a": [1, 2]}"#).expect("two");
        assert_eq!(
            (tensors[0].shape.as_slice(), tensors[1].shape.as_slice(), single_row),
            (&[2, 1][..], &[2][..], false)
        );
        assert!(read(&two, "[1]").expect_err("no name").starts_with("a list does not name its input"));
    }

    #[test]
    fn outputs_are_nested_by_their_shapes() {
        let output = |shape: Shape, data| Tensor { name: "y".into(), datatype: DataType::Fp64, shape, data };
        let text = |output: Tensor, single_row| {
            String::from_utf8(write_outputs(&[output], single_row).expect("written").to_vec()).expect("text")
        };
        let numbers = || Data::Fp64(vec![1.5, f64::NAN, 3.0, 4.0]);
        assert_eq!(text(output(smallvec![2, 2], numbers()), false), r#"{"y":[[1.5,null],[3.0,4.0]]}"#);
        assert_eq!(text(output(smallvec![1, 4], numbers()), true), r#"{"y":[1.5,null,3.0,4.0]}"#);
        assert_eq!(text(output(smallvec![1], Data::Fp64(vec![0.5])), true), r#"{"y":0.5}"#);
        let strings = Data::Bytes(vec![Bytes::from_static(b"a")]);
        assert_eq!(text(output(smallvec![1, 1], strings), false), r#"{"y":[["a"]]}"#);
    }

    #[test]
    fn version_and_output_names_are_parsed() {
        let doc = |text: &'static str| Doc::parse(Bytes::from_static(text.as_bytes()), 8).expect("JSON");
        assert_eq!(parse_version(Some(doc("3").root())), Ok("3".to_owned()));
        assert_eq!(parse_version(Some(doc("null").root())), Ok(String::new()));
        assert!(parse_version(Some(doc("\"3\"").root())).is_err());
        assert_eq!(parse_output_names(Some(doc("[\"raw\"]").root())), Ok(vec!["raw".to_owned()]));
        assert!(
            parse_output_names(Some(doc("[]").root())).is_err() && parse_output_names(Some(doc("[1]").root())).is_err()
        );
    }
}
