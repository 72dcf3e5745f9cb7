//! Handshakes, counted by how they ended.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use rustls::{AlertDescription, Error, HandshakeKind, ProtocolVersion, ServerConnection};

/// How a handshake ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// TLS 1.2, full.
    Full12,
    /// TLS 1.3, full.
    Full13,
    /// TLS 1.2, resumed.
    Resumed12,
    /// TLS 1.3, resumed.
    Resumed13,
    /// The client has no certificate, and must.
    NoCertificate,
    /// The client's certificate is not valid.
    BadCertificate,
    /// Client and server have no version, cipher or protocol in common.
    Incompatible,
    /// The client has refused the server's certificate, or broken off otherwise.
    ByClient,
    /// What came is no TLS, or breaks its rules, or the connection was lost.
    Broken,
    /// It took too long.
    TimedOut,
}

impl Outcome {
    const ALL: [Outcome; 10] = [
        Outcome::Full12,
        Outcome::Full13,
        Outcome::Resumed12,
        Outcome::Resumed13,
        Outcome::NoCertificate,
        Outcome::BadCertificate,
        Outcome::Incompatible,
        Outcome::ByClient,
        Outcome::Broken,
        Outcome::TimedOut,
    ];

    /// Of a connection whose handshake is complete.
    pub fn of(connection: &ServerConnection) -> Outcome {
        let is_13 = connection.protocol_version() == Some(ProtocolVersion::TLSv1_3);
        match (connection.handshake_kind() == Some(HandshakeKind::Resumed), is_13) {
            (true, true) => Outcome::Resumed13,
            (true, false) => Outcome::Resumed12,
            (false, true) => Outcome::Full13,
            (false, false) => Outcome::Full12,
        }
    }

    /// Of one that failed.
    pub fn of_error(error: &std::io::Error) -> Outcome {
        match error.get_ref().and_then(|error| error.downcast_ref::<Error>()) {
            Some(Error::NoCertificatesPresented) => Outcome::NoCertificate,
            Some(Error::InvalidCertificate(_) | Error::InvalidCertRevocationList(_)) => Outcome::BadCertificate,
            Some(Error::PeerIncompatible(_) | Error::NoApplicationProtocol) => Outcome::Incompatible,
            Some(Error::AlertReceived(AlertDescription::CloseNotify)) => Outcome::Broken,
            Some(Error::AlertReceived(_)) => Outcome::ByClient,
            _ => Outcome::Broken,
        }
    }

    /// The labels `version` and `result`.
    const fn labels(self) -> (&'static str, &'static str) {
        match self {
            Outcome::Full12 => ("1.2", "full"),
            Outcome::Full13 => ("1.3", "full"),
            Outcome::Resumed12 => ("1.2", "resumed"),
            Outcome::Resumed13 => ("1.3", "resumed"),
            Outcome::NoCertificate => ("", "no-certificate"),
            Outcome::BadCertificate => ("", "bad-certificate"),
            Outcome::Incompatible => ("", "incompatible"),
            Outcome::ByClient => ("", "refused-by-client"),
            Outcome::Broken => ("", "broken"),
            Outcome::TimedOut => ("", "timeout"),
        }
    }
}

/// The handshakes of a kind of listener. All workers count here: a handshake costs a thousand times as much.
#[derive(Debug, Default)]
pub struct Handshakes([AtomicU64; Outcome::ALL.len()]);

impl Handshakes {
    /// Counts one.
    pub fn count(&self, outcome: Outcome) {
        self.0[outcome as usize].fetch_add(1, Relaxed);
    }

    /// Writes them as a counter of this name.
    ///
    /// # Errors
    /// The writer's.
    pub fn encode(&self, name: &str, to: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "TLS handshakes by version and result.";
        let mut family = to.encode_descriptor(name, help, None, MetricType::Counter)?;
        for outcome in Outcome::ALL {
            let (version, result) = outcome.labels();
            let count = self.0[outcome as usize].load(Relaxed);
            let labels = [("version", version), ("result", result)];
            family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&count, None)?;
        }
        Ok(())
    }
}
