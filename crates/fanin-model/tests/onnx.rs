//! ONNX models against ONNX Runtime's own Python, through the same library.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use fanin_model::engine::Engine;
use fanin_model::engine::onnx::{Onnx, Settings};
use fanin_model::{Infer, InferError, LoadError, Models};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn environment() -> PathBuf {
    let environment = root().join(".venv/onnx");
    assert!(environment.join("bin/python").exists(), "ONNX Runtime is not installed: run `.ci/setup onnx`");
    environment
}

/// The library as the wheel brings it.
fn library() -> PathBuf {
    let versions = fs::read_dir(environment().join("lib")).expect("it has a library");
    let capi = |path: PathBuf| path.join("site-packages/onnxruntime/capi");
    versions.map(|entry| capi(entry.expect("an entry").path())).find(|path| path.is_dir()).expect("the wheel's folder")
}

fn made() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a folder");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/onnx/make.py");
    let status =
        Command::new(environment().join("bin/python")).arg(script).arg(dir.path()).status().expect("python runs");
    assert!(status.success());
    dir
}

fn settings() -> Settings {
    Settings { library: Some(library()), sessions: 2 }
}

fn refused(path: &Path) -> LoadError {
    Onnx::load(&fs::read(path).expect("written"), &settings()).expect_err("it must be refused")
}

#[test]
fn answers_are_the_runtimes_own_and_what_it_lacks_is_refused() {
    let dir = made();
    // The repository compares each model with its sample, which Python computed, before it serves.
    let repository = tempfile::tempdir().expect("a folder");
    for name in ["net", "trees", "types"] {
        let version = repository.path().join(name).join("1");
        fs::create_dir_all(version.parent().expect("a parent")).expect("made");
        fs::rename(dir.path().join(name), version).expect("moved");
    }
    fs::create_dir_all(repository.path().join("custom/1")).expect("made");
    fs::copy(dir.path().join("refused/custom.onnx"), repository.path().join("custom/1/model.onnx")).expect("copied");
    let mut config = fanin_config::Models::new(repository.path());
    config.onnx_library = Some(library());
    config.threads = 2;
    let threads = || -> Vec<String> {
        let tasks = fs::read_dir("/proc/self/task").expect("Linux");
        let name = |path: PathBuf| fs::read_to_string(path.join("comm")).unwrap_or_default().trim().to_owned();
        tasks.map(|task| name(task.expect("a task").path())).collect()
    };
    let before = threads();
    let models = Models::start(&config).expect("started");
    // Two that compute, one that watches, and one that the library starts for itself.
    let after = threads();
    assert!(after.len() <= before.len() + 4, "{before:?} before, {after:?} after");
    let failed: Vec<_> = models.index().into_iter().filter(|entry| !entry.ready).collect();
    assert_eq!(failed.len(), 1, "{failed:?}");
    assert!(failed[0].reason.contains("it wants a custom operator"), "{}", failed[0].reason);

    // Bit for bit, beyond what a sample's tolerance checks.
    for (name, single) in [("net", true), ("trees", true), ("types", false)] {
        let (_, version) = models.find(name, "").expect("ready");
        let text = fs::read(repository.path().join(name).join("1/sample.json")).expect("written");
        let sample: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
        let row = |at: &str| sample[at].as_array().expect("a list").clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let inputs: serde_json::Map<String, serde_json::Value> = row("inputs")
            .iter()
            .map(|one| (one["name"].as_str().expect("a name").to_owned(), nested(&one["shape"], &one["data"])))
            .collect();
        let body = serde_json::json!([inputs, null, null]).to_string();
        let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
        let (body, answered) =
            runtime.block_on(models.infer_from_flow(name, body.into(), deadline)).expect("an answer");
        assert_eq!(answered.number(), version.number());
        let answer: serde_json::Value = serde_json::from_slice(&body).expect("JSON");
        for output in row("outputs") {
            let ours = &answer[output["name"].as_str().expect("a name")];
            let theirs = nested(&output["shape"], &output["data"]);
            let same = if single { singles(ours) == singles(&theirs) } else { alike(ours, &theirs) };
            assert!(same, "{name} {}: {ours} is not {theirs}", output["name"]);
        }
    }

    let told = |name: &str| refused(&dir.path().join("refused").join(name)).to_string();
    assert!(told("custom.onnx").contains("it wants a custom operator") && told("custom.onnx").contains("Guess"));
    assert!(told("half.onnx").contains("input `x`: has elements of type"), "{}", told("half.onnx"));
    assert!(told("sequence.onnx").contains("output `y`: is no tensor"), "{}", told("sequence.onnx"));
    assert!(told("cut.onnx").starts_with("the graph: "), "{}", told("cut.onnx"));
    assert!(told("text.onnx").starts_with("the graph: "), "{}", told("text.onnx"));

    // Sessions are shared: more ask than there are.
    let net = fs::read(repository.path().join("net/1/model.onnx")).expect("written");
    let net = Onnx::load(&net, &settings()).expect("loaded");
    let zeros = fanin_model::Tensor {
        name: "x".into(),
        datatype: fanin_model::DataType::Fp32,
        shape: smallvec::smallvec![1, 20],
        data: fanin_model::Data::Fp32(vec![0.0; 20]),
    };
    let first = net.infer(std::slice::from_ref(&zeros), 1).expect("an answer");
    assert!(threads().len() <= after.len(), "sessions start threads: {:?}", threads());
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                for _ in 0..50 {
                    assert_eq!(net.infer(std::slice::from_ref(&zeros), 1).expect("an answer"), first);
                }
            });
        }
    });
    // A failed request leaves its session usable.
    let wide = fanin_model::Tensor { shape: smallvec::smallvec![2, 10], ..zeros.clone() };
    assert!(matches!(net.infer(&[wide], 1), Err(InferError::Invalid(_) | InferError::Engine(_))));
    assert_eq!(net.infer(std::slice::from_ref(&zeros), 1).expect("an answer"), first);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    let asked = Infer { model: "net", version: "", inputs: vec![zeros], outputs: &["p"], deadline };
    assert_eq!(runtime.block_on(models.infer(asked)).expect("an answer").outputs, first);
}

/// A flat list as nested ones.
fn nested(shape: &serde_json::Value, data: &serde_json::Value) -> serde_json::Value {
    let sizes: Vec<usize> =
        shape.as_array().expect("a shape").iter().map(|size| size.as_u64().expect("a size") as usize).collect();
    let flat = data.as_array().expect("data");
    match sizes[..] {
        [_] => data.clone(),
        [_, columns] => flat.chunks(columns).map(|row| serde_json::Value::from(row.to_vec())).collect(),
        _ => panic!("one or two dimensions"),
    }
}

/// Whether they say the same, however a number is written: 1 or 1.0.
fn alike(one: &serde_json::Value, other: &serde_json::Value) -> bool {
    use serde_json::Value;
    match (one, other) {
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| alike(one, other))
        }
        (Value::Number(one), Value::Number(other)) => one.as_f64() == other.as_f64(),
        (one, other) => one == other,
    }
}

/// Numbers as the single-precision ones that they are; Python writes them as doubles.
fn singles(value: &serde_json::Value) -> Vec<u32> {
    match value {
        serde_json::Value::Array(all) => all.iter().flat_map(singles).collect(),
        other => vec![(other.as_f64().expect("a number") as f32).to_bits()],
    }
}
