//! ONNX models, computed by ONNX Runtime.
//!
//! The runtime's library is loaded when the first ONNX model is, from a path of the configuration or the system's folders; a
//! process without ONNX models never looks for it, and one without the library serves everything else. A session computes one
//! request at a time on the thread that asks it and starts none of its own, so that the pool's threads stay all there are.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, PoisonError};

use bytes::Bytes;
use ort::environment::Environment;
use ort::session::{Session, SessionInputValue};
use ort::value::{DynValue, Outlet, Tensor as OrtTensor, TensorElementType, ValueType};

use super::Engine;
use crate::{Data, DataType, InferError, LoadError, Shape, Signature, Tensor, TensorSpec};

/// The environment once the library is loaded. A library that could not be loaded is looked for again with the next model.
static RUNTIME: Mutex<Option<Environment>> = Mutex::new(None);

/// Where systems keep libraries.
const FOLDERS: [&str; 6] =
    ["/usr/local/lib", "/usr/lib", "/usr/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/opt/lib"];

/// What an ONNX model is loaded with.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The runtime's library, or a folder that has it; without it the system's folders are searched.
    pub library: Option<PathBuf>,
    /// Sessions: requests that are computed at once. 0 is one.
    pub sessions: usize,
}

/// An ONNX model.
pub struct Onnx {
    signature: Signature,
    /// Sessions that compute nothing now.
    idle: Mutex<Vec<Session>>,
    returned: Condvar,
    memory: usize,
}

impl fmt::Debug for Onnx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Onnx").field("signature", &self.signature).finish_non_exhaustive()
    }
}

/// The library's file: as named, in the folder that is named, or in one of the system's.
fn find(named: Option<&Path>) -> Result<PathBuf, LoadError> {
    let in_folder = |folder: &Path| {
        let entries = std::fs::read_dir(folder).ok()?.filter_map(Result::ok);
        // The wheel's has its version behind the ending: libonnxruntime.so.1.31.1.
        let is_it = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            (name == "libonnxruntime.so" || name.starts_with("libonnxruntime.so.") || name == "libonnxruntime.dylib")
                && path.is_file()
        };
        entries.map(|entry| entry.path()).filter(is_it).min()
    };
    const GET: &str = "ONNX models are computed by the library of ONNX Runtime, 1.17 or later: `pip install onnxruntime` \
                       brings it as onnxruntime/capi/libonnxruntime.so.*, and models.onnx_library names the file or its folder";
    match named {
        Some(path) if path.is_dir() => in_folder(path).ok_or_else(|| {
            LoadError::Library(format!(
                "models.onnx_library: there is no libonnxruntime.so in {}; {GET}",
                path.display()
            ))
        }),
        Some(path) if path.is_file() => Ok(path.to_owned()),
        Some(path) => {
            Err(LoadError::Library(format!("models.onnx_library: there is no file {}; {GET}", path.display())))
        }
        None => FOLDERS.iter().find_map(|folder| in_folder(Path::new(folder))).ok_or_else(|| {
            LoadError::Library(format!("{GET}; it is not set, and none of these has it: {}", FOLDERS.join(", ")))
        }),
    }
}

/// The environment, with the library loaded.
fn runtime(named: Option<&Path>) -> Result<Environment, LoadError> {
    // It is set in one step.
    let mut runtime = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(runtime) = &*runtime {
        return Ok(runtime.clone());
    }
    let path = find(named)?;
    let failed = |error: &dyn fmt::Display| {
        LoadError::Library(format!("{} can't be used as ONNX Runtime's library: {error}", path.display()))
    };
    let builder = ort::init_from(&path).map_err(|error| failed(&error))?;
    let made = builder.with_name("fanin").with_telemetry(false).build().map_err(|error| failed(&error.message()))?;
    // What goes wrong comes back as an error; it need not stand in the log as well, in a form of its own.
    made.set_log_level(ort::logging::LogLevel::Fatal);
    Ok(runtime.insert(made).clone())
}

impl Onnx {
    /// Builds the sessions of a model.
    ///
    /// # Errors
    /// The library is not there, the model is broken, or it asks for what the runtime does not have: operators of others,
    /// inputs that are no tensors.
    pub fn load(bytes: &[u8], settings: &Settings) -> Result<Onnx, LoadError> {
        let runtime = runtime(settings.library.as_deref())?;
        let sessions =
            (0..settings.sessions.max(1)).map(|_| session(&runtime, bytes)).collect::<Result<Vec<_>, _>>()?;
        // There is at least one.
        let first = &sessions[0];
        let signature = Signature {
            inputs: first.inputs().iter().map(|outlet| spec("input", outlet)).collect::<Result<_, _>>()?,
            outputs: first.outputs().iter().map(|outlet| spec("output", outlet)).collect::<Result<_, _>>()?,
        };
        if signature.outputs.len() > 64 {
            return Err(LoadError::unsupported("outputs", format!("has {}, 64 are the most", signature.outputs.len())));
        }
        // The runtime does not tell what a session holds. Weights are most of it, once in each session.
        let memory = bytes.len().saturating_mul(sessions.len()).saturating_add(1 << 20);
        Ok(Onnx { signature, idle: Mutex::new(sessions), returned: Condvar::new(), memory })
    }

