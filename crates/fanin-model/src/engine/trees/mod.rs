//! Tree ensembles: models of LightGBM (text) and XGBoost (JSON, UBJSON), computed bit for bit as those libraries do.

mod build;
mod document;
mod lightgbm;
mod node;
mod objective;
mod ubjson;
mod value;
mod xgboost;

use std::cell::RefCell;

use smallvec::{SmallVec, smallvec};

use super::Engine;
use crate::{Data, DataType, InferError, LoadError, Signature, Tensor, TensorSpec};
use node::Forest;
use objective::Objective;

/// Which library a model is of; their arithmetic differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arithmetic {
    /// LightGBM: values, sums and transformations in double precision.
    Double,
    /// XGBoost: values, sums and transformations in single precision.
    Single,
}

/// A tree ensemble.
#[derive(Debug)]
pub struct Trees {
    forest: Forest,
    /// The output that each tree adds to; empty if there is one only.
    groups: Vec<u16>,
    /// What a tree's leaf is multiplied by (XGBoost's dart); empty if there is nothing to multiply.
    weights: Vec<f32>,
    /// What each output starts with; its length is the number of outputs.
    base: Vec<f64>,
    /// The sum is divided by this before the objective (LightGBM's random forest), not for the raw score.
    average: Option<f64>,
    objective: Objective,
    arithmetic: Arithmetic,
    features: usize,
    signature: Signature,
}

/// Columns of the two outputs, in the signature's order.
const OUTPUT: usize = 0;
const RAW: usize = 1;

impl Trees {
    /// Reads a model of LightGBM's text format. `room`: bytes that its sets of categories may take.
    ///
    /// # Errors
    /// What is broken, too large or not computed by this engine, with its place.
    pub fn lightgbm(text: &[u8], room: usize) -> Result<Trees, LoadError> {
        lightgbm::read(text, room)
    }

    /// Reads a model of XGBoost's JSON or UBJSON format. `room`: bytes that its sets of categories may take.
    ///
    /// # Errors
    /// What is broken, too large or not computed by this engine, with its place.
    pub fn xgboost(bytes: &[u8], room: usize) -> Result<Trees, LoadError> {
        xgboost::read(bytes, room)
    }

    fn with_signature(mut self, features: usize) -> Trees {
        let (own, also): (DataType, &[DataType]) = match self.arithmetic {
            Arithmetic::Double => (DataType::Fp64, &[DataType::Fp32]),
            Arithmetic::Single => (DataType::Fp32, &[DataType::Fp64]),
        };
        let output = |name: &str, columns: usize| TensorSpec {
            name: name.into(),
            datatype: own,
            also: &[],
            shape: smallvec![-1, columns as i64],
        };
        self.features = features;
        self.signature = Signature {
            inputs: vec![TensorSpec {
                name: "input".into(),
                datatype: own,
                also,
                shape: smallvec![-1, features as i64],
            }],
            outputs: vec![output("output", self.objective.columns(self.base.len())), output("raw", self.base.len())],
        };
        self
    }

    /// Features of a row.
    pub fn features(&self) -> usize {
        self.features
    }

    /// The raw scores of a row (all features, missing ones NaN), in the type that the model's library computes in.
    fn score(&self, row: &[f64], has_nan: bool, sums: &mut [f64]) {
        sums.copy_from_slice(&self.base);
        match self.arithmetic {
            Arithmetic::Double if self.groups.is_empty() => {
                // Kept in a register rather than behind the slice.
                let mut sum = self.base[0];
                self.forest.walk(row, has_nan, |_, leaf| sum += leaf);
                sums[0] = sum;
            }
            Arithmetic::Double => {
                self.forest.walk(row, has_nan, |tree, leaf| sums[usize::from(self.groups[tree])] += leaf);
            }
            Arithmetic::Single if self.groups.is_empty() && self.weights.is_empty() => {
                let mut sum = self.base[0] as f32;
                self.forest.walk(row, has_nan, |_, leaf| sum += leaf as f32);
                sums[0] = sum.into();
            }
            Arithmetic::Single => self.forest.walk(row, has_nan, |tree, leaf| {
                let group = self.groups.get(tree).map_or(0, |group| usize::from(*group));
                let weighted = match self.weights.get(tree) {
                    Some(weight) => leaf as f32 * weight,
                    None => leaf as f32,
                };
                sums[group] = f64::from(sums[group] as f32 + weighted);
            }),
        }
    }

