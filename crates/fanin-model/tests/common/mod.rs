//! A repository in a temporary folder.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fanin_model::{Answer, Data, DataType, Infer, InferError, Models, Tensor};
use smallvec::smallvec;
use tempfile::TempDir;

pub fn data(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

pub struct Repository {
    pub dir: TempDir,
}

impl Repository {
    pub fn new() -> Repository {
        Repository { dir: tempfile::tempdir().expect("a folder") }
    }

    /// With model `spam`, version 1, which is `one`.
    pub fn with_spam() -> Repository {
        let repository = Repository::new();
        repository.put("spam", 1, "model.txt", &data("one.txt"));
        repository
    }

    pub fn version(&self, model: &str, version: u64) -> PathBuf {
        self.dir.path().join(model).join(version.to_string())
    }

    pub fn put(&self, model: &str, version: u64, file: &str, bytes: &[u8]) {
        let path = self.version(model, version);
        fs::create_dir_all(&path).expect("made");
        // A name that is not looked for, then renamed: as a careful tool writes.
        fs::write(path.join("new"), bytes).expect("written");
        fs::rename(path.join("new"), path.join(file)).expect("renamed");
    }

    pub fn remove(&self, model: &str, version: u64) {
        fs::remove_dir_all(self.version(model, version)).expect("removed");
    }

    pub fn config(&self) -> fanin_config::Models {
        fanin_config::Models {
            threads: 2,
            control: true,
            timeout: Duration::from_secs(60),
            ..fanin_config::Models::new(self.dir.path())
        }
    }

    pub fn start(&self) -> Models {
        Models::start(&self.config()).expect("it starts")
    }
}

/// The first row of the models' samples.
pub fn row() -> Tensor {
    let data = Data::Fp64(vec![0.5, -1.25, 0.0, 2.0]);
    Tensor { name: "input".into(), datatype: DataType::Fp64, shape: smallvec![1, 4], data }
}

pub fn deadline() -> tokio::time::Instant {
    tokio::time::Instant::now() + Duration::from_secs(60)
}

pub async fn ask(models: &Models, model: &str, version: &str) -> Result<Answer, InferError> {
    models.infer(Infer { model, version, inputs: vec![row()], outputs: &[], deadline: deadline() }).await
}

/// What `one`, `two` and `three` answer for [`row`], by their samples.
pub fn expected(name: &str) -> f64 {
    let sample: serde_json::Value = serde_json::from_slice(&data(&format!("{name}.sample.json"))).expect("JSON");
    sample["outputs"][0]["data"][0].as_f64().expect("a number")
}

/// The first number of the first output.
pub fn first(answer: &Answer) -> f64 {
    match &answer.outputs[0].data {
        Data::Fp64(all) => all[0],
        Data::Fp32(all) => f64::from(all[0]),
        other => panic!("{other:?}"),
    }
}

/// Version and output.
pub async fn says(models: &Models, model: &str) -> (String, f64) {
    let answer = ask(models, model, "").await.unwrap_or_else(|error| panic!("{error}"));
    (answer.version.text().to_string(), first(&answer))
}
