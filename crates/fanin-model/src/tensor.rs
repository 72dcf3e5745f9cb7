//! Tensors and signatures, in the Open Inference Protocol's terms.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;

/// A tensor's dimensions. -1 in a signature is a dimension of any size.
pub type Shape = SmallVec<[i64; 4]>;

/// The protocol's element types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DataType {
    /// One byte, 0 or 1.
    Bool,
    /// Unsigned, 8 bits.
    Uint8,
    /// Unsigned, 16 bits.
    Uint16,
    /// Unsigned, 32 bits.
    Uint32,
    /// Unsigned, 64 bits.
    Uint64,
    /// Signed, 8 bits.
    Int8,
    /// Signed, 16 bits.
    Int16,
    /// Signed, 32 bits.
    Int32,
    /// Signed, 64 bits.
    Int64,
    /// IEEE half precision.
    Fp16,
    /// IEEE single precision.
    Fp32,
    /// IEEE double precision.
    Fp64,
    /// Strings of bytes; raw, each with its length in front as 4 bytes, the lowest first.
    Bytes,
}

impl DataType {
    /// All types, by the protocol's names.
    pub const ALL: [(DataType, &'static str); 13] = [
        (DataType::Bool, "BOOL"),
        (DataType::Uint8, "UINT8"),
        (DataType::Uint16, "UINT16"),
        (DataType::Uint32, "UINT32"),
        (DataType::Uint64, "UINT64"),
        (DataType::Int8, "INT8"),
        (DataType::Int16, "INT16"),
        (DataType::Int32, "INT32"),
        (DataType::Int64, "INT64"),
        (DataType::Fp16, "FP16"),
        (DataType::Fp32, "FP32"),
        (DataType::Fp64, "FP64"),
        (DataType::Bytes, "BYTES"),
    ];

    /// The type of this name.
    pub fn parse(name: &str) -> Option<DataType> {
        DataType::ALL.iter().find(|(_, other)| *other == name).map(|(datatype, _)| *datatype)
    }

    /// The protocol's name.
    pub fn as_str(self) -> &'static str {
        DataType::ALL.iter().find(|(datatype, _)| *datatype == self).map_or("", |(_, name)| name)
    }

    /// Bytes of one element; `None` for strings.
    pub const fn size(self) -> Option<usize> {
        match self {
            DataType::Bool | DataType::Uint8 | DataType::Int8 => Some(1),
            DataType::Uint16 | DataType::Int16 | DataType::Fp16 => Some(2),
            DataType::Uint32 | DataType::Int32 | DataType::Fp32 => Some(4),
            DataType::Uint64 | DataType::Int64 | DataType::Fp64 => Some(8),
            DataType::Bytes => None,
        }
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A tensor's elements, row after row.
#[derive(Clone, Debug, PartialEq)]
pub enum Data {
    /// As they travel: little-endian, tightly packed; strings with their lengths.
    Raw(Bytes),
    /// Booleans.
    Bool(Vec<bool>),
    /// INT8, INT16 and INT32.
    Int(Vec<i32>),
    /// INT64.
    Int64(Vec<i64>),
    /// UINT8, UINT16 and UINT32.
    Uint(Vec<u32>),
    /// UINT64.
    Uint64(Vec<u64>),
    /// FP32.
    Fp32(Vec<f32>),
    /// FP64.
    Fp64(Vec<f64>),
    /// BYTES.
    Bytes(Vec<Bytes>),
}

impl Data {
    /// Elements; of raw data its bytes.
    pub(crate) fn len(&self) -> usize {
        match self {
            Data::Raw(raw) => raw.len(),
            Data::Bool(all) => all.len(),
            Data::Int(all) => all.len(),
            Data::Int64(all) => all.len(),
            Data::Uint(all) => all.len(),
            Data::Uint64(all) => all.len(),
            Data::Fp32(all) => all.len(),
            Data::Fp64(all) => all.len(),
            Data::Bytes(all) => all.len(),
        }
    }
}

/// A named tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// The name in the model's signature.
    pub name: Arc<str>,
    /// Type of the elements.
    pub datatype: DataType,
    /// Dimensions, none negative.
    pub shape: Shape,
    /// The elements.
    pub data: Data,
}

impl Tensor {
    /// The number of elements that the shape says; `None` if a dimension is negative or the product overflows.
    pub fn elements(shape: &[i64]) -> Option<usize> {
        shape.iter().try_fold(1_usize, |product, size| product.checked_mul(usize::try_from(*size).ok()?))
    }

