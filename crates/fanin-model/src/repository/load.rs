//! Loading one version: read the file, detect its format, build the engine, try it.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use smallvec::SmallVec;

use super::scan::{self, Found};
use super::shared::Shared;
use super::version::Version;
use crate::engine::onnx::{self, Onnx};
use crate::engine::{Engine, trees::Trees};
use crate::stats::Stats;
use crate::{Data, DataType, LoadError, Signature, Tensor, json};

/// Runs before a version serves, so that its memory is paged in and its time is known.
const WARM_UP_RUNS: usize = 16;
/// Bytes of `sample.json` at most.
const MAX_SAMPLE: u64 = 16 << 20;
/// Predicted nanoseconds a row of a model that could not be tried.
const DEFAULT_TIME_PER_ROW: u64 = 100_000;
/// Relative difference allowed between an output and the sample's.
const TOLERANCE: f64 = 1e-6;

/// Loads a version beside the running one.
pub(super) fn load(
    shared: &Shared,
    model: &Arc<str>,
    found: &Found,
    running: Option<&Signature>,
) -> Result<Version, LoadError> {
    let config = shared.config.load();
    let file = scan::model_file(&found.path)?;
    let used = shared.memory.load(Relaxed) as u64;
    let size = std::fs::metadata(&file).map_err(|source| LoadError::Read { path: file.clone(), source })?.len();
    let room = (config.memory as u64).saturating_sub(used);
    fits("the model's file", size, config.max_file as u64, "models.max_file")?;
    // A file larger than the free memory cannot become a model that fits.
    fits("the model's file, beside the other models", size, room, "models.memory")?;
    let bytes = read(&file, config.max_file as u64, "models.max_file")?;
    let settings = config.settings_of(model);
    let engine = engine(&file, &bytes, room, &onnx_settings(&config, &settings))?;
    let memory = engine.memory();
    fits("the loaded model, beside the other models", memory as u64, room, "models.memory")?;
    if let Some(running) = running
        && !settings.new_signature
        && running != engine.signature()
    {
        return Err(LoadError::Signature(other_signature(running, engine.signature(), model)));
    }
    let time_per_row = try_engine(&*engine, &found.path)?;
    // A file that changed while it was read is tried again by the next scan.
    if scan::fingerprint(&found.path)? != found.fingerprint {
        return Err(LoadError::broken(found.path.display().to_string(), "changed while it was being loaded"));
    }
    shared.memory.fetch_add(memory, Relaxed);
    Ok(Version {
        model: model.clone(),
        number: found.number,
        text: found.number.to_string().into(),
        engine,
        fingerprint: found.fingerprint.clone(),
        stats: Stats::default(),
        time_per_row: AtomicU64::new(time_per_row),
        memory,
        total: shared.memory.clone(),
    })
}

pub(super) fn fits(what: &str, bytes: u64, limit: u64, key: &'static str) -> Result<(), LoadError> {
    if bytes > limit {
        return Err(LoadError::TooLarge { what: what.to_owned(), bytes, limit, key });
    }
    Ok(())
}

fn read(path: &Path, limit: u64, key: &'static str) -> Result<Vec<u8>, LoadError> {
    let failed = |source| LoadError::Read { path: path.to_owned(), source };
    let file = File::open(path).map_err(failed)?;
    // The file may have grown since its size was checked.
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes).map_err(failed)?;
    fits("the file", bytes.len() as u64, limit, key)?;
    Ok(bytes)
}

/// What a model's file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    LightGbm,
    XgBoost,
    Onnx,
}

/// Bytes of a file from which its format is detected.
pub(super) const HEAD: u64 = 16;

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

impl Format {
    /// Detects the format by the file's first bytes; ONNX, which has no magic number, by the file name.
    pub fn detect(path: &Path, bytes: &[u8]) -> Result<Format, LoadError> {
        let name = name_of(path);
        let packed = match bytes {
            [0x1f, 0x8b, ..] => Some("gzip"),
            [b'P', b'K', 3 | 5, ..] => Some("zip"),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Some("zstd"),
            [b'B', b'Z', b'h', ..] => Some("bzip2"),
            [0xfd, b'7', b'z', b'X', b'Z', ..] => Some("xz"),
            _ => None,
        };
        if let Some(packed) = packed {
            let what = format!("is compressed ({packed}); decompress it first");
            return Err(LoadError::broken(name, what));
        }
        match bytes {
            [] => Err(LoadError::broken(name, "is empty")),
            [b't', b'r', b'e', b'e', b'\n' | b'\r', ..] => Ok(Format::LightGbm),
            [b'{', ..] => Ok(Format::XgBoost),
            _ if path.extension().is_some_and(|end| end == "onnx") => Ok(Format::Onnx),
            _ => {
                let what = "is none of: LightGBM's text, XGBoost's JSON or UBJSON, ONNX (model.onnx)";
                Err(LoadError::broken(name, what))
            }
        }
    }
}

fn onnx_settings(config: &fanin_config::Models, settings: &fanin_config::ModelSettings) -> onnx::Settings {
    onnx::Settings { library: config.onnx_library.clone(), sessions: settings.sessions.unwrap_or(1) }
}

