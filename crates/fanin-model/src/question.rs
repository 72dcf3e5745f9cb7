//! Questions of flows: JSON without the protocol's ceremony, because the model is here and its signature is known.
//!
//! A question is `[inputs, outputs, version]`. `inputs` is an object of lists by the inputs' names, or a list, which is the only
//! input; types and shapes are the signature's. Inputs that lack the first dimension are one row, and then the outputs lack it
//! too: who asks about one thing gets one answer.

use std::sync::Arc;

use bytes::Bytes;
use fanin_json::{Doc, Kind, Node, Writer};
use tokio::time::Instant;

use crate::{Data, InferError, Models, Shape, Signature, Tensor, TensorSpec, Version, json};

impl Models {
    /// Answers a question of a flow: the outputs as a JSON object of nested lists, and the version that gave them.
    ///
    /// # Errors
    /// See [`InferError`].
    pub async fn question(
        &self,
        model: &str,
        body: Bytes,
        deadline: Instant,
    ) -> Result<(Bytes, Arc<Version>), InferError> {
        let result = self.answered(model, body, deadline).await;
        if let Err(error) = &result {
            self.shared().outcomes.count(error);
        }
        result
    }

    async fn answered(&self, name: &str, body: Bytes, deadline: Instant) -> Result<(Bytes, Arc<Version>), InferError> {
        let invalid = |problem: String| InferError::Invalid(format!("model `{name}`: {problem}"));
        let doc = Doc::parse(body, json::MAX_DEPTH).map_err(|error| invalid(error.to_string()))?;
        let root = doc.root();
        let (model, version) = self.find(name, &version_of(root.index(2)).map_err(invalid)?)?;
        let signature = version.engine().signature();
        let given = root.index(0).ok_or_else(|| invalid("there are no inputs".to_owned()))?;
        let (inputs, bare) = inputs(signature, given).map_err(invalid)?;
        let wanted = outputs_of(root.index(1)).map_err(invalid)?;
        let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
        let outputs = self.ask_version(&model, &version, inputs, &wanted, deadline).await?;
        let body = written(&outputs, bare).map_err(InferError::Engine)?;
        Ok((body, version))
    }
}

fn version_of(node: Option<Node<'_>>) -> Result<String, String> {
    match node {
        None => Ok(String::new()),
        Some(node) if node.is_null() => Ok(String::new()),
        Some(node) => match node.as_i64() {
            Some(number) => Ok(number.to_string()),
            None => Err("`version` is no whole number".to_owned()),
        },
    }
}

fn outputs_of(node: Option<Node<'_>>) -> Result<Vec<String>, String> {
    let told = || "`outputs` is no list of outputs' names".to_owned();
    match node {
        None => Ok(Vec::new()),
        Some(node) if node.is_null() => Ok(Vec::new()),
        Some(node) if node.kind() == Kind::Array && !node.is_empty() => {
            node.elements().map(|name| name.as_str().map(|name| name.into_owned()).ok_or_else(told)).collect()
        }
        Some(_) => Err(told()),
    }
}

/// The inputs, and whether they are all one row without its dimension.
pub(crate) fn inputs(signature: &Signature, given: Node<'_>) -> Result<(Vec<Tensor>, bool), String> {
    let known = || signature.inputs.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let mut tensors = Vec::with_capacity(signature.inputs.len());
    let mut all_bare = true;
    let mut add = |spec: &TensorSpec, node| -> Result<(), String> {
        let (tensor, bare) = input(spec, node)?;
        tensors.push(tensor);
        all_bare &= bare;
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
        (Kind::Array, _) => return Err(format!("a list does not say which input it is; it takes {}", known())),
        _ => return Err(format!("the inputs are neither a dict nor a list; it takes {}", known())),
    }
    Ok((tensors, all_bare))
}

fn input(spec: &TensorSpec, node: Node<'_>) -> Result<(Tensor, bool), String> {
    let about = |problem: String| format!("input `{}`: {problem}", spec.name);
    if node.kind() != Kind::Array {
        return Err(about(format!("is no list; {:?} of {} is expected", spec.shape.as_slice(), spec.datatype)));
    }
    let mut shape = Shape::new();
    let mut inner = Some(node);
    while let Some(list) = inner.filter(|inner| inner.kind() == Kind::Array) {
        shape.push(list.len().unwrap_or_default() as i64);
        inner = list.index(0);
    }
    // The parser bounds the depth.
    if !is_even(node, &shape) {
        return Err(about("its lists are not all of one length".to_owned()));
    }
    let bare = shape.len() + 1 == spec.shape.len() && spec.shape.first() == Some(&-1);
    if bare {
        shape.insert(0, 1);
    }
    let data = json::data_of(spec.datatype, node).map_err(about)?;
    Ok((Tensor { name: spec.name.clone(), datatype: spec.datatype, shape, data }, bare))
}

/// Whether nested lists have this shape all over.
fn is_even(node: Node<'_>, shape: &[i64]) -> bool {
    match shape {
        [] => node.kind() != Kind::Array,
        [size, rest @ ..] => {
            node.kind() == Kind::Array
                && node.len() == usize::try_from(*size).ok()
                && node.elements().all(|inner| is_even(inner, rest))
        }
    }
}

