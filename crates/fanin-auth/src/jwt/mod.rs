//! JSON Web Tokens.
//!
//! A token is accepted if a key verifies its signature with an algorithm that both the configuration and the kind of the key allow, and
//! its claims are as they must be. What a token says about its key (`jwk`, `jku`, `x5c`) is not read.
//!
//! - `token`: its parts. `keys`, `algorithm`: sets of keys, and signatures by `ring`. `claims`: claims and conditions.
//! - `issuer_keys`: keys that are fetched.

pub(crate) mod algorithm;
pub(crate) mod claims;
mod issuer_keys;
pub(crate) mod keys;
pub(crate) mod token;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use arcstr::ArcStr;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use fanin_config::Auth;
use fanin_json::Node;
use prometheus_client::metrics::counter::Counter;
use quick_cache::sync::Cache;
use ring::digest::{SHA256, digest};
use tokio::time::Instant;

pub use issuer_keys::IssuerKeys;
use issuer_keys::{FetchedKeys, Hope, Present};
use keys::Key;
use token::Token;

use crate::identity::Identity;
use crate::refusal::{Reason, Refusal};

/// Strict base64url without padding.
pub(crate) fn base64url(text: &[u8]) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}

/// The tokens of one `[auth.NAME]`.
pub struct Jwt {
    auth: Auth,
    /// Keys of files, and the secret.
    own: Vec<Key>,
    issuer: Option<Arc<IssuerKeys>>,
    cache: Option<Cache<[u8; 32], Verified>>,
}

/// A token that was verified.
#[derive(Clone)]
struct Verified {
    identity: Arc<Identity>,
    /// Seconds since 1970.
    until: f64,
    /// Version of the issuer's keys.
    version: u64,
}

/// What became of a token.
pub(crate) enum Checked {
    Valid(Arc<Identity>),
    Refused(Refusal),
    /// The end of the fetch with this number may change it.
    Wait(u64),
}

impl Jwt {
    /// Reads the files. What did not change is taken over from `before`: the keys of the issuer, and tokens that were verified.
    pub(crate) fn load(
        auth: &Auth,
        before: Option<&Jwt>,
        counts: impl FnOnce() -> [Counter; 2],
    ) -> Result<Jwt, String> {
        let mut own: Vec<Key> = auth.secret.iter().map(|secret| Key::secret(secret)).collect();
        for file in &auth.keys {
            let text = std::fs::read(file).map_err(|error| format!("{} cannot be read: {error}", file.display()))?;
            let found = keys::read(Bytes::from(text)).map_err(|why| format!("{}: {why}", file.display()))?;
            own.extend(found.keys);
        }
        let from = |auth: &Auth| {
            (auth.upstream.clone(), auth.jwks_path.clone(), auth.refresh, auth.min_interval, auth.max_stale)
        };
        let kept = before.filter(|before| from(&before.auth) == from(auth)).and_then(|before| before.issuer.clone());
        let issuer = auth.upstream.is_some().then(|| kept.unwrap_or_else(|| Arc::new(IssuerKeys::new(auth, counts()))));
        let cache = (auth.max_cached > 0).then(|| Cache::new(auth.max_cached));
        Ok(Jwt { auth: auth.clone(), own, issuer, cache })
    }

    /// The keys that are fetched, if any are.
    pub fn issuer_keys(&self) -> Option<&Arc<IssuerKeys>> {
        self.issuer.as_ref()
    }

    /// Upstream and path of these keys.
    pub fn jwks(&self) -> Option<(&str, &str)> {
        Some((self.auth.upstream.as_deref()?, &self.auth.jwks_path))
    }

    /// Checks a token. `again`: after a fetch, so that no further one is waited for.
    pub(crate) fn check(&self, text: &str, now: Instant, again: bool) -> Checked {
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        self.check_at(text, now, seconds, again)
    }

