//! The collector that a configuration names, and a client of it.

use std::str::FromStr;
use std::time::Duration;

use fanin_config::{ClientTls, Otlp, OtlpProtocol};
use opentelemetry::KeyValue;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_client::MetricsServiceClient;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
use opentelemetry_proto::tonic::metrics::v1::{ResourceMetrics, ScopeMetrics};
use opentelemetry_proto::tonic::resource::v1::Resource as ResourceMessage;
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_proto::transform::trace::tonic::group_spans_by_resource_and_scope;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SpanData;
use prost::Message;
use rustls::pki_types::ServerName;
use tonic::metadata::{AsciiMetadataKey, AsciiMetadataValue, MetadataMap};
use tonic::transport::{Channel, Endpoint};

use crate::post::Http;
use crate::tls::{self, Problem};

/// A collector as it is configured.
#[derive(Clone, Debug)]
pub(crate) struct Collector {
    route: Route,
    resource: Resource,
    pub(crate) timeout: Duration,
    /// How often metrics are sent.
    pub(crate) metrics: Option<Duration>,
}

#[derive(Clone, Debug)]
enum Route {
    Grpc(Box<(Endpoint, MetadataMap)>),
    Http(Box<Http>),
}

impl Collector {
    pub(crate) fn new(otlp: &Otlp) -> Result<Collector, Problem> {
        let nothing = ClientTls::default();
        let tls = (otlp.endpoint.scheme() == "https").then(|| otlp.tls.as_ref().unwrap_or(&nothing));
        let route = match otlp.protocol {
            OtlpProtocol::Http => {
                let tls = tls.map(|tls| {
                    let name = tls.server_name.as_deref().or(otlp.endpoint.host_str()).unwrap_or_default();
                    let name = name.trim_matches(['[', ']']).to_owned();
                    let name = ServerName::try_from(name).map_err(|error| ("tls.server_name", error.to_string()))?;
                    Ok((tls::http(tls)?, name))
                });
                Route::Http(Box::new(Http {
                    endpoint: otlp.endpoint.clone(),
                    headers: otlp.headers.clone(),
                    tls: tls.transpose()?,
                }))
            }
            OtlpProtocol::Grpc => {
                let wrong = |error: tonic::transport::Error| ("endpoint", error.to_string());
                let mut endpoint = Endpoint::from_shared(otlp.endpoint.to_string()).map_err(wrong)?;
                if let Some(tls) = tls {
                    endpoint = endpoint.tls_config(tls::grpc(tls)?).map_err(|error| ("tls", error.to_string()))?;
                }
                Route::Grpc(Box::new((endpoint.connect_timeout(otlp.timeout).timeout(otlp.timeout), metadata(otlp)?)))
            }
        };
        let attributes = otlp.resource.iter().map(|(name, value)| KeyValue::new(name.clone(), value.clone()));
        let resource = Resource::builder_empty()
            .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
            .with_attribute(KeyValue::new("telemetry.sdk.name", "opentelemetry"))
            .with_attribute(KeyValue::new("telemetry.sdk.language", "rust"))
            .with_attributes(attributes)
            .with_service_name(otlp.service_name.clone())
            .build();
        Ok(Collector { route, resource, timeout: otlp.timeout, metrics: otlp.metrics })
    }

    /// A client, inside a runtime. It connects when it first sends.
    pub(crate) fn client(&self) -> Client {
        let route = match &self.route {
            Route::Grpc(grpc) => Connected::Grpc(grpc.0.connect_lazy(), grpc.1.clone()),
            Route::Http(http) => Connected::Http((**http).clone()),
        };
        Client { route, resource: ResourceAttributesWithSchema::from(&self.resource) }
    }
}

fn metadata(otlp: &Otlp) -> Result<MetadataMap, Problem> {
    let mut metadata = MetadataMap::new();
    for (name, value) in &otlp.headers {
        let wrong = || ("headers", format!("`{name}` cannot be sent over gRPC"));
        let key = AsciiMetadataKey::from_str(name.as_str()).map_err(|_| wrong())?;
        metadata.insert(key, AsciiMetadataValue::try_from(value.as_bytes()).map_err(|_| wrong())?);
    }
    Ok(metadata)
}

/// A client of a collector.
pub(crate) struct Client {
    route: Connected,
    resource: ResourceAttributesWithSchema,
}

enum Connected {
    Grpc(Channel, MetadataMap),
    Http(Http),
}

impl Client {
    /// Exports spans.
    pub(crate) async fn send_spans(&mut self, spans: Vec<SpanData>) -> Result<(), String> {
        let resource_spans = group_spans_by_resource_and_scope(spans, &self.resource);
        let request = ExportTraceServiceRequest { resource_spans };
        match &self.route {
            Connected::Http(http) => http.post("/v1/traces", request.encode_to_vec()).await,
            Connected::Grpc(channel, metadata) => {
                let request = tonic::Request::from_parts(metadata.clone(), tonic::Extensions::default(), request);
                let answer = TraceServiceClient::new(channel.clone()).export(request).await;
                let answer = answer.map_err(|status| format!("{:?}: {}", status.code(), status.message()))?;
                match answer.into_inner().partial_success {
                    Some(partial) if partial.rejected_spans > 0 => {
                        Err(format!("{} spans were rejected: {}", partial.rejected_spans, partial.error_message))
                    }
                    _ => Ok(()),
                }
            }
        }
    }

    /// Exports metrics.
    pub(crate) async fn send_metrics(&mut self, metrics: ScopeMetrics) -> Result<(), String> {
        let resource = ResourceMessage { attributes: self.resource.attributes.0.clone(), ..ResourceMessage::default() };
        let of_process =
            ResourceMetrics { resource: Some(resource), scope_metrics: vec![metrics], ..ResourceMetrics::default() };
        let request = ExportMetricsServiceRequest { resource_metrics: vec![of_process] };
        match &self.route {
            Connected::Http(http) => http.post("/v1/metrics", request.encode_to_vec()).await,
            Connected::Grpc(channel, metadata) => {
                let request = tonic::Request::from_parts(metadata.clone(), tonic::Extensions::default(), request);
                let answer = MetricsServiceClient::new(channel.clone()).export(request).await;
                answer.map(drop).map_err(|status| format!("{:?}: {}", status.code(), status.message()))
            }
        }
    }
}
