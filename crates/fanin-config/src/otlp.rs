//! `[otlp]`: where spans and metrics are sent.

use std::collections::BTreeMap;
use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use indexmap::IndexMap;
use percent_encoding::percent_decode_str;
use schemars::{JsonSchema, json_schema};
use serde::Serialize;
use url::Url;

use crate::reader::{Table, replace};
use crate::schema::types::{self, leaf, variable};
use crate::upstream::http::parse_url;
use crate::upstream::tls::ClientTls;
use crate::values::http::header_name;
use crate::values::serialize;

/// `[otlp]`: spans of requests and calls, and metrics, are sent to a collector by the OpenTelemetry protocol. Keys that are left out are
/// taken from the variables `OTEL_EXPORTER_OTLP_ENDPOINT`, `_PROTOCOL`, `_HEADERS`, `_TIMEOUT` and `_CERTIFICATE`,
/// `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES`, if they are set.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Otlp {
    /// URL of the collector. With `protocol = "http"`, `/v1/traces` and `/v1/metrics` are appended. Default: port 4317 of
    /// this host, with `protocol = "http"` port 4318.
    #[serde(serialize_with = "serialize::display")]
    #[schemars(with = "types::UrlText")]
    pub endpoint: Url,
    /// `"grpc"`, or `"http"` for protobuf over HTTP/1.1.
    #[schemars(with = "OtlpProtocolText")]
    pub protocol: OtlpProtocol,
    /// Headers of each export, for example a token: `{ authorization = "Bearer ${TOKEN}" }`.
    #[serde(serialize_with = "serialize::headers")]
    #[schemars(with = "BTreeMap<String, String>")]
    pub headers: HeaderMap,
    /// Longest time of one export. What it carried is then dropped.
    #[serde(serialize_with = "serialize::duration")]
    #[schemars(with = "types::DurationText")]
    pub timeout: Duration,
    /// TLS to the collector, with `https`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "ClientTls")]
    pub tls: Option<ClientTls>,
    /// The name of this service in traces and metrics: `service.name`.
    #[schemars(with = "types::Text")]
    pub service_name: String,
    /// Further attributes of this process: `{ "deployment.environment.name" = "production" }`.
    #[serde(serialize_with = "serialize::named")]
    #[schemars(with = "BTreeMap<String, String>")]
    pub resource: IndexMap<String, String>,
    /// How often metrics are sent. `"off"`: never. `/metrics` has them in any case.
    #[serde(serialize_with = "serialize::optional_duration_or_off")]
    #[schemars(with = "types::Or<types::DurationText, types::Off>")]
    pub metrics: Option<Duration>,
    /// Most requests whose spans wait to be sent. Those of further ones are dropped.
    #[schemars(with = "types::Count<1, 1000000>")]
    pub queue: usize,
}

/// How an export is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OtlpProtocol {
    /// gRPC.
    #[default]
    Grpc,
    /// Protobuf over HTTP/1.1.
    Http,
}

leaf!(
    /// `"grpc"` or `"http"`.
    OtlpProtocolText,
    json_schema!({ "anyOf": [{ "enum": ["grpc", "http"] }, variable()] })
);

impl Default for Otlp {
    fn default() -> Otlp {
        Otlp {
            endpoint: local(OtlpProtocol::Grpc),
            protocol: OtlpProtocol::Grpc,
            headers: HeaderMap::new(),
            timeout: Duration::from_secs(10),
            tls: None,
            service_name: "fanin".to_owned(),
            resource: IndexMap::new(),
            metrics: None,
            queue: 2048,
        }
    }
}

#[allow(clippy::expect_used, reason = "both are valid URLs; a test parses them")]
fn local(protocol: OtlpProtocol) -> Url {
    let text = match protocol {
        OtlpProtocol::Grpc => "http://127.0.0.1:4317",
        OtlpProtocol::Http => "http://127.0.0.1:4318",
    };
    Url::parse(text).expect("a valid URL")
}