fn written(outputs: &[Tensor], bare: bool) -> Result<Bytes, String> {
    let mut text = Vec::with_capacity(64 + outputs.iter().map(|output| output.bytes() * 2).sum::<usize>());
    let mut writer = Writer::new(&mut text);
    writer.begin_object();
    for output in outputs {
        writer.key(&output.name);
        let shape = match &output.shape[..] {
            [1, rest @ ..] if bare => rest,
            all => all,
        };
        let data = output.unpacked()?;
        nested(&mut writer, shape, &data, &mut 0)?;
    }
    writer.end_object();
    Ok(text.into())
}

fn nested(writer: &mut Writer<'_>, shape: &[i64], data: &Data, at: &mut usize) -> Result<(), String> {
    match shape {
        [] => {
            json::write_element(writer, data, *at)?;
            *at += 1;
        }
        [size, rest @ ..] => {
            writer.begin_array();
            for _ in 0..*size {
                nested(writer, rest, data, at)?;
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
        inputs(signature, Doc::parse(Bytes::copy_from_slice(text.as_bytes()), 8).expect("JSON").root())
    }

    #[test]
    fn a_row_without_its_dimension_is_one() {
        let one = Signature { inputs: vec![spec("x", DataType::Fp64, &[-1, 2])], outputs: vec![] };
        for (text, shape, bare) in [
            ("[1, null]", &[1, 2][..], true),
            (r#"{"x": [1, null]}"#, &[1, 2], true),
            (r#"{"x": [[1, null]]}"#, &[1, 2], false),
            ("[[1, 2], [3, 4], [5, 6]]", &[3, 2], false),
        ] {
            let (tensors, said) = read(&one, text).expect(text);
            assert_eq!((tensors[0].shape.as_slice(), said), (shape, bare), "{text}");
        }
        let told = |text: &str| read(&one, text).expect_err(text);
        assert_eq!(told("[[1, 2], [3], [4, 5, 6]]"), "input `x`: its lists are not all of one length");
        assert_eq!(told("[1, [2]]"), "input `x`: its lists are not all of one length");
        assert_eq!(told(r#"{"y": [1, 2]}"#), "there is no input `y`; it takes `x` FP64[-1, 2]");
        assert_eq!(told(r#"{"x": 1}"#), "input `x`: is no list; [-1, 2] of FP64 is expected");
        assert_eq!(told("7"), "the inputs are neither a dict nor a list; it takes `x` FP64[-1, 2]");
        assert_eq!(told(r#"["a", "b"]"#), r#"input `x`: element 0 is "a", not a number"#);
    }

    #[test]
    fn several_inputs_are_named() {
        let two = vec![spec("a", DataType::Int64, &[-1]), spec("b", DataType::Bytes, &[-1, 1])];
        let two = Signature { inputs: two, outputs: vec![] };
        let (tensors, bare) = read(&two, r#"{"b": [["u"], ["v"]], "a": [1, 2]}"#).expect("two");
        assert_eq!((tensors[0].shape.as_slice(), tensors[1].shape.as_slice(), bare), (&[2, 1][..], &[2][..], false));
        assert!(read(&two, "[1]").expect_err("no name").starts_with("a list does not say which input it is"));
    }

    #[test]
    fn outputs_nest_as_their_shapes() {
        let output = |shape: Shape, data| Tensor { name: "y".into(), datatype: DataType::Fp64, shape, data };
        let text = |output: Tensor, bare| {
            String::from_utf8(written(&[output], bare).expect("written").to_vec()).expect("text")
        };
        let numbers = || Data::Fp64(vec![1.5, f64::NAN, 3.0, 4.0]);
        assert_eq!(text(output(smallvec![2, 2], numbers()), false), r#"{"y":[[1.5,null],[3.0,4.0]]}"#);
        assert_eq!(text(output(smallvec![1, 4], numbers()), true), r#"{"y":[1.5,null,3.0,4.0]}"#);
        assert_eq!(text(output(smallvec![1], Data::Fp64(vec![0.5])), true), r#"{"y":0.5}"#);
        let strings = Data::Bytes(vec![Bytes::from_static(b"a")]);
        assert_eq!(text(output(smallvec![1, 1], strings), false), r#"{"y":[["a"]]}"#);
    }

    #[test]
    fn what_else_a_question_says() {
        let doc = |text: &'static str| Doc::parse(Bytes::from_static(text.as_bytes()), 8).expect("JSON");
        assert_eq!(version_of(Some(doc("3").root())), Ok("3".to_owned()));
        assert_eq!(version_of(Some(doc("null").root())), Ok(String::new()));
        assert!(version_of(Some(doc("\"3\"").root())).is_err());
        assert_eq!(outputs_of(Some(doc("[\"raw\"]").root())), Ok(vec!["raw".to_owned()]));
        assert!(outputs_of(Some(doc("[]").root())).is_err() && outputs_of(Some(doc("[1]").root())).is_err());
    }
}