/// Builds the engine that computes the file.
fn engine(path: &Path, bytes: &[u8], room: u64, onnx: &onnx::Settings) -> Result<Box<dyn Engine>, LoadError> {
    let room = usize::try_from(room).unwrap_or(usize::MAX);
    let name = name_of(path);
    let named = |error: LoadError| match error {
        LoadError::Broken { at, what } => LoadError::Broken { at: format!("{name}: {at}"), what },
        LoadError::Unsupported { at, what } => LoadError::Unsupported { at: format!("{name}: {at}"), what },
        other => other,
    };
    Ok(match Format::detect(path, bytes)? {
        Format::LightGbm => Box::new(Trees::lightgbm(bytes, room).map_err(named)?),
        Format::XgBoost => Box::new(Trees::xgboost(bytes, room).map_err(named)?),
        Format::Onnx => Box::new(Onnx::load(bytes, onnx).map_err(named)?),
    })
}

fn other_signature(running: &Signature, new: &Signature, model: &str) -> String {
    let list = |all: &[crate::TensorSpec]| all.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    format!(
        "takes {} and gives {}, the running version takes {} and gives {}; if that is intended, set \
         models.settings.{model}.new_signature = true",
        list(&new.inputs),
        list(&new.outputs),
        list(&running.inputs),
        list(&running.outputs)
    )
}

/// Runs the sample, or a row of zeros, several times. Returns nanoseconds a row.
fn try_engine(engine: &dyn Engine, path: &Path) -> Result<u64, LoadError> {
    let file = path.join("sample.json");
    let sample = |what: String| LoadError::Sample(what);
    let (inputs, expected) = if file.exists() {
        let bytes = read(&file, MAX_SAMPLE, "a sample's bound")?;
        let (inputs, expected) = json::sample(bytes.into()).map_err(sample)?;
        engine.signature().check(&inputs).map_err(sample)?;
        (inputs, expected)
    } else {
        match zeros(engine.signature()) {
            Some(inputs) => (inputs, Vec::new()),
            // There is no neutral value for strings. The first requests will show the time.
            None => return Ok(DEFAULT_TIME_PER_ROW),
        }
    };
    let has_sample = file.exists();
    let rows = inputs.first().and_then(|input| input.shape.first()).map_or(1, |rows| (*rows).max(1)) as u64;
    let mut best = u64::MAX;
    for run in 0..WARM_UP_RUNS {
        let started = Instant::now();
        let outputs = match engine.infer(&inputs, u64::MAX) {
            Ok(outputs) => outputs,
            // An ONNX graph may reject zeros.
            Err(error) if !has_sample && !engine.may_compute_inline() => {
                tracing::info!("the model rejects a row of zeros, so the time of a row is not known yet: {error}");
                return Ok(DEFAULT_TIME_PER_ROW);
            }
            Err(error) => return Err(sample(error.to_string())),
        };
        best = best.min(started.elapsed().as_nanos() as u64);
        if run == 0 {
            compare(&outputs, &expected).map_err(sample)?;
        }
    }
    Ok((best / rows).max(1))
}

fn zeros(signature: &Signature) -> Option<Vec<Tensor>> {
    let tensor = |spec: &crate::TensorSpec| {
        let shape: SmallVec<[i64; 4]> = spec.shape.iter().map(|size| if *size < 0 { 1 } else { *size }).collect();
        let bytes = Tensor::elements(&shape)?.checked_mul(spec.datatype.size()?)?;
        let data = Data::Raw(vec![0; bytes].into());
        Some(Tensor { name: spec.name.clone(), datatype: spec.datatype, shape, data })
    };
    signature.inputs.iter().map(tensor).collect()
}

/// Compares the outputs with the sample's, up to rounding.
fn compare(outputs: &[Tensor], expected: &[Tensor]) -> Result<(), String> {
    for expected in expected {
        let Some(output) = outputs.iter().find(|output| output.name == expected.name) else {
            return Err(format!("expects output `{}`, which the model does not give", expected.name));
        };
        if output.shape != expected.shape {
            let (ours, theirs) = (output.shape.as_slice(), expected.shape.as_slice());
            return Err(format!("output `{}` has shape {ours:?}, the sample says {theirs:?}", output.name));
        }
        let (ours, theirs) = (numbers(output)?, numbers(expected)?);
        for (at, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
            let same = ours == theirs
                || ours.is_nan() && theirs.is_nan()
                || (ours - theirs).abs() <= TOLERANCE * theirs.abs().max(1.0);
            if !same {
                return Err(format!("output `{}` at {at} is {ours}, the sample says {theirs}", output.name));
            }
        }
    }
    Ok(())
}

fn numbers(tensor: &Tensor) -> Result<Vec<f64>, String> {
    Ok(match tensor.unpacked()? {
        Data::Bool(all) => all.into_iter().map(|one| f64::from(u8::from(one))).collect(),
        Data::Int(all) => all.into_iter().map(f64::from).collect(),
        Data::Uint(all) => all.into_iter().map(f64::from).collect(),
        Data::Int64(all) => all.into_iter().map(|one| one as f64).collect(),
        Data::Uint64(all) => all.into_iter().map(|one| one as f64).collect(),
        Data::Fp32(all) => all.into_iter().map(f64::from).collect(),
        Data::Fp64(all) => all,
        // Only lengths are compared, which catches most mistakes.
        Data::Bytes(all) => all.into_iter().map(|one| one.len() as f64).collect(),
        Data::Raw(_) => return Err(format!("output `{}` of {} can't be compared", tensor.name, DataType::Fp16)),
    })
}