impl Otlp {
    pub(crate) fn read(mut table: Table<'_, '_>) -> Otlp {
        let mut otlp = Otlp::default();
        otlp.variables(&table);
        let words = [("grpc", OtlpProtocol::Grpc), ("http", OtlpProtocol::Http)];
        let protocol = table.choice("protocol", &words);
        replace(&mut otlp.protocol, protocol);
        if table.variable("OTEL_EXPORTER_OTLP_ENDPOINT").is_none() {
            otlp.endpoint = local(otlp.protocol);
        }
        let endpoint = table.parsed("endpoint", "a URL such as \"http://collector:4317\"", parse_url);
        replace(&mut otlp.endpoint, endpoint.map(|endpoint| endpoint.value));
        for (name, text) in table.strings("headers") {
            match header(&name.value, &text.text) {
                Ok((name, value)) => drop(otlp.headers.insert(name, value)),
                Err(problem) => table.reader().error(&name.span, format!("{}.headers: {problem}", table.name())),
            }
        }
        let timeout = table.duration("timeout");
        replace(&mut otlp.timeout, timeout);
        if let Some(tls) = table.table("tls").map(ClientTls::read) {
            if otlp.endpoint.scheme() != "https" {
                table.error("tls", "needs an endpoint with https://");
            }
            otlp.tls = Some(tls);
        }
        replace(&mut otlp.service_name, table.string("service_name"));
        for (name, text) in table.strings("resource") {
            otlp.resource.insert(name.value, text.text);
        }
        replace(&mut otlp.metrics, table.duration_or_off("metrics"));
        replace(&mut otlp.queue, table.count("queue", 1..=1_000_000));
        if otlp.service_name.is_empty() {
            table.error("service_name", "must not be empty");
        }
        table.finish();
        otlp
    }

    /// Takes what the variables of OpenTelemetry say.
    fn variables(&mut self, table: &Table<'_, '_>) {
        let wrong = |name: &str, problem: &str| {
            table.reader().error(table.span(), format!("{name}: {problem}"));
        };
        if let Some(text) = table.variable("OTEL_EXPORTER_OTLP_PROTOCOL") {
            match text.as_str() {
                "grpc" => self.protocol = OtlpProtocol::Grpc,
                "http/protobuf" => self.protocol = OtlpProtocol::Http,
                _ => wrong("OTEL_EXPORTER_OTLP_PROTOCOL", "is neither grpc nor http/protobuf"),
            }
        }
        if let Some(text) = table.variable("OTEL_EXPORTER_OTLP_ENDPOINT") {
            match parse_url(&text) {
                Ok(url) => self.endpoint = url,
                Err(problem) => wrong("OTEL_EXPORTER_OTLP_ENDPOINT", &problem),
            }
        }
        if let Some(text) = table.variable("OTEL_EXPORTER_OTLP_TIMEOUT") {
            match text.parse().map(Duration::from_millis) {
                Ok(timeout) if !timeout.is_zero() => self.timeout = timeout,
                _ => wrong("OTEL_EXPORTER_OTLP_TIMEOUT", "is not a number of milliseconds above zero"),
            }
        }
        for (name, text) in pairs(table.variable("OTEL_EXPORTER_OTLP_HEADERS")) {
            match header(&name, &text) {
                Ok((name, value)) => drop(self.headers.insert(name, value)),
                Err(problem) => wrong("OTEL_EXPORTER_OTLP_HEADERS", &problem),
            }
        }
        if let Some(file) = table.variable("OTEL_EXPORTER_OTLP_CERTIFICATE") {
            self.tls = Some(ClientTls { ca: Some(file.into()), ..ClientTls::default() });
        }
        self.resource.extend(pairs(table.variable("OTEL_RESOURCE_ATTRIBUTES")));
        if let Some(name) = self.resource.shift_remove("service.name") {
            self.service_name = name;
        }
        replace(&mut self.service_name, table.variable("OTEL_SERVICE_NAME"));
    }
}

/// `name=value,name=value`, percent-encoded.
fn pairs(text: Option<String>) -> Vec<(String, String)> {
    let decoded = |text: &str| percent_decode_str(text.trim()).decode_utf8_lossy().into_owned();
    let pair = |text: &str| text.split_once('=').map(|(name, value)| (decoded(name), decoded(value)));
    text.iter().flat_map(|text| text.split(',')).filter_map(pair).collect()
}

fn header(name: &str, value: &str) -> Result<(http::HeaderName, HeaderValue), String> {
    let name = header_name(name)?;
    let mut value =
        HeaderValue::from_str(value).map_err(|_| format!("the value of `{name}` is not allowed in a header"))?;
    value.set_sensitive(true);
    Ok((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_endpoints_are_valid() {
        assert_eq!(local(OtlpProtocol::Grpc).port(), Some(4317));
        assert_eq!(local(OtlpProtocol::Http).port(), Some(4318));
    }

    #[test]
    fn pairs_are_percent_encoded() {
        assert_eq!(
            pairs(Some("a=1, b=x%20y%2Cz ,,c".to_owned())),
            [("a".to_owned(), "1".to_owned()), ("b".to_owned(), "x y,z".to_owned())]
        );
        assert_eq!(pairs(None), []);
    }
}