    fn check_at(&self, text: &str, now: Instant, seconds: f64, again: bool) -> Checked {
        let (fetched, missing) = match self.issuer.as_ref().map(|issuer| issuer.present(now)) {
            None => (None, None),
            Some(Present::Keys(keys)) => (Some(keys), None),
            Some(missing) => (None, Some(missing)),
        };
        let version = fetched.as_ref().map_or(0, |fetched| fetched.version);
        let mut hash = None;
        if let Some(cache) = self.cache.as_ref().filter(|_| missing.is_none()) {
            let of: [u8; 32] = digest(&SHA256, text.as_bytes()).as_ref().try_into().unwrap_or_default();
            if let Some(verified) = cache.get(&of)
                && verified.version == version
                && seconds < verified.until
            {
                return Checked::Valid(verified.identity);
            }
            hash = Some((cache, of));
        }
        let token = match Token::read(text) {
            Ok(token) if self.auth.algorithms.contains(&token.algorithm) => token,
            Ok(_) => return invalid("its algorithm is not accepted"),
            Err(why) => return invalid(why),
        };
        let mut has_key = false;
        for key in self.candidates(&token, fetched.as_deref()) {
            has_key = true;
            if key.material.verifies(token.algorithm, token.signed.as_bytes(), &token.signature) {
                return match self.accept(&token, seconds) {
                    Ok((identity, until)) => {
                        if let Some((cache, hash)) = hash {
                            cache.insert(hash, Verified { identity: identity.clone(), until, version });
                        }
                        Checked::Valid(identity)
                    }
                    Err(why) => invalid(why),
                };
            }
        }
        match (&self.issuer, missing) {
            (Some(_), Some(Present::Stale)) => unavailable("the keys of the tokens' issuer are out of date"),
            (Some(issuer), missing) if !has_key || missing.is_some() => {
                match if again { issuer.outcome() } else { issuer.ask(now) } {
                    Hope::Fetch(number) => Checked::Wait(number),
                    Hope::Answered if missing.is_none() => invalid("it is signed with an unknown key"),
                    _ => unavailable("the keys of the tokens' issuer cannot be fetched"),
                }
            }
            _ if has_key => invalid("its signature is wrong"),
            _ => invalid("it is signed with an unknown key"),
        }
    }

    /// The keys that may have signed it.
    fn candidates<'k>(&'k self, token: &Token<'_>, fetched: Option<&'k FetchedKeys>) -> impl Iterator<Item = &'k Key> {
        let fetched = fetched.map_or(&[][..], |fetched| &fetched.keys);
        let (id, algorithm) = (token.key_id.clone(), token.algorithm);
        self.own.iter().chain(fetched).filter(move |key| key.fits(id.as_deref(), algorithm))
    }

    /// The claims of a token whose signature is right.
    fn accept(&self, token: &Token<'_>, seconds: f64) -> Result<(Arc<Identity>, f64), Cow<'static, str>> {
        let payload = base64url(token.payload.as_bytes()).ok_or("its claims are not base64url")?;
        let claims = claims::parse(payload)?;
        let until = claims::check(&claims, &self.auth, seconds)?;
        let principal = claims::member(claims.root(), &self.auth.principal_claim).and_then(Node::as_str);
        let principal = principal.map(ArcStr::from);
        Ok((Arc::new(Identity { principal, claims: Some(claims) }), until))
    }

    /// Waits for the end of a fetch. False at the deadline.
    pub(crate) async fn fetched(&self, number: u64, deadline: Instant) -> bool {
        match &self.issuer {
            Some(issuer) => issuer.ended(number, deadline).await,
            None => false,
        }
    }
}

fn invalid(why: impl Into<Cow<'static, str>>) -> Checked {
    Checked::Refused(Refusal::new(Reason::InvalidToken, why))
}

fn unavailable(why: &'static str) -> Checked {
    Checked::Refused(Refusal::new(Reason::KeysUnavailable, why))
}

#[cfg(test)]
mod tests;
