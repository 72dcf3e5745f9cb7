//! The receiver of OpenTelemetry's own collector.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use super::root;
use super::websocket::eventually;

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address").port()
}

/// A collector that runs: the receiver of OpenTelemetry's own, with an exporter that writes lines.
pub struct Collector {
    child: Child,
    pub port: u16,
    pub file: PathBuf,
    _dir: TempDir,
}

impl Collector {
    /// `protocol` is `grpc` or `http`. With `tls`, the folder has `cert.pem` and `key.pem`.
    pub fn start(protocol: &str, tls: Option<&Path>) -> Collector {
        let program = root().join(".venv/go/bin/otel-collector");
        assert!(program.exists(), "the collector is not installed: run .ci/setup otel");
        let dir = tempfile::tempdir().expect("a folder");
        let (port, file) = (free_port(), dir.path().join("spans.jsonl"));
        let tls = tls.map_or(String::new(), |tls| {
            format!(", tls: {{cert_file: {0}/cert.pem, key_file: {0}/key.pem}}", tls.display())
        });
        let config = format!(
            "receivers: {{otlp: {{protocols: {{{protocol}: {{endpoint: \"127.0.0.1:{port}\"{tls}}}}}}}}}\n\
             exporters: {{lines: {{path: {}}}}}\n\
             service:\n  telemetry: {{metrics: {{level: none}}}}\n  pipelines:\n    \
             traces: {{receivers: [otlp], exporters: [lines]}}\n    metrics: {{receivers: [otlp], exporters: [lines]}}\n",
            file.display()
        );
        let path = dir.path().join("config.yaml");
        fs::write(&path, config).expect("written");
        let mut command = Command::new(program);
        command.arg("--config").arg(format!("file:{}", path.display())).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().expect("the collector runs");
        let address = ([127, 0, 0, 1], port).into();
        eventually("the collector listens", || TcpStream::connect_timeout(&address, super::TIMEOUT).is_ok());
        Collector { child, port, file, _dir: dir }
    }

    /// The spans that it has got, once `done` holds, each with the attributes of its resource as `resource`.
    pub fn spans(&self, what: &str, done: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        let mut spans = Vec::new();
        eventually(what, || {
            let text = fs::read_to_string(&self.file).unwrap_or_default();
            let batches = text.lines().map_while(|line| serde_json::from_str::<Value>(line).ok());
            spans = batches.flat_map(|batch| spans_of(&batch)).collect();
            done(&spans)
        });
        spans
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The members of a list; none of anything else.
pub fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn spans_of(batch: &Value) -> Vec<Value> {
    let mut found = Vec::new();
    for resource in list(&batch["resourceSpans"]) {
        for scope in list(&resource["scopeSpans"]) {
            assert_eq!(scope["scope"]["name"], "fanin");
            found.extend(list(&scope["spans"]).map(|span| {
                let mut span = span.clone();
                span["resource"] = resource["resource"].clone();
                span
            }));
        }
    }
    found
}

/// An attribute as text.
pub fn attribute(of: &Value, key: &str) -> Option<String> {
    let value = list(&of["attributes"]).find(|one| one["key"] == key)?["value"].as_object()?.values().next()?;
    Some(value.as_str().map_or_else(|| value.to_string(), str::to_owned))
}
