//! When certificates and revocation lists expire.

use std::fmt;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;

/// How long something is valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expiry {
    /// The file that has it.
    pub file: PathBuf,
    /// Its subject, or the issuer of a revocation list.
    pub subject: String,
    /// Seconds since 1970 from which it is valid.
    pub not_before: i64,
    /// Seconds since 1970 until which it is valid.
    pub not_after: i64,
    /// `certificate`, `client-ca` or `client-crl`.
    pub kind: &'static str,
}

impl Expiry {
    /// What deserves a warning now.
    pub fn warning(&self) -> Option<String> {
        let now = now();
        let what = match self.kind {
            "client-crl" => "the revocation list of",
            _ => "the certificate of",
        };
        let (subject, file) = (&self.subject, self.file.display());
        if self.not_after < now {
            let days = (now - self.not_after) / 86_400;
            return Some(format!("{file}: {what} {subject} has expired, {days} days ago"));
        }
        (self.not_before > now).then(|| format!("{file}: {what} {subject} is not valid yet"))
    }
}

/// Seconds since 1970.
pub(crate) fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// The gauge of a listener's files.
#[derive(Debug)]
pub struct ExpiryMetrics {
    /// The name of the gauge.
    pub name: &'static str,
    /// The files.
    pub expiries: Vec<Expiry>,
}

impl Collector for ExpiryMetrics {
    fn encode(&self, mut to: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let help =
            "When a certificate or revocation list of a listener expires, in seconds since 1970; of a file the first.";
        let mut family = to.encode_descriptor(self.name, help, None, MetricType::Gauge)?;
        let mut files: Vec<(String, &'static str, i64)> = Vec::new();
        for one in &self.expiries {
            let file = one.file.display().to_string();
            match files.iter_mut().find(|(known, kind, _)| *known == file && *kind == one.kind) {
                Some((_, _, first)) => *first = one.not_after.min(*first),
                None => files.push((file, one.kind, one.not_after)),
            }
        }
        for (file, kind, first) in &files {
            family.encode_family(&[("file", &**file), ("kind", *kind)])?.encode_gauge(&(*first as f64))?;
        }
        Ok(())
    }
}
