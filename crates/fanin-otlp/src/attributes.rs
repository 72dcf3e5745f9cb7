//! Attributes by the stable semantic conventions of OpenTelemetry for HTTP, RPC and databases, version 1.43.

use http::{Method, Version};
use opentelemetry::KeyValue;

use crate::record::{CallRecord, Kind, UpstreamRecord};

/// Attributes of a span.
#[derive(Default)]
pub(crate) struct Attributes(pub(crate) Vec<KeyValue>);

impl Attributes {
    pub(crate) fn text(&mut self, name: &'static str, value: impl Into<String>) {
        self.0.push(KeyValue::new(name, value.into()));
    }

    pub(crate) fn number(&mut self, name: &'static str, value: impl Into<i64>) {
        self.0.push(KeyValue::new(name, value.into()));
    }

    /// `http.request.method`. Unknown ones are `_OTHER`, so that they cannot be many.
    pub(crate) fn method(&mut self, method: &str) -> &'static str {
        const KNOWN: [&str; 9] = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "CONNECT", "TRACE"];
        match KNOWN.iter().find(|known| **known == method) {
            Some(known) => {
                self.text("http.request.method", *known);
                known
            }
            None => {
                self.text("http.request.method", "_OTHER");
                self.text("http.request.method_original", method);
                "HTTP"
            }
        }
    }

    pub(crate) fn version(&mut self, version: Version) {
        let text = match version {
            Version::HTTP_10 => "1.0",
            Version::HTTP_2 => "2",
            _ => "1.1",
        };
        self.text("network.protocol.version", text);
    }

    /// The name of a call's span, and what it called.
    pub(crate) fn called(&mut self, call: &CallRecord) -> String {
        let upstream = &*call.upstream;
        self.text("fanin.upstream", &*upstream.name);
        if let Some(operation) = &call.operation {
            self.text("fanin.operation", &**operation);
        }
        if let Some((file, line)) = call.line.rsplit_once(':') {
            self.text("code.file.path", file);
            if let Ok(line) = line.parse::<u32>() {
                self.number("code.line.number", line);
            }
        }
        if let Some(shared) = call.shared {
            self.text("fanin.shared", shared);
        }
        let (method, target) = call.target.split_once(' ').unwrap_or(("", &call.target));
        match upstream.kind {
            Kind::Http => {
                let method = self.method(if method.is_empty() { Method::GET.as_str() } else { method });
                self.server(upstream);
                let path = target.split('?').next().unwrap_or_default();
                let port = upstream.port.map_or(String::new(), |port| format!(":{port}"));
                self.text("url.full", format!("{}://{}{port}{path}", upstream.scheme, upstream.host));
                method.to_owned()
            }
            Kind::Grpc => {
                let full = target.trim_start_matches('/');
                self.text("rpc.system.name", "grpc");
                self.text("rpc.method", full);
                self.server(upstream);
                full.to_owned()
            }
            Kind::Database(system) => {
                self.text("db.system.name", system);
                if let Some(namespace) = &upstream.namespace {
                    self.text("db.namespace", &**namespace);
                }
                self.server(upstream);
                match &call.operation {
                    Some(statement) => {
                        self.text("db.query.summary", &**statement);
                        statement.to_string()
                    }
                    None => upstream.namespace.clone().unwrap_or_else(|| system.to_owned()),
                }
            }
            Kind::Local => upstream.name.clone(),
        }
    }

    fn server(&mut self, upstream: &UpstreamRecord) {
        self.text("server.address", &*upstream.host);
        if let Some(port) = upstream.port {
            self.number("server.port", port);
        }
    }

    /// How a call or an attempt ended. Whether it failed.
    pub(crate) fn outcome(&mut self, kind: Kind, outcome: &str) -> bool {
        let status = outcome.parse::<u16>().ok();
        match (kind, status) {
            (Kind::Http, Some(status)) => self.number("http.response.status_code", status),
            (Kind::Grpc, Some(200)) => self.text("rpc.response.status_code", "OK"),
            _ => {}
        }
        // For a client, every 4xx is an error, too.
        let failed = status.is_none_or(|status| status >= 400) && outcome != "cancelled";
        if failed {
            self.text("error.type", outcome);
        }
        if outcome == "cancelled" {
            self.text("fanin.outcome", outcome);
        }
        failed
    }
}
