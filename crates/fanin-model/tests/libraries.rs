//! The tree engine against LightGBM and XGBoost themselves: raw scores and predictions of thousands of rows, bit for bit.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use fanin_model::engine::{Engine, trees::Trees};
use fanin_model::{Data, DataType, LoadError, Tensor};
use smallvec::smallvec;

fn libraries_python() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let python = root.join(".venv/trees/bin/python");
    assert!(python.exists(), "LightGBM and XGBoost are not installed: run `.ci/setup trees`");
    python
}

fn load(path: &Path) -> Result<Trees, LoadError> {
    let bytes = fs::read(path).expect("the model was written");
    if path.extension().is_some_and(|end| end == "txt") {
        Trees::lightgbm(&bytes, usize::MAX)
    } else {
        Trees::xgboost(&bytes, usize::MAX)
    }
}

/// What the library predicted; see `libraries/make.py`.
struct Expected {
    rows: usize,
    input: Vec<f64>,
    /// Bits, so that NaN and signs of zero count.
    raw: Vec<u64>,
    output: Vec<u64>,
}

fn expected(path: &Path, single: bool) -> Expected {
    let bytes = fs::read(path).expect("the expectation was written");
    let (head, rest) = bytes.split_at(24);
    let head: Vec<usize> = head.as_chunks::<8>().0.iter().map(|all| i64::from_le_bytes(*all) as usize).collect();
    let [rows, groups, columns] = head[..] else { unreachable!("three counts") };
    let width = if single { 4 } else { 8 };
    let own = rows * (groups + columns) * width;
    let (input, own) = rest.split_at(rest.len() - own);
    let bits = |bytes: &[u8]| -> Vec<u64> {
        let one = |all: &[u8]| match all.try_into().map(u32::from_le_bytes) {
            Ok(single) => u64::from(single),
            Err(_) => u64::from_le_bytes(all.try_into().expect("eight bytes")),
        };
        bytes.chunks_exact(width).map(one).collect()
    };
    let (raw, output) = own.split_at(rows * groups * width);
    let input = input.as_chunks::<8>().0.iter().map(|all| f64::from_le_bytes(*all)).collect();
    Expected { rows, input, raw: bits(raw), output: bits(output) }
}

fn bits(tensor: &Tensor) -> Vec<u64> {
    match &tensor.data {
        Data::Fp32(all) => all.iter().map(|value| u64::from(value.to_bits())).collect(),
        Data::Fp64(all) => all.iter().map(|value| value.to_bits()).collect(),
        other => panic!("{other:?}"),
    }
}

/// Differing places, with both values' bits.
fn differences(ours: &[u64], theirs: &[u64]) -> Vec<(usize, u64, u64)> {
    assert_eq!(ours.len(), theirs.len());
    let pairs = ours.iter().zip(theirs).enumerate();
    pairs.filter(|(_, (a, b))| a != b).map(|(at, (a, b))| (at, *a, *b)).collect()
}

#[test]
fn predictions_are_the_libraries_own_bit_for_bit() {
    let dir = tempfile::tempdir().expect("a folder");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/libraries/make.py");
    let status = Command::new(libraries_python()).arg(script).arg(dir.path()).status().expect("python runs");
    assert!(status.success());
    let list = fs::read_to_string(dir.path().join("list")).expect("written");
    let mut wrong = Vec::new();
    let mut models = 0;
    for line in list.lines() {
        let (name, file) = line.split_once(' ').expect("two words");
        let model = match load(&dir.path().join(file)) {
            Ok(model) => model,
            Err(error) => {
                wrong.push(format!("{name}: {error}"));
                continue;
            }
        };
        models += 1;
        let single = name.starts_with("xgb");
        let expected = expected(&dir.path().join(format!("{name}.expected")), single);
        assert!(expected.rows >= 3000);
        let features = expected.input.len() / expected.rows;
        let shape = smallvec![expected.rows as i64, features as i64];
        let typed = Tensor { name: "input".into(), datatype: DataType::Fp64, shape, data: Data::Fp64(expected.input) };
        let raw = Tensor { data: Data::Raw(typed.to_raw()), ..typed.clone() };
        for input in [typed, raw] {
            model.signature().check(std::slice::from_ref(&input)).unwrap_or_else(|problem| panic!("{name}: {problem}"));
            let outputs = model.infer(&[input], 0b11).unwrap_or_else(|error| panic!("{name}: {error}"));
            for (what, tensor, theirs) in
                [("output", &outputs[0], &expected.output), ("raw", &outputs[1], &expected.raw)]
            {
                model.signature().outputs.iter().find(|spec| spec.name == tensor.name).expect("it is in the signature");
                let found = differences(&bits(tensor), theirs);
                if let Some((at, ours, theirs)) = found.first() {
                    let count = found.len();
                    wrong.push(format!("{name}: {what}: {count} differ, the first at {at}: {ours:x} for {theirs:x}"));
                }
            }
        }
    }
    for entry in fs::read_dir(dir.path().join("refused")).expect("there") {
        let path = entry.expect("read").path();
        match load(&path) {
            Err(LoadError::Unsupported { .. }) => {}
            other => wrong.push(format!("{}: is not refused as unsupported: {other:?}", path.display())),
        }
    }
    assert!(wrong.is_empty(), "{models} models were read;\n{}", wrong.join("\n"));
    assert!(models >= 40, "only {models} models");
}
