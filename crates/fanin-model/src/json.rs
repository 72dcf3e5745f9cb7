//! Tensors in the protocol's JSON.
//!
//! `data` may be flat or nested in the shape's way. A `null` among numbers is NaN, which JSON cannot say: tree models take
//! it for a missing value. Numbers are read as their tensor's type, so that no value passes through another.

use bytes::Bytes;
use fanin_json::{Doc, Kind, Node, Writer};
use smallvec::SmallVec;

use crate::{Data, DataType, Shape, Tensor};

/// Levels of a document; tensors nest in as many as they have dimensions.
pub(crate) const MAX_DEPTH: usize = 32;

/// A sample: inputs, and the outputs that are expected of them.
pub(crate) fn sample(bytes: Bytes) -> Result<(Vec<Tensor>, Vec<Tensor>), String> {
    let doc = Doc::parse(bytes, MAX_DEPTH).map_err(|error| error.to_string())?;
    let root = doc.root();
    let all = |key: &str| -> Result<Vec<Tensor>, String> {
        let list = root.get(key).filter(|list| list.kind() == Kind::Array);
        let list = list.ok_or_else(|| format!("has no list `{key}`"))?;
        list.elements().map(|node| tensor(node, None)).collect()
    };
    Ok((all("inputs")?, all("outputs")?))
}

/// Reads a tensor; `binary` is its data if that came beside the JSON.
pub(crate) fn tensor(node: Node<'_>, binary: Option<Bytes>) -> Result<Tensor, String> {
    if node.kind() != Kind::Object {
        return Err("a tensor is no object".to_owned());
    }
    let text = |key: &str| node.get(key).and_then(|value| value.as_str());
    let name = text("name").ok_or("a tensor has no `name`")?;
    let about = |what: &str| format!("tensor `{name}`: {what}");
    let datatype = text("datatype").ok_or_else(|| about("has no `datatype`"))?;
    let datatype = DataType::parse(&datatype).ok_or_else(|| about(&format!("`{datatype}` is no datatype")))?;
    let shape = node.get("shape").filter(|shape| shape.kind() == Kind::Array);
    let shape: Option<Shape> = shape.and_then(|shape| shape.elements().map(Node::as_i64).collect());
    let shape = shape.ok_or_else(|| about("has no `shape`, a list of whole numbers"))?;
    let data = match binary {
        Some(raw) => Data::Raw(raw),
        None => {
            let data = node.get("data").ok_or_else(|| about("has no `data`"))?;
            data_of(datatype, data).map_err(|problem| about(&problem))?
        }
    };
    Ok(Tensor { name: (&*name).into(), datatype, shape, data }.with_packed_strings())
}

/// Elements of a flat or nested list, in a tensor's type.
pub(crate) fn data_of(datatype: DataType, node: Node<'_>) -> Result<Data, String> {
    if node.kind() != Kind::Array {
        return Err("`data` is not a list".to_owned());
    }
    let mut flat = Flat { stack: SmallVec::new(), node: Some(node) };
    fn all<T>(flat: &mut Flat<'_>, what: &str, one: impl Fn(Node<'_>) -> Option<T>) -> Result<Vec<T>, String> {
        let mut all = Vec::new();
        while let Some(node) = flat.next() {
            let value = one(node).ok_or_else(|| {
                let raw: String = String::from_utf8_lossy(node.raw()).chars().take(40).collect();
                format!("element {} is {raw}, not {what}", all.len())
            })?;
            all.push(value);
        }
        Ok(all)
    }
    fn parsed<T: std::str::FromStr>(node: Node<'_>) -> Option<T> {
        node.as_number_text()?.parse().ok()
    }
    let bounded = |least: i64, most: i64| move |node: Node<'_>| parsed(node).filter(|one| (least..=most).contains(one));
    Ok(match datatype {
        DataType::Bool => Data::Bool(all(&mut flat, "a boolean", |node| node.as_bool())?),
        DataType::Int8 => Data::Int(ints(all(&mut flat, "an INT8", bounded(-128, 127))?)),
        DataType::Int16 => Data::Int(ints(all(&mut flat, "an INT16", bounded(-32768, 32767))?)),
        DataType::Int32 => Data::Int(all(&mut flat, "an INT32", parsed)?),
        DataType::Int64 => Data::Int64(all(&mut flat, "an INT64", parsed)?),
        DataType::Uint8 => Data::Uint(all(&mut flat, "a UINT8", |node| parsed::<u8>(node).map(u32::from))?),
        DataType::Uint16 => Data::Uint(all(&mut flat, "a UINT16", |node| parsed::<u16>(node).map(u32::from))?),
        DataType::Uint32 => Data::Uint(all(&mut flat, "a UINT32", parsed)?),
        DataType::Uint64 => Data::Uint64(all(&mut flat, "a UINT64", parsed)?),
        DataType::Fp32 => Data::Fp32(all(&mut flat, "a number", |node| float::<f32>(node, f32::NAN))?),
        DataType::Fp64 => Data::Fp64(all(&mut flat, "a number", |node| float::<f64>(node, f64::NAN))?),
        DataType::Bytes => {
            Data::Bytes(all(&mut flat, "a string", |node| node.as_str().map(|text| Bytes::from(text.into_owned())))?)
        }
        DataType::Fp16 => return Err("FP16 has no form in JSON; send it as binary data".to_owned()),
    })
}