    /// Bytes that the elements take.
    pub fn bytes(&self) -> usize {
        match &self.data {
            Data::Raw(raw) => raw.len(),
            Data::Bool(all) => all.len(),
            Data::Int(all) => all.len() * 4,
            Data::Uint(all) => all.len() * 4,
            Data::Fp32(all) => all.len() * 4,
            Data::Int64(all) => all.len() * 8,
            Data::Uint64(all) => all.len() * 8,
            Data::Fp64(all) => all.len() * 8,
            Data::Bytes(all) => all.iter().map(|one| one.len() + 4).sum(),
        }
    }

    /// The elements as they travel raw.
    pub fn to_raw(&self) -> Bytes {
        fn pack<T: Copy, const N: usize>(all: &[T], bytes: impl Fn(T) -> [u8; N]) -> Bytes {
            let mut raw = Vec::with_capacity(all.len() * N);
            for one in all {
                raw.extend_from_slice(&bytes(*one));
            }
            raw.into()
        }
        match &self.data {
            Data::Raw(raw) => raw.clone(),
            Data::Bool(all) => pack(all, |one| [u8::from(one)]),
            Data::Int(all) => match self.datatype {
                DataType::Int8 => pack(all, |one| (one as i8).to_le_bytes()),
                DataType::Int16 => pack(all, |one| (one as i16).to_le_bytes()),
                _ => pack(all, i32::to_le_bytes),
            },
            Data::Uint(all) => match self.datatype {
                DataType::Uint8 => pack(all, |one| (one as u8).to_le_bytes()),
                DataType::Uint16 => pack(all, |one| (one as u16).to_le_bytes()),
                _ => pack(all, u32::to_le_bytes),
            },
            Data::Int64(all) => pack(all, i64::to_le_bytes),
            Data::Uint64(all) => pack(all, u64::to_le_bytes),
            Data::Fp32(all) => pack(all, f32::to_le_bytes),
            Data::Fp64(all) => pack(all, f64::to_le_bytes),
            Data::Bytes(all) => {
                let mut raw = Vec::with_capacity(self.bytes());
                for one in all {
                    // Bounded by the size of a request, which is below 4 GiB.
                    raw.extend_from_slice(&(one.len() as u32).to_le_bytes());
                    raw.extend_from_slice(one);
                }
                raw.into()
            }
        }
    }

    /// The same with strings as they travel raw. A list of short ones takes many times their bytes, and as long to drop.
    pub(crate) fn with_packed_strings(self) -> Tensor {
        match self.data {
            Data::Bytes(_) => Tensor { data: Data::Raw(self.to_raw()), ..self },
            _ => self,
        }
    }

