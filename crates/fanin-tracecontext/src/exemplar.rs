//! Exemplars: of each bucket of a histogram, a trace of a request that it has counted.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::context::TraceContext;
use crate::ids::{SpanId, TraceId};

/// A request, or a call of it, that a bucket has counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exemplar {
    /// Its trace.
    pub trace: TraceId,
    /// The request's span.
    pub span: SpanId,
    /// What was counted.
    pub value: Duration,
    /// When.
    pub at: SystemTime,
}

/// The newest exemplar of each bucket. One thread writes; a scrape reads.
#[derive(Debug, Default)]
pub struct Exemplars(Mutex<Vec<Option<Exemplar>>>);

impl Exemplars {
    /// Keeps an exemplar of a bucket. Never waits: one that comes during a scrape is left out.
    #[cold]
    pub fn set(&self, bucket: usize, trace: &TraceContext, value: Duration) {
        let Ok(mut buckets) = self.0.try_lock() else { return };
        if buckets.len() <= bucket {
            buckets.resize(bucket + 1, None);
        }
        buckets[bucket] = Some(Exemplar { trace: trace.id(), span: trace.span(), value, at: SystemTime::now() });
    }

    /// Of several histograms with the same buckets, the newest of each bucket. Empty if there is none.
    pub fn newest<'a>(all: impl IntoIterator<Item = &'a Exemplars>) -> Vec<Option<Exemplar>> {
        let mut newest: Vec<Option<Exemplar>> = Vec::new();
        for one in all {
            let buckets = one.0.lock().unwrap_or_else(PoisonError::into_inner);
            if newest.len() < buckets.len() {
                newest.resize(buckets.len(), None);
            }
            for (kept, found) in newest.iter_mut().zip(&*buckets) {
                if found.is_some_and(|found| kept.is_none_or(|kept| kept.at < found.at)) {
                    *kept = *found;
                }
            }
        }
        newest
    }
}

/// The exemplars of some histograms, by family and labels as the text has them: `seconds{route="/a"}`.
#[derive(Debug, Default)]
pub struct Annotations(HashMap<String, Vec<Option<Exemplar>>>);

impl Annotations {
    /// Adds those of a histogram.
    pub fn add(&mut self, family: &str, labels: &[(&str, &str)], exemplars: Vec<Option<Exemplar>>) {
        if exemplars.is_empty() {
            return;
        }
        let mut key = format!("{family}{{");
        for (at, (name, value)) in labels.iter().enumerate() {
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(key, "{}{name}=\"{value}\"", if at > 0 { "," } else { "" });
        }
        key.push('}');
        self.0.insert(key, exemplars);
    }

    /// OpenMetrics text with the exemplars behind their buckets. The lines of a histogram begin with its sum, and its buckets follow in
    /// their order.
    pub fn write_into(&self, text: String) -> String {
        if self.0.is_empty() {
            return text;
        }
        let mut out = String::with_capacity(text.len() + self.0.len() * 512);
        let mut buckets: &[Option<Exemplar>] = &[];
        for line in text.split_inclusive('\n') {
            let series = line.split_once('{').unwrap_or((line, ""));
            if let (Some(family), labels) = (series.0.strip_suffix("_sum"), series.1) {
                let labels = labels.rsplit_once('}').map_or("", |(labels, _)| labels);
                buckets = self.0.get(&format!("{family}{{{labels}}}")).map_or(&[], |found| found);
            } else if series.0.ends_with("_bucket")
                && let Some((first, rest)) = buckets.split_first()
            {
                buckets = rest;
                if let Some(exemplar) = first {
                    out.push_str(line.trim_end());
                    exemplar.write(&mut out);
                    out.push('\n');
                    continue;
                }
            }
            out.push_str(line);
        }
        out
    }
}

impl Exemplar {
    fn write(&self, to: &mut String) {
        let at = self.at.duration_since(UNIX_EPOCH).unwrap_or_default();
        let value = self.value.as_secs_f64();
        // Writing to text cannot fail.
        let _ = write!(
            to,
            " # {{trace_id=\"{}\",span_id=\"{}\"}} {value:?} {}.{:03}",
            self.trace,
            self.span,
            at.as_secs(),
            at.subsec_millis()
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exemplars_stand_behind_the_buckets_that_counted_them() {
        let (one, other) = (Exemplars::default(), Exemplars::default());
        let (first, second) = (TraceContext::begin(|_| true, true), TraceContext::begin(|_| true, true));
        one.set(1, &first, Duration::from_micros(1500));
        other.set(0, &first, Duration::from_micros(900));
        other.set(1, &second, Duration::from_micros(1600));
        let newest = Exemplars::newest([&other, &one]);
        assert_eq!(newest.iter().flatten().count(), 2);
        let newest_of_both = newest[1].expect("there are two").trace;
        assert!([first.id(), second.id()].contains(&newest_of_both));

        let mut annotations = Annotations::default();
        annotations.add("s", &[("route", "/\"a")], newest);
        annotations.add("none", &[], Vec::new());
        let text = "# TYPE s histogram\ns_sum{route=\"/\\\"a\"} 1.0\ns_count{route=\"/\\\"a\"} 2\n\
                    s_bucket{le=\"0.001\",route=\"/\\\"a\"} 1\ns_bucket{le=\"0.002\",route=\"/\\\"a\"} 2\n\
                    s_bucket{le=\"+Inf\",route=\"/\\\"a\"} 2\ns_sum{route=\"/b\"} 0\ns_bucket{le=\"0.001\",route=\"/b\"} 0\n# EOF\n";
        let out = annotations.write_into(text.to_owned());
        let lines: Vec<&str> = out.lines().collect();
        assert_eq!(lines.len(), text.lines().count());
        let expected = format!(" 1 # {{trace_id=\"{}\",span_id=\"{}\"}} 0.0009 ", first.id(), first.span());
        assert!(lines[3].contains(&expected), "{out}");
        assert!(lines[4].contains(&format!("2 # {{trace_id=\"{newest_of_both}\"")), "{out}");
        assert!(!lines[5].contains('#') && !lines[7].contains('#'), "{out}");
        assert_eq!(Annotations::default().write_into(text.to_owned()), text);
    }
}