fn float<T: std::str::FromStr>(node: Node<'_>, missing: T) -> Option<T> {
    if node.is_null() { Some(missing) } else { node.as_number_text()?.parse().ok() }
}

fn ints(all: Vec<i64>) -> Vec<i32> {
    // Their bounds have been checked.
    all.into_iter().map(|one| one as i32).collect()
}

/// Leaves of nested lists. Depth is bounded by the parser.
struct Flat<'a> {
    stack: SmallVec<[(fanin_json::Cursor, &'a Doc); 4]>,
    node: Option<Node<'a>>,
}

impl<'a> Flat<'a> {
    fn next(&mut self) -> Option<Node<'a>> {
        if let Some(node) = self.node.take() {
            self.stack.push((node.cursor(), node.doc()));
        }
        loop {
            let (cursor, doc) = self.stack.last_mut()?;
            match cursor.next_element(doc) {
                None => {
                    self.stack.pop();
                }
                Some(at) => {
                    let node = doc.node(at);
                    if node.kind() != Kind::Array {
                        return Some(node);
                    }
                    let inner = (node.cursor(), *doc);
                    self.stack.push(inner);
                }
            }
        }
    }
}

/// Writes a tensor's `data` as a flat list. NaN and the infinities become null, which is all that JSON has for them.
pub(crate) fn write_data(writer: &mut Writer<'_>, tensor: &Tensor) -> Result<(), String> {
    writer.begin_array();
    let data = tensor.unpacked()?;
    for at in 0..data.len() {
        write_element(writer, &data, at)?;
    }
    writer.end_array();
    Ok(())
}

/// Writes one element, as [`write_data`] does; `null` if there is none at that place.
pub(crate) fn write_element(writer: &mut Writer<'_>, data: &Data, at: usize) -> Result<(), String> {
    match data {
        Data::Bool(all) if let Some(one) = all.get(at) => writer.bool(*one),
        Data::Int(all) if let Some(one) = all.get(at) => writer.int((*one).into()),
        Data::Uint(all) if let Some(one) = all.get(at) => writer.int((*one).into()),
        Data::Int64(all) if let Some(one) = all.get(at) => writer.int(*one),
        Data::Uint64(all) if let Some(one) = all.get(at) => writer.raw(one.to_string().as_bytes()),
        // The shortest text of the single-precision number, not of the double that it would become.
        Data::Fp32(all) if let Some(one) = all.get(at).filter(|one| one.is_finite()) => {
            writer.raw(one.to_string().as_bytes());
        }
        Data::Fp64(all) if let Some(one) = all.get(at) => {
            if writer.float(*one).is_err() {
                writer.null();
            }
        }
        Data::Bytes(all) if let Some(one) = all.get(at) => writer.str(&String::from_utf8_lossy(one)),
        Data::Raw(_) => return Err("FP16 has no form in JSON; ask for binary data".to_owned()),
        _ => writer.null(),
    }
    Ok(())
}