    /// The elements unpacked, so that no variant but [`Data::Raw`] of FP16 stays raw.
    ///
    /// # Errors
    /// What does not fit: the number of bytes, a length of a string, a boolean that is neither 0 nor 1.
    pub fn unpacked(&self) -> Result<Data, String> {
        let Data::Raw(raw) = &self.data else { return Ok(self.data.clone()) };
        fn unpack<T, const N: usize>(raw: &[u8], value: impl Fn([u8; N]) -> T) -> Vec<T> {
            raw.as_chunks::<N>().0.iter().map(|bytes| value(*bytes)).collect()
        }
        if let Some(size) = self.datatype.size() {
            let elements = Tensor::elements(&self.shape).ok_or("a dimension is negative or too large")?;
            if elements.checked_mul(size) != Some(raw.len()) {
                return Err(format!(
                    "{} bytes of raw data, shape {:?} of {} takes {}",
                    raw.len(),
                    self.shape.as_slice(),
                    self.datatype,
                    elements.saturating_mul(size),
                ));
            }
        }
        Ok(match self.datatype {
            DataType::Bool => match raw.iter().find(|byte| **byte > 1) {
                Some(byte) => return Err(format!("a BOOL is {byte}, neither 0 nor 1")),
                None => Data::Bool(raw.iter().map(|byte| *byte == 1).collect()),
            },
            DataType::Uint8 => Data::Uint(raw.iter().map(|byte| u32::from(*byte)).collect()),
            DataType::Int8 => Data::Int(raw.iter().map(|byte| i32::from(*byte as i8)).collect()),
            DataType::Uint16 => Data::Uint(unpack(raw, |bytes| u16::from_le_bytes(bytes).into())),
            DataType::Int16 => Data::Int(unpack(raw, |bytes| i16::from_le_bytes(bytes).into())),
            DataType::Uint32 => Data::Uint(unpack(raw, u32::from_le_bytes)),
            DataType::Int32 => Data::Int(unpack(raw, i32::from_le_bytes)),
            DataType::Uint64 => Data::Uint64(unpack(raw, u64::from_le_bytes)),
            DataType::Int64 => Data::Int64(unpack(raw, i64::from_le_bytes)),
            DataType::Fp16 => self.data.clone(),
            DataType::Fp32 => Data::Fp32(unpack(raw, f32::from_le_bytes)),
            DataType::Fp64 => Data::Fp64(unpack(raw, f64::from_le_bytes)),
            DataType::Bytes => Data::Bytes(strings(raw)?),
        })
    }
}

/// Strings as they travel raw.
fn strings(raw: &Bytes) -> Result<Vec<Bytes>, String> {
    let mut all = Vec::new();
    each_string(raw, |place| all.push(raw.slice(place)))?;
    Ok(all)
}

/// The places of strings as they travel raw: each after its length.
fn each_string(raw: &[u8], mut found: impl FnMut(Range<usize>)) -> Result<(), String> {
    let (mut at, mut count) = (0, 0_usize);
    while at < raw.len() {
        let Some(length) = raw[at..].first_chunk::<4>() else {
            return Err(format!("raw BYTES end within the length of element {count}"));
        };
        let length = u32::from_le_bytes(*length) as usize;
        at += 4;
        if raw.len() - at < length {
            return Err(format!("element {count} says {length} bytes, {} are left", raw.len() - at));
        }
        found(at..at + length);
        at += length;
        count += 1;
    }
    Ok(())
}

/// What a model takes or gives under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorSpec {
    /// The name.
    pub name: Arc<str>,
    /// Type of the elements.
    pub datatype: DataType,
    /// Other types that are taken as well, converted as the model's own library converts them.
    pub also: &'static [DataType],
    /// Dimensions, -1 where any size will do.
    pub shape: Shape,
}