    /// Outputs and raw scores of many rows.
    fn compute(&self, rows: Rows<'_>, count: usize, wanted: u64) -> [Vec<f64>; 2] {
        thread_local! {
            /// A row as the walk takes it. One a thread, so that a request allocates nothing for it.
            static ROW: RefCell<Vec<f64>> = const { RefCell::new(Vec::new()) };
        }
        let groups = self.base.len();
        let columns = self.objective.columns(groups);
        let (want_output, want_raw) = (wanted & 1 << OUTPUT != 0, wanted & 1 << RAW != 0);
        let mut outputs = Vec::with_capacity(if want_output { count * columns } else { 0 });
        let mut raw = Vec::with_capacity(if want_raw { count * groups } else { 0 });
        let mut sums: SmallVec<[f64; 8]> = smallvec![0.0; groups];
        ROW.with_borrow_mut(|row| {
            row.clear();
            row.resize(self.features, 0.0);
            for number in 0..count {
                let has_nan = match self.arithmetic {
                    Arithmetic::Double => rows.fill::<true>(number, row),
                    Arithmetic::Single => rows.fill::<false>(number, row),
                };
                self.score(row, has_nan, &mut sums);
                if want_raw {
                    raw.extend_from_slice(&sums);
                }
                if want_output {
                    if let Some(trees) = self.average {
                        sums.iter_mut().for_each(|sum| *sum /= trees);
                    }
                    match self.arithmetic {
                        Arithmetic::Double => self.objective.double(&mut sums),
                        Arithmetic::Single => self.objective.single(&mut sums),
                    }
                    outputs.extend_from_slice(&sums[..columns]);
                }
            }
            // A model of many features leaves no large buffer behind on every thread.
            if row.capacity() > 1 << 16 {
                *row = Vec::new();
            }
        });
        [outputs, raw]
    }
}

impl Engine for Trees {
    fn platform(&self) -> &str {
        match self.arithmetic {
            Arithmetic::Double => "lightgbm_text",
            Arithmetic::Single => "xgboost_json",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn memory(&self) -> usize {
        self.forest.memory() + self.groups.capacity() * 2 + self.weights.capacity() * 4 + size_of::<Trees>()
    }

    fn rows_are_independent(&self) -> bool {
        true
    }

    fn infer(&self, inputs: &[Tensor], wanted: u64) -> Result<Vec<Tensor>, InferError> {
        // The signature has been checked, so the one input is there with a count of rows that fits its data.
        let [input] = inputs else {
            return Err(InferError::Invalid(format!("the model takes 1 input, {} are given", inputs.len())));
        };
        let count = usize::try_from(input.shape[0]).unwrap_or(0);
        let rows = match (&input.data, input.datatype) {
            (Data::Raw(raw), DataType::Fp64) => Rows::Raw64(raw.as_chunks().0),
            (Data::Raw(raw), DataType::Fp32) => Rows::Raw32(raw.as_chunks().0),
            (Data::Fp64(all), _) => Rows::Double(all),
            (Data::Fp32(all), _) => Rows::Single(all),
            _ => return Err(InferError::Invalid("input `input` is neither FP64 nor FP32".to_owned())),
        };
        let computed = self.compute(rows, count, wanted);
        let outputs = self.signature.outputs.iter().zip(computed).enumerate();
        let outputs = outputs.filter(|(at, _)| wanted & 1 << at != 0).map(|(_, (spec, values))| Tensor {
            name: spec.name.clone(),
            datatype: spec.datatype,
            shape: smallvec![count as i64, spec.shape[1]],
            data: match self.arithmetic {
                Arithmetic::Double => Data::Fp64(values),
                // Exact: they were computed in single precision.
                Arithmetic::Single => Data::Fp32(values.into_iter().map(|value| value as f32).collect()),
            },
        });
        Ok(outputs.collect())
    }
}

/// Rows of an input, in whatever form they came.
#[derive(Clone, Copy)]
enum Rows<'a> {
    Double(&'a [f64]),
    Single(&'a [f32]),
    Raw64(&'a [[u8; 8]]),
    Raw32(&'a [[u8; 4]]),
}

impl Rows<'_> {
    /// Copies a row as the library would take it; tells whether a value of it is NaN.
    fn fill<const LIGHTGBM: bool>(self, number: usize, row: &mut [f64]) -> bool {
        fn copy<const LIGHTGBM: bool>(from: impl Iterator<Item = f64>, row: &mut [f64]) -> bool {
            let mut has_nan = false;
            for (place, value) in row.iter_mut().zip(from) {
                has_nan |= value.is_nan();
                *place = if LIGHTGBM {
                    // LightGBM copies only values that it does not take for zero, on a row of zeros.
                    if value.abs() <= node::ZERO { 0.0 } else { value }
                } else {
                    f64::from(value as f32)
                };
            }
            has_nan
        }
        let places = number * row.len()..(number + 1) * row.len();
        match self {
            Rows::Double(all) => copy::<LIGHTGBM>(all[places].iter().copied(), row),
            Rows::Single(all) => copy::<LIGHTGBM>(all[places].iter().map(|value| f64::from(*value)), row),
            Rows::Raw64(all) => copy::<LIGHTGBM>(all[places].iter().map(|bytes| f64::from_le_bytes(*bytes)), row),
            Rows::Raw32(all) => {
                copy::<LIGHTGBM>(all[places].iter().map(|bytes| f64::from(f32::from_le_bytes(*bytes))), row)
            }
        }
    }
}