    fn take(&self) -> Session {
        // A session is put back in one step, even by a panic.
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match idle.pop() {
                Some(session) => return session,
                // Only the pool's threads come here, and whoever holds a session computes.
                None => idle = self.returned.wait(idle).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

fn session(runtime: &Environment, bytes: &[u8]) -> Result<Session, LoadError> {
    let made = || -> Result<Session, ort::Error> {
        let builder = Session::builder(runtime)?.with_intra_threads(1)?.with_inter_threads(1)?;
        builder.with_intra_op_spinning(false)?.commit_from_memory(bytes)
    };
    made().map_err(|error| {
        let message = error.message().replace('\n', " ");
        // It says so in words only; the code is that of any failure.
        if message.contains("is not a registered function/op") || message.contains("No opset import for domain") {
            LoadError::unsupported("the graph", format!("it wants a custom operator ({message})"))
        } else {
            LoadError::broken("the graph", message)
        }
    })
}

fn spec(what: &str, outlet: &Outlet) -> Result<TensorSpec, LoadError> {
    let name = outlet.name();
    let at = || format!("{what} `{name}`");
    let ValueType::Tensor { ty, shape, .. } = outlet.dtype() else {
        let what = "is no tensor (for scikit-learn's classifiers export with zipmap off)";
        return Err(LoadError::unsupported(at(), what));
    };
    let datatype = match ty {
        TensorElementType::Bool => DataType::Bool,
        TensorElementType::Uint8 => DataType::Uint8,
        TensorElementType::Uint16 => DataType::Uint16,
        TensorElementType::Uint32 => DataType::Uint32,
        TensorElementType::Uint64 => DataType::Uint64,
        TensorElementType::Int8 => DataType::Int8,
        TensorElementType::Int16 => DataType::Int16,
        TensorElementType::Int32 => DataType::Int32,
        TensorElementType::Int64 => DataType::Int64,
        TensorElementType::Float32 => DataType::Fp32,
        TensorElementType::Float64 => DataType::Fp64,
        TensorElementType::String => DataType::Bytes,
        other => return Err(LoadError::unsupported(at(), format!("has elements of type {other}"))),
    };
    Ok(TensorSpec { name: name.into(), datatype, also: &[], shape: Shape::from_slice(shape) })
}

fn given(tensor: &Tensor) -> Result<SessionInputValue<'static>, InferError> {
    let about = |problem: String| InferError::Invalid(format!("input `{}`: {problem}", tensor.name));
    let shape = tensor.shape.to_vec();
    fn numbers<T: ort::value::PrimitiveTensorElementType + fmt::Debug + Clone + 'static>(
        shape: Vec<i64>,
        all: Vec<T>,
    ) -> ort::Result<DynValue> {
        Ok(OrtTensor::from_array((shape, all))?.into_dyn())
    }
    // Their bounds are checked: a raw tensor's by its width, a typed one's here.
    fn narrow<F: Copy + fmt::Display, T: TryFrom<F>>(all: Vec<F>, datatype: DataType) -> Result<Vec<T>, String> {
        let one = |one: F| T::try_from(one).map_err(|_| format!("{one} is no {datatype}"));
        all.into_iter().map(one).collect()
    }
    let made = match tensor.unpacked().map_err(about)? {
        Data::Bool(all) => numbers(shape, all),
        Data::Int(all) => match tensor.datatype {
            DataType::Int8 => numbers(shape, narrow::<_, i8>(all, tensor.datatype).map_err(about)?),
            DataType::Int16 => numbers(shape, narrow::<_, i16>(all, tensor.datatype).map_err(about)?),
            _ => numbers(shape, all),
        },
        Data::Uint(all) => match tensor.datatype {
            DataType::Uint8 => numbers(shape, narrow::<_, u8>(all, tensor.datatype).map_err(about)?),
            DataType::Uint16 => numbers(shape, narrow::<_, u16>(all, tensor.datatype).map_err(about)?),
            _ => numbers(shape, all),
        },
        Data::Int64(all) => numbers(shape, all),
        Data::Uint64(all) => numbers(shape, all),
        Data::Fp32(all) => numbers(shape, all),
        Data::Fp64(all) => numbers(shape, all),
        Data::Bytes(all) => {
            let text = |one: &Bytes| String::from_utf8(one.to_vec()).map_err(|_| about("is not UTF-8".to_owned()));
            let all = all.iter().map(text).collect::<Result<Vec<String>, _>>()?;
            OrtTensor::from_string_array((shape, all.as_slice())).map(|tensor| tensor.into_dyn())
        }
        Data::Raw(_) => return Err(about("FP16 is not taken".to_owned())),
    };
    Ok(made.map_err(|error| about(error.message().to_owned()))?.into())
}

fn got(spec: &TensorSpec, value: &DynValue) -> Result<Tensor, InferError> {
    let (shape, data) = extracted(spec.datatype, value)
        .map_err(|error| InferError::Engine(format!("output `{}` can't be read: {}", spec.name, error.message())))?;
    Ok(Tensor { name: spec.name.clone(), datatype: spec.datatype, shape, data })
}

fn extracted(datatype: DataType, value: &DynValue) -> ort::Result<(Shape, Data)> {
    macro_rules! of {
        ($kind:ty, $data:ident) => {{
            let (shape, all) = value.try_extract_tensor::<$kind>()?;
            (Shape::from_slice(shape), Data::$data(all.iter().map(|one| (*one).into()).collect()))
        }};
    }
    Ok(match datatype {
        DataType::Bool => of!(bool, Bool),
        DataType::Uint8 => of!(u8, Uint),
        DataType::Uint16 => of!(u16, Uint),
        DataType::Uint32 => of!(u32, Uint),
        DataType::Uint64 => of!(u64, Uint64),
        DataType::Int8 => of!(i8, Int),
        DataType::Int16 => of!(i16, Int),
        DataType::Int32 => of!(i32, Int),
        DataType::Int64 => of!(i64, Int64),
        DataType::Fp32 => of!(f32, Fp32),
        DataType::Fp64 => of!(f64, Fp64),
        DataType::Bytes => {
            let (shape, all) = value.try_extract_strings()?;
            (Shape::from_slice(shape), Data::Bytes(all.into_iter().map(Bytes::from).collect()))
        }
        DataType::Fp16 => return Err(ort::Error::new("FP16 is not given")),
    })
}

/// A session that goes back whatever happens.
struct Borrowed<'a> {
    of: &'a Onnx,
    session: Option<Session>,
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            self.of.idle.lock().unwrap_or_else(PoisonError::into_inner).push(session);
            self.of.returned.notify_one();
        }
    }
}