impl fmt::Display for TensorSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` {}{:?}", self.name, self.datatype, self.shape.as_slice())
    }
}

impl TensorSpec {
    /// Checks type, shape and number of elements of an input.
    ///
    /// # Errors
    /// What does not fit, with the input's name and what is expected.
    pub fn check(&self, tensor: &Tensor) -> Result<(), String> {
        let Tensor { datatype, shape, data, .. } = tensor;
        if *datatype != self.datatype && !self.also.contains(datatype) {
            return Err(format!("input `{}` has datatype {datatype}, {} is expected", self.name, self.datatype));
        }
        let fits = shape.len() == self.shape.len()
            && shape.iter().zip(&self.shape).all(|(size, spec)| *size >= 0 && (*spec < 0 || size == spec));
        let (fits, elements) = (fits, Tensor::elements(shape));
        let (true, Some(elements)) = (fits, elements) else {
            return Err(format!(
                "input `{}` has shape {:?}, {:?} is expected (-1: any size)",
                self.name,
                shape.as_slice(),
                self.shape.as_slice()
            ));
        };
        let given = match data {
            Data::Raw(raw) => match datatype.size() {
                Some(size) => {
                    let wanted = elements.saturating_mul(size);
                    if raw.len() != wanted {
                        return Err(format!(
                            "input `{}` has {} bytes of raw data, shape {:?} of {datatype} takes {wanted}",
                            self.name,
                            raw.len(),
                            shape.as_slice()
                        ));
                    }
                    elements
                }
                None => {
                    let mut count = 0;
                    each_string(raw, |_| count += 1).map_err(|problem| format!("input `{}`: {problem}", self.name))?;
                    count
                }
            },
            other => other.len(),
        };
        if given != elements {
            return Err(format!(
                "input `{}` has {given} elements, shape {:?} takes {elements}",
                self.name,
                shape.as_slice()
            ));
        }
        Ok(())
    }
}

/// What a model takes and gives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Signature {
    /// Inputs, all of them required.
    pub inputs: Vec<TensorSpec>,
    /// Outputs.
    pub outputs: Vec<TensorSpec>,
}

impl Signature {
    /// Checks a request's inputs.
    ///
    /// # Errors
    /// The first thing that does not fit, with the input's name and what is expected.
    pub fn check(&self, inputs: &[Tensor]) -> Result<(), String> {
        for (at, tensor) in inputs.iter().enumerate() {
            let Some(spec) = self.inputs.iter().find(|spec| spec.name == tensor.name) else {
                let known: Vec<_> = self.inputs.iter().map(ToString::to_string).collect();
                return Err(format!("the model has no input `{}`; it takes {}", tensor.name, known.join(", ")));
            };
            if inputs[..at].iter().any(|before| before.name == tensor.name) {
                return Err(format!("input `{}` is given twice", tensor.name));
            }
            spec.check(tensor)?;
        }
        match self.inputs.iter().find(|spec| !inputs.iter().any(|tensor| tensor.name == spec.name)) {
            Some(missing) => Err(format!("input {missing} is missing")),
            None => Ok(()),
        }
    }

    /// Bytes that the outputs (a bit for each) take for so many rows, as far as that can be told: of their dimensions of any
    /// size the first is the rows, and another counts once.
    pub(crate) fn bytes_of_outputs(&self, rows: usize, wanted: u64) -> usize {
        let bytes = |spec: &TensorSpec| {
            let sizes = spec.shape.iter().enumerate().map(|(at, size)| match usize::try_from(*size) {
                Ok(size) => size,
                Err(_) if at == 0 => rows,
                Err(_) => 1,
            });
            // A string has its length at least.
            sizes.fold(spec.datatype.size().unwrap_or(4), usize::saturating_mul)
        };
        let outputs = self.outputs.iter().enumerate().filter(|(at, _)| wanted >> at & 1 == 1);
        outputs.fold(0, |sum, (_, spec)| sum.saturating_add(bytes(spec)))
    }

    /// The output of this name.
    pub fn output(&self, name: &str) -> Option<&TensorSpec> {
        self.outputs.iter().find(|spec| &*spec.name == name)
    }
}

#[cfg(test)]
mod tests {
    use smallvec::smallvec;

    use super::*;

    fn spec() -> TensorSpec {
        TensorSpec { name: "x".into(), datatype: DataType::Fp32, also: &[], shape: smallvec![-1, 2] }
    }

    fn tensor(shape: &[i64], data: Data) -> Tensor {
        Tensor { name: "x".into(), datatype: DataType::Fp32, shape: shape.into(), data }
    }

    #[test]
    fn what_does_not_fit_is_named_with_what_is_expected() {
        let signature = Signature { inputs: vec![spec()], outputs: vec![] };
        let good = tensor(&[1, 2], Data::Fp32(vec![1.0, 2.0]));
        assert_eq!(signature.check(std::slice::from_ref(&good)), Ok(()));
        let told = |tensors: &[Tensor]| signature.check(tensors).expect_err("it does not fit");
        assert_eq!(told(&[]), "input `x` FP32[-1, 2] is missing");
        assert_eq!(told(&[good.clone(), good.clone()]), "input `x` is given twice");
        assert_eq!(
            told(&[tensor(&[2], Data::Fp32(vec![1.0, 2.0]))]),
            "input `x` has shape [2], [-1, 2] is expected (-1: any size)"
        );
        assert!(told(&[tensor(&[-1, 2], Data::Fp32(vec![]))]).contains("shape [-1, 2]"));
        assert!(told(&[tensor(&[i64::MAX, 2], Data::Fp32(vec![]))]).contains("has 0 elements"));
        assert_eq!(told(&[tensor(&[2, 2], Data::Fp32(vec![1.0]))]), "input `x` has 1 elements, shape [2, 2] takes 4");
        assert_eq!(
            told(&[tensor(&[1, 2], Data::Raw(Bytes::from_static(b"1234567")))]),
            "input `x` has 7 bytes of raw data, shape [1, 2] of FP32 takes 8"
        );
        assert_eq!(
            told(&[Tensor { datatype: DataType::Int64, ..good.clone() }]),
            "input `x` has datatype INT64, FP32 is expected"
        );
        assert_eq!(
            told(&[Tensor { name: "y".into(), ..good }]),
            "the model has no input `y`; it takes `x` FP32[-1, 2]"
        );
    }

    #[test]
    fn raw_and_typed_say_the_same() {
        let all = [
            (DataType::Bool, Data::Bool(vec![true, false])),
            (DataType::Uint8, Data::Uint(vec![0, 255])),
            (DataType::Uint16, Data::Uint(vec![0, 65535])),
            (DataType::Uint32, Data::Uint(vec![0, u32::MAX])),
            (DataType::Uint64, Data::Uint64(vec![0, u64::MAX])),
            (DataType::Int8, Data::Int(vec![-128, 127])),
            (DataType::Int16, Data::Int(vec![-32768, 32767])),
            (DataType::Int32, Data::Int(vec![i32::MIN, i32::MAX])),
            (DataType::Int64, Data::Int64(vec![i64::MIN, i64::MAX])),
            (DataType::Fp32, Data::Fp32(vec![1.5, -0.0])),
            (DataType::Fp64, Data::Fp64(vec![1.5, f64::MIN])),
            (DataType::Bytes, Data::Bytes(vec![Bytes::from_static(b""), Bytes::from_static(b"abc")])),
        ];
        for (datatype, data) in all {
            assert_eq!(DataType::parse(datatype.as_str()), Some(datatype));
            let typed = Tensor { name: "x".into(), datatype, shape: smallvec![2], data: data.clone() };
            let raw = Tensor { data: Data::Raw(typed.to_raw()), ..typed };
            assert_eq!(raw.unpacked(), Ok(data), "{datatype}");
        }
        let cut = Tensor {
            name: "x".into(),
            datatype: DataType::Bytes,
            shape: smallvec![1],
            data: Data::Raw(Bytes::from_static(b"\x05\0\0\0abc")),
        };
        assert_eq!(cut.unpacked(), Err("element 0 says 5 bytes, 3 are left".to_owned()));
        let odd = Tensor {
            datatype: DataType::Bool,
            shape: smallvec![1],
            data: Data::Raw(Bytes::from_static(b"\x02")),
            ..cut
        };
        assert_eq!(odd.unpacked(), Err("a BOOL is 2, neither 0 nor 1".to_owned()));
    }
}
