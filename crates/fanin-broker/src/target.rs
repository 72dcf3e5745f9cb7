//! Which broker, from the configuration.

use std::fmt;

use fanin_config::{ClientTls, MASK, Push};
use percent_encoding::percent_decode_str;

use crate::tls;

/// Most characters of an error that the log shows.
const SHOWN: usize = 300;

/// The broker of a configuration.
#[derive(Clone, PartialEq)]
pub struct Target {
    pub(crate) kind: Kind,
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    /// Settings of TLS; `None` without TLS.
    pub(crate) tls: Option<ClientTls>,
    /// What names at the broker begin with.
    pub(crate) prefix: String,
    pub(crate) queue: usize,
    pub(crate) queue_size: usize,
}

/// The protocol of a broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Redis,
    Nats,
}

impl Kind {
    fn is_supported(self) -> bool {
        match self {
            Kind::Redis => cfg!(feature = "redis"),
            Kind::Nats => cfg!(feature = "nats"),
        }
    }
}

impl Target {
    /// The broker that `[push]` names, if it names one. Files of TLS are read, so that a wrong one is found before it is used.
    ///
    /// # Errors
    /// What is wrong with a key of `[push]`.
    pub fn new(push: &Push) -> Result<Option<Target>, String> {
        let Some(url) = &push.broker else { return Ok(None) };
        let (kind, port, is_encrypted) = match url.scheme() {
            "redis" => (Kind::Redis, 6379, false),
            "rediss" => (Kind::Redis, 6379, true),
            "nats" => (Kind::Nats, 4222, false),
            _ => (Kind::Nats, 4222, true),
        };
        if !kind.is_supported() {
            return Err(format!("push.broker: this program was built without support of {}://", url.scheme()));
        }
        let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        let host = url.host_str().unwrap_or_default();
        let tls = is_encrypted.then(|| push.broker_tls.clone().unwrap_or_default());
        if let Some(settings) = &tls {
            tls::client_config(settings).map_err(|(key, problem)| format!("push.broker_tls.{key}: {problem}"))?;
        }
        Ok(Some(Target {
            kind,
            // An IPv6 address without its brackets.
            host: decoded(host.trim_start_matches('[').trim_end_matches(']')),
            port: url.port().unwrap_or(port),
            user: (!url.username().is_empty()).then(|| decoded(url.username())),
            password: push.broker_password.clone().or_else(|| url.password().map(decoded)),
            tls,
            prefix: push.broker_prefix.clone(),
            queue: push.broker_queue,
            queue_size: push.broker_queue_size,
        }))
    }

    /// What the broker or its client says, for the log: bounded, on one line, and without the password or token, which a server that is no
    /// broker may send back.
    pub(crate) fn masked(&self, text: &str) -> String {
        let mut text = text.to_owned();
        let secret = self.password.as_ref().or(self.user.as_ref());
        for secret in secret.into_iter().filter(|secret| !secret.is_empty()) {
            // As it is, and as it stands between quotes.
            let quoted = format!("{secret:?}");
            text = text.replace(&quoted[1..quoted.len() - 1], MASK).replace(secret, MASK);
        }
        let mut chars = text.chars().map(|c| if c.is_control() { ' ' } else { c });
        let mut line: String = chars.by_ref().take(SHOWN).collect();
        line.truncate(line.trim_end().len());
        if chars.next().is_some() {
            line.push('…');
        }
        line
    }
}

/// Without user and password, which logs must not show.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match (self.kind, &self.tls) {
            (Kind::Redis, None) => "redis",
            (Kind::Redis, Some(_)) => "rediss",
            (Kind::Nats, None) => "nats",
            (Kind::Nats, Some(_)) => "tls",
        };
        if self.host.contains(':') {
            write!(f, "{scheme}://[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{scheme}://{}:{}", self.host, self.port)
        }
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(all(test, feature = "redis", feature = "nats"))]
mod tests {
    use super::*;

    fn target(push: &str) -> Target {
        let text = format!("[push]\n{push}");
        let config = fanin_config::Config::parse(&text, "fanin.toml", std::path::Path::new("."), &|_| None);
        Target::new(&config.expect("a configuration").push).expect("a target").expect("a broker")
    }

    #[test]
    fn urls_have_users_passwords_and_default_ports() {
        let one = target("broker = 'redis://us%40er:p%2Fw@host'");
        assert_eq!((one.kind, one.host.as_str(), one.port), (Kind::Redis, "host", 6379));
        assert_eq!((one.user.as_deref(), one.password.as_deref()), (Some("us@er"), Some("p/w")));
        let one = target("broker = 'nats://[::1]'\nbroker_password = 'p/w'");
        assert_eq!((one.kind, one.host.as_str(), one.port), (Kind::Nats, "::1", 4222));
        assert_eq!((one.user, one.password.as_deref()), (None, Some("p/w")));
    }

    #[test]
    fn errors_show_no_secret_and_are_bounded() {
        let one = target(r#"broker = 'redis://hidden'"#);
        assert_eq!(one.masked("a\nb"), "a b");
        let one = target("broker = 'redis://u@h'\nbroker_password = 'hid\"den'");
        assert_eq!(one.masked(r#"bulk-string('"hid\"den"'), hid"den"#), r#"bulk-string('"***"'), ***"#);
        let one = target("broker = 'nats://hidden@h'");
        assert_eq!(one.masked("CONNECT {\"auth_token\":\"hidden\"}"), "CONNECT {\"auth_token\":\"***\"}");
        assert_eq!(one.masked(&"é".repeat(1000)).chars().count(), SHOWN + 1);
    }

    #[test]
    fn neither_user_nor_password_is_shown() {
        let one = target("broker = 'redis://hidden:hidden@[::1]:7000'");
        assert_eq!((one.to_string(), format!("{one:?}")), ("redis://[::1]:7000".into(), "redis://[::1]:7000".into()));
    }
}