impl Engine for Onnx {
    fn platform(&self) -> &str {
        "onnxruntime_onnx"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn memory(&self) -> usize {
        self.memory
    }

    /// The graph may do anything with its first dimension.
    fn rows_are_independent(&self) -> bool {
        false
    }

    /// A session may be waited for, and how long a graph takes depends on more than the number of rows.
    fn may_compute_inline(&self) -> bool {
        false
    }

    fn infer(&self, inputs: &[Tensor], wanted: u64) -> Result<Vec<Tensor>, InferError> {
        let mut values = Vec::with_capacity(inputs.len());
        for tensor in inputs {
            values.push((&*tensor.name, given(tensor)?));
        }
        let mut borrowed = Borrowed { of: self, session: Some(self.take()) };
        // It was put there in the line above.
        let Some(session) = &mut borrowed.session else { return Ok(Vec::new()) };
        let outputs = session.run(values).map_err(|error| {
            let message = error.message().replace('\n', " ");
            match error.code() {
                ort::ErrorCode::InvalidArgument => InferError::Invalid(message),
                _ => InferError::Engine(message),
            }
        })?;
        let is_wanted = |at: &usize| wanted & 1 << at != 0;
        let specs = self.signature.outputs.iter().enumerate().filter(|(at, _)| is_wanted(at));
        let read = specs.map(|(_, spec)| match outputs.get(&*spec.name) {
            Some(value) => got(spec, value),
            None => Err(InferError::Engine(format!("the model gave no output `{}`", spec.name))),
        });
        read.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_not_there_is_told_with_how_to_get_it() {
        let dir = tempfile::tempdir().expect("a folder");
        let told = |path: &Path| find(Some(path)).expect_err("nothing is there").to_string();
        let text = told(dir.path());
        assert!(
            text.contains("there is no libonnxruntime.so in") && text.contains("pip install onnxruntime"),
            "{text}"
        );
        assert!(told(&dir.path().join("none.so")).contains("there is no file"));
        let file = dir.path().join("libonnxruntime.so.1.31.1");
        std::fs::write(&file, "no library").expect("written");
        assert_eq!(find(Some(dir.path())).expect("found"), file);
        let text = runtime(Some(dir.path())).expect_err("it is none").to_string();
        assert!(text.contains("can't be used as ONNX Runtime's library"), "{text}");
    }
}
