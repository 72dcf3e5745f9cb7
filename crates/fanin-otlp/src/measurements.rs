//! Families of metrics as those of OpenTelemetry.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::exemplar::Value as Exemplary;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as Number;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Exemplar, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, ScopeMetrics, Sum,
};

use crate::text::{self, Family, Labels, Sample};

/// When the process started and when the metrics were read, in nanoseconds since 1970.
#[derive(Clone, Copy)]
pub(crate) struct Times {
    start: u64,
    now: u64,
}

impl Times {
    pub(crate) fn since(start: SystemTime) -> Times {
        Times { start: nanos(start), now: nanos(SystemTime::now()) }
    }
}

fn nanos(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// The families as metrics of this program.
pub(crate) fn scope(families: Vec<Family>, times: Times) -> ScopeMetrics {
    let scope = InstrumentationScope {
        name: "fanin".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    };
    let metrics = families.into_iter().map(|family| metric(family, times)).collect();
    ScopeMetrics { scope: Some(scope), metrics, ..ScopeMetrics::default() }
}

fn metric(family: Family, times: Times) -> Metric {
    let Family { name, help, unit, kind, samples } = family;
    let data = match &*kind {
        "counter" => Data::Sum(Sum {
            data_points: samples.into_iter().map(|sample| point(sample, times)).collect(),
            aggregation_temporality: AggregationTemporality::Cumulative as i32,
            is_monotonic: true,
        }),
        "histogram" => Data::Histogram(Histogram {
            data_points: histograms(samples, times),
            aggregation_temporality: AggregationTemporality::Cumulative as i32,
        }),
        _ => {
            let now = Times { start: 0, ..times };
            Data::Gauge(Gauge { data_points: samples.into_iter().map(|sample| point(sample, now)).collect() })
        }
    };
    let unit = match &*unit {
        _ if name.ends_with("_seconds") || unit == "seconds" => "s".to_owned(),
        _ if name.ends_with("_bytes") || unit == "bytes" => "By".to_owned(),
        unit => unit.to_owned(),
    };
    Metric { name, description: help, unit, data: Some(data), ..Metric::default() }
}

fn point(sample: Sample, times: Times) -> NumberDataPoint {
    NumberDataPoint {
        attributes: attributes(&sample.labels, None),
        start_time_unix_nano: times.start,
        time_unix_nano: times.now,
        value: Some(Number::AsDouble(sample.value)),
        ..NumberDataPoint::default()
    }
}

/// The lines of a histogram follow one another, for each set of labels.
fn histograms(samples: Vec<Sample>, times: Times) -> Vec<HistogramDataPoint> {
    let mut points: Vec<HistogramDataPoint> = Vec::new();
    let mut below = 0;
    for sample in samples {
        let attributes = attributes(&sample.labels, Some("le"));
        if points.last().is_none_or(|point| point.attributes != attributes) {
            points.push(HistogramDataPoint {
                attributes,
                start_time_unix_nano: times.start,
                time_unix_nano: times.now,
                ..HistogramDataPoint::default()
            });
            below = 0;
        }
        let Some(point) = points.last_mut() else { continue };
        match &*sample.suffix {
            "_sum" => point.sum = Some(sample.value),
            "_count" => point.count = sample.value as u64,
            "_bucket" => {
                // The text counts all below a bound, the protocol those of each bucket.
                let count = sample.value as u64;
                point.bucket_counts.push(count.saturating_sub(below));
                below = count;
                let bound = sample.labels.iter().find(|(name, _)| name == "le").and_then(|(_, le)| le.parse().ok());
                point.explicit_bounds.extend(bound.filter(|bound: &f64| bound.is_finite()));
                point.exemplars.extend(sample.exemplar.as_ref().and_then(exemplar));
            }
            _ => {}
        }
    }
    points
}

/// `None` if it does not name its trace.
fn exemplar(of: &text::Exemplar) -> Option<Exemplar> {
    let id = |name: &str| {
        let (_, value) = of.labels.iter().find(|(label, _)| label == name)?;
        let digits = value.as_bytes().chunks(2);
        digits.map(|two| u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok()).collect::<Option<Vec<u8>>>()
    };
    Some(Exemplar {
        time_unix_nano: (of.at.unwrap_or_default() * 1e9) as u64,
        trace_id: id("trace_id")?,
        span_id: id("span_id")?,
        value: Some(Exemplary::AsDouble(of.value)),
        ..Exemplar::default()
    })
}

fn attributes(labels: &Labels, without: Option<&str>) -> Vec<KeyValue> {
    let labels = labels.iter().filter(|(name, _)| Some(&**name) != without);
    let attribute = |(name, value): &(String, String)| KeyValue {
        key: name.clone(),
        value: Some(AnyValue { value: Some(Value::StringValue(value.clone())) }),
        ..KeyValue::default()
    };
    labels.map(attribute).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_count_for_themselves() {
        let text = "# TYPE a_seconds histogram\na_seconds_sum{r=\"1\"} 2.5\na_seconds_count{r=\"1\"} 4\n\
                    a_seconds_bucket{le=\"0.5\",r=\"1\"} 1\na_seconds_bucket{le=\"1.0\",r=\"1\"} 3\n\
                    a_seconds_bucket{le=\"+Inf\",r=\"1\"} 4\na_seconds_bucket{le=\"0.5\",r=\"2\"} 7\n";
        let scope = scope(text::parse(text), Times { start: 1, now: 2 });
        let Some(Data::Histogram(Histogram { data_points, .. })) = &scope.metrics[0].data else { panic!("{scope:?}") };
        assert_eq!((scope.metrics[0].unit.as_str(), data_points.len()), ("s", 2));
        assert_eq!(
            (&*data_points[0].bucket_counts, &*data_points[0].explicit_bounds),
            (&[1, 2, 1][..], &[0.5, 1.0][..])
        );
        assert_eq!((data_points[0].count, data_points[0].sum), (4, Some(2.5)));
        assert_eq!(data_points[1].bucket_counts, [7]);
    }

    #[test]
    fn exemplars_name_their_traces() {
        let text = "# TYPE a_seconds histogram\na_seconds_bucket{le=\"+Inf\"} 4 # {trace_id=\"0af7\",span_id=\"b7\"} 0.25 1700000000.5\n\
                    a_seconds_bucket{le=\"+Inf\",r=\"2\"} 4 # {other=\"0af7\"} 0.25\n";
        let scope = scope(text::parse(text), Times { start: 1, now: 2 });
        let Some(Data::Histogram(Histogram { data_points, .. })) = &scope.metrics[0].data else { panic!("{scope:?}") };
        let [exemplar] = &*data_points[0].exemplars else { panic!("{data_points:?}") };
        assert_eq!((&*exemplar.trace_id, &*exemplar.span_id), (&[0x0a, 0xf7][..], &[0xb7][..]));
        assert_eq!(
            (exemplar.value, exemplar.time_unix_nano),
            (Some(Exemplary::AsDouble(0.25)), 1_700_000_000_500_000_000)
        );
        assert!(data_points[1].exemplars.is_empty());
    }
}
