//! The guard of a route: everything that a request must satisfy before it is admitted.
//!
//! Cheap checks go first: addresses, limits that need no identity, then credentials, claims, and limits by identity. A flood of invalid
//! tokens is thus bounded by a limit by client.

use std::net::IpAddr;
use std::sync::Arc;

use fanin_config::{Auth, CertificateName, Network, RateLimitKey, Route, Server};
use fanin_tls::ClientCertificate;
use http::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue, WWW_AUTHENTICATE};
use serde_json::Value;
use tokio::time::Instant;

use crate::api_keys::ApiKeys;
use crate::identity::Identity;
use crate::jwt::{Checked, Jwt, claims};
use crate::metrics::Metrics;
use crate::passwords::{Known, Passwords, Question};
use crate::rate::{self, Key, Limit, State};
use crate::refusal::{Reason, Refusal};

/// One `[auth.NAME]`.
pub(crate) struct Authority {
    pub name: String,
    pub auth: Auth,
    pub method: Method,
}

/// How an authority checks credentials.
pub(crate) enum Method {
    Jwt(Jwt),
    Keys(ApiKeys),
    Basic(Passwords),
}

/// The guard of a route.
pub struct RouteGuard {
    label: String,
    /// Those of the server, and of the route.
    lists: [AddressLists; 2],
    /// The names of which a client certificate must have one; without names, any will do.
    certificate: Option<Vec<CertificateName>>,
    authorities: Vec<Arc<Authority>>,
    require: Vec<(String, Vec<Value>)>,
    /// Limits that need no identity, and those that do.
    limits: [Vec<Arc<Limit>>; 2],
    cost: u32,
    metrics: Metrics,
}

/// Which addresses may.
#[derive(Default)]
struct AddressLists {
    allow: Vec<Network>,
    deny: Vec<Network>,
}

impl AddressLists {
    fn permit(&self, client: IpAddr) -> bool {
        let has = |list: &[Network]| list.iter().any(|network| network.contains(client));
        (self.allow.is_empty() || has(&self.allow)) && !has(&self.deny)
    }
}

/// A request as the guard sees it.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The client's address.
    pub client: IpAddr,
    /// The certificate that it has presented.
    pub certificate: Option<&'a ClientCertificate>,
    /// Its headers.
    pub headers: &'a HeaderMap,
    /// Its query, without the question mark.
    pub query: Option<&'a str>,
    /// When it arrived.
    pub now: Instant,
}

/// The guard's decision.
pub enum Decision {
    /// The request may go on.
    Admit(Admitted),
    /// It may not.
    Refuse(Box<Refusal>),
    /// A fetch of keys, or the comparison of a password, decides.
    Wait(Box<PendingCheck>),
}

/// A request that may go on.
#[derive(Debug, Default)]
pub struct Admitted {
    /// Who sends it, if the route asks.
    pub identity: Option<Arc<Identity>>,
    /// Headers of its response.
    pub headers: Vec<(HeaderName, HeaderValue)>,
}

/// A request whose credentials are not checked yet.
pub struct PendingCheck {
    guard: Arc<RouteGuard>,
    authority: Arc<Authority>,
    pending: Pending,
    now: Instant,
    charges: Charges,
}

/// What decides.
enum Pending {
    /// The end of the fetch with this number.
    Keys {
        token: String,
        fetch: u64,
    },
    Password(Question),
}

/// What a request has taken from limits.
#[derive(Default)]
struct Charges {
    state: State,
    taken: Vec<(Arc<Limit>, u64)>,
}

impl RouteGuard {
    /// `None` if the route requires nothing.
    pub(crate) fn new(
        server: &Server,
        route: &Route,
        authority: impl Fn(&str) -> Option<Arc<Authority>>,
        limit: impl Fn(&str) -> Option<Arc<Limit>>,
        metrics: &Metrics,
    ) -> Option<Arc<RouteGuard>> {
        let access = &route.access;
        let mut limits: [Vec<Arc<Limit>>; 2] = Default::default();
        for limit in access.rate_limit.iter().filter_map(|name| limit(name)) {
            let needs_identity = matches!(limit.config.key, RateLimitKey::Principal | RateLimitKey::Claim(_));
            limits[usize::from(needs_identity)].push(limit);
        }
        let guard = RouteGuard {
            label: route.label(),
            lists: [of(server), AddressLists { allow: access.allow.clone(), deny: access.deny.clone() }],
            certificate: access.needs_certificate().then(|| access.allowed_certificates.clone()),
            authorities: access.auth.iter().filter_map(|name| authority(name)).collect(),
            require: access.require.iter().map(|(name, values)| (name.clone(), values.clone())).collect(),
            limits,
            cost: access.rate_cost,
            metrics: metrics.clone(),
        };
        let is_open = guard.lists.iter().all(|lists| lists.allow.is_empty() && lists.deny.is_empty())
            && guard.certificate.is_none()
            && guard.authorities.is_empty()
            && guard.limits.iter().all(Vec::is_empty);
        (!is_open).then(|| Arc::new(guard))
    }

    /// The guard of what has no route in the configuration: the server's addresses.
    pub(crate) fn of_others(server: &Server, metrics: &Metrics) -> Option<Arc<RouteGuard>> {
        let lists = [of(server), AddressLists::default()];
        (!lists[0].allow.is_empty() || !lists[0].deny.is_empty()).then(|| {
            Arc::new(RouteGuard {
                label: String::new(),
                lists,
                certificate: None,
                authorities: Vec::new(),
                require: Vec::new(),
                limits: Default::default(),
                cost: 1,
                metrics: metrics.clone(),
            })
        })
    }

    /// Decides about a request.
    pub fn check(self: &Arc<Self>, subject: &Subject<'_>) -> Decision {
        if !self.permits(subject.client) {
            let refusal = Refusal::new(Reason::Address, "requests from this address are not accepted here");
            return self.refuse(refusal, Charges::default(), subject.now);
        }
        if let Some(refusal) = self.certificate(subject.certificate) {
            return self.refuse(refusal, Charges::default(), subject.now);
        }
        let mut charges = Charges::default();
        for limit in &self.limits[0] {
            let key = match &limit.config.key {
                RateLimitKey::Client => Key::client(subject.client),
                RateLimitKey::Header(name) => {
                    Key::Text(subject.headers.get(name).map_or(&b""[..], HeaderValue::as_bytes))
                }
                RateLimitKey::Route => Key::Route(&self.label),
                _ => Key::All,
            };
            if let Err(refusal) = self.charge(limit, key, subject.now, &mut charges) {
                return self.refuse(refusal, charges, subject.now);
            }
        }
        if self.authorities.is_empty() {
            return self.admit(None, charges, subject.now);
        }
        self.authenticate(subject, charges)
    }

    fn permits(&self, client: IpAddr) -> bool {
        self.lists.iter().all(|lists| lists.permit(client))
    }

    /// The refusal of a client for its certificate.
    fn certificate(&self, presented: Option<&ClientCertificate>) -> Option<Refusal> {
        let allowed = self.certificate.as_ref()?;
        let Some(presented) = presented else {
            let detail = "connect with a client certificate";
            return Some(Refusal::new(Reason::NoCertificate, detail));
        };
        let is_allowed = allowed.is_empty() || allowed.iter().any(|name| presented.has(name));
        let detail = || format!("{} has none of the names that are allowed here", presented.subject);
        (!is_allowed).then(|| Refusal::new(Reason::Certificate, detail()))
    }

    /// The first authority that accepts decides. If none does, the first that may after a fetch, or else the first that refuses.
    fn authenticate(self: &Arc<Self>, subject: &Subject<'_>, charges: Charges) -> Decision {
        let mut refusal: Option<Refusal> = None;
        let mut waits = None;
        for authority in &self.authorities {
            let Some(credentials) = authority.credentials(subject) else { continue };
            let refused = match &authority.method {
                Method::Keys(keys) => match keys.find(&credentials) {
                    Some(identity) => return self.admit(Some(identity), charges, subject.now),
                    None => Refusal::new(Reason::InvalidKey, "the key is unknown"),
                },
                Method::Jwt(jwt) => match jwt.check(&credentials, subject.now, false) {
                    Checked::Valid(identity) => return self.admit(Some(identity), charges, subject.now),
                    Checked::Refused(refused) => refused,
                    Checked::Wait(fetch) => {
                        let token = credentials.into_owned();
                        waits.get_or_insert((authority, Pending::Keys { token, fetch }));
                        continue;
                    }
                },
                Method::Basic(passwords) => match passwords.check(&credentials, subject.now) {
                    Known::Right(identity) => return self.admit(Some(identity), charges, subject.now),
                    Known::Ask(question) => {
                        waits.get_or_insert((authority, Pending::Password(question)));
                        continue;
                    }
                    Known::Busy => Refusal::new(Reason::KeysUnavailable, "too many passwords are being checked"),
                    Known::Malformed => wrong_password(),
                },
            };
            if refusal.is_none() {
                refusal = Some(authority.challenge(refused));
            }
        }
        match (waits, refusal) {
            (Some((authority, pending)), _) => Decision::Wait(Box::new(PendingCheck {
                guard: self.clone(),
                authority: authority.clone(),
                pending,
                now: subject.now,
                charges,
            })),
            (None, Some(refusal)) => self.refuse(refusal, charges, subject.now),
            (None, None) => {
                let mut refusal = Refusal::new(Reason::NoCredentials, self.wanted());
                for authority in &self.authorities {
                    refusal = authority.challenge(refusal);
                }
                self.refuse(refusal, charges, subject.now)
            }
        }
    }

    /// What a request without credentials could have sent.
    fn wanted(&self) -> String {
        let one = |authority: &Arc<Authority>| match &authority.method {
            Method::Jwt(_) if authority.auth.header == AUTHORIZATION => {
                "a header authorization: Bearer TOKEN".to_owned()
            }
            Method::Jwt(_) => format!("a token in the header {}", authority.auth.header),
            Method::Basic(_) => "a header authorization: Basic NAME:PASSWORD, in base64".to_owned(),
            Method::Keys(_) => format!("an API key in the header {}", authority.auth.header),
        };
        let wanted: Vec<String> = self.authorities.iter().map(one).collect();
        format!("send {}", wanted.join(", or "))
    }

    /// The identity is known: its claims, and its limits.
    fn admit(&self, identity: Option<Arc<Identity>>, mut charges: Charges, now: Instant) -> Decision {
        if let Some(refusal) = self.missing(identity.as_deref()) {
            return self.refuse(refusal, charges, now);
        }
        for limit in &self.limits[1] {
            let claim;
            let key = match (&limit.config.key, identity.as_deref()) {
                (RateLimitKey::Claim(name), Some(Identity { claims: Some(claims), .. })) => {
                    claim = claims::member(claims.root(), name);
                    claim.as_ref().map_or(&b""[..], |claim| claim.raw())
                }
                (_, Some(Identity { principal: Some(principal), .. })) => principal.as_bytes(),
                _ => b"",
            };
            if let Err(refusal) = self.charge(limit, Key::Text(key), now, &mut charges) {
                return self.refuse(refusal, charges, now);
            }
        }
        let mut headers = Vec::new();
        charges.state.headers(&mut headers);
        Decision::Admit(Admitted { identity, headers })
    }

    /// The refusal of a request whose claims are not enough.
    fn missing(&self, identity: Option<&Identity>) -> Option<Refusal> {
        let claims = identity.and_then(|identity| identity.claims.as_ref());
        let satisfied = |(name, wanted): &&(String, Vec<Value>)| {
            claims.is_some_and(|claims| claims::satisfies(claims, name, wanted))
        };
        let (name, wanted) = self.require.iter().find(|condition| !satisfied(condition))?;
        let mut refusal = match claims {
            None => Refusal::new(Reason::Claims, "these credentials have no claims, and the route requires some"),
            Some(_) => Refusal::new(Reason::Claims, format!("the claim {name} does not have what the route requires")),
        };
        let words: Vec<&str> = wanted.iter().filter_map(Value::as_str).collect();
        let scope = if name == "scope" { format!(", scope=\"{}\"", quoted(&words.join(" "))) } else { String::new() };
        let challenge = HeaderValue::try_from(format!("Bearer error=\"insufficient_scope\"{scope}"));
        refusal.headers.extend(challenge.ok().map(|value| (WWW_AUTHENTICATE, value)));
        Some(refusal)
    }

    fn charge(&self, limit: &Arc<Limit>, key: Key<'_>, now: Instant, charges: &mut Charges) -> Result<(), Refusal> {
        match rate::take(limit, key, now, self.cost, &mut charges.state) {
            Ok(key) => {
                charges.taken.push((limit.clone(), key));
                Ok(())
            }
            Err(reached) => {
                let mut refusal = Refusal::new(Reason::RateLimit, format!("the limit {} is reached", limit.name));
                refusal.retry_after = Some(reached.wait);
                Err(refusal)
            }
        }
    }

    #[cold]
    fn refuse(&self, mut refusal: Refusal, charges: Charges, now: Instant) -> Decision {
        self.metrics.count(refusal.reason);
        if refusal.reason == Reason::RateLimit {
            // One limit refuses the request, so that it is none for the others.
            for (limit, key) in &charges.taken {
                rate::give_back(limit, *key, now, self.cost);
            }
        }
        charges.state.headers(&mut refusal.headers);
        Decision::Refuse(Box::new(refusal))
    }
}

fn of(server: &Server) -> AddressLists {
    AddressLists { allow: server.allow.clone(), deny: server.deny.clone() }
}

impl PendingCheck {
    /// Waits for what decides.
    pub async fn decide(self, deadline: Instant) -> Decision {
        let PendingCheck { guard, authority, pending, now, charges } = self;
        let refusal = match authority.settle(pending, deadline).await {
            Ok(identity) => return guard.admit(Some(identity), charges, now),
            Err(refusal) => refusal,
        };
        guard.refuse(authority.challenge(refusal), charges, now)
    }
}

fn wrong_password() -> Refusal {
    Refusal::new(Reason::InvalidPassword, "there is no such name with this password")
}

impl Authority {
    /// Waits for what decides about credentials.
    async fn settle(&self, pending: Pending, deadline: Instant) -> Result<Arc<Identity>, Refusal> {
        let late = |what: &'static str| Refusal::new(Reason::KeysUnavailable, what);
        match (&self.method, pending) {
            (Method::Jwt(jwt), Pending::Keys { token, fetch }) => {
                if !jwt.fetched(fetch, deadline).await {
                    return Err(late("the issuer of the tokens did not send its keys in time"));
                }
                match jwt.check(&token, Instant::now(), true) {
                    Checked::Valid(identity) => Ok(identity),
                    Checked::Refused(refusal) => Err(refusal),
                    Checked::Wait(_) => Err(late("the keys of the tokens' issuer are not there")),
                }
            }
            (Method::Basic(passwords), Pending::Password(question)) => match passwords.answer(question, deadline).await
            {
                Some(Some(identity)) => Ok(identity),
                Some(None) => Err(wrong_password()),
                None => Err(late("the password could not be checked in time")),
            },
            // What waits is of its own authority.
            _ => Err(late("the credentials could not be checked")),
        }
    }

    /// The credentials that a request has for it.
    fn credentials<'a>(&self, subject: &Subject<'a>) -> Option<std::borrow::Cow<'a, str>> {
        let value = subject.headers.get(&self.auth.header).and_then(|value| value.to_str().ok());
        let value = value.and_then(|value| match (&self.method, value.split_once(' ')) {
            (Method::Keys(_), _) => Some(value),
            (Method::Basic(_), Some((scheme, text))) => scheme.eq_ignore_ascii_case("basic").then(|| text.trim()),
            (Method::Jwt(_), Some((scheme, token))) if scheme.eq_ignore_ascii_case("bearer") => Some(token.trim()),
            (Method::Jwt(_), _) if self.auth.header != AUTHORIZATION => Some(value),
            _ => None,
        });
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            return Some(value.into());
        }
        let wanted = self.auth.query.as_deref()?;
        let mut pairs = form_urlencoded::parse(subject.query?.as_bytes());
        pairs.find(|(name, _)| name == wanted).map(|(_, value)| value)
    }

    /// Adds what the client must do to be accepted (RFC 6750, 3).
    fn challenge(&self, mut refusal: Refusal) -> Refusal {
        if refusal.reason.status() != 401 {
            return refusal;
        }
        let realm = &self.name;
        let text = match (&self.method, refusal.reason) {
            (Method::Basic(_), _) => format!("Basic realm=\"{realm}\", charset=\"UTF-8\""),
            (Method::Keys(_), _) => format!("ApiKey realm=\"{realm}\""),
            (Method::Jwt(_), Reason::InvalidToken) => format!(
                "Bearer realm=\"{realm}\", error=\"invalid_token\", error_description=\"{}\"",
                quoted(&refusal.detail)
            ),
            (Method::Jwt(_), _) => format!("Bearer realm=\"{realm}\""),
        };
        refusal.headers.extend(HeaderValue::try_from(text).ok().map(|value| (WWW_AUTHENTICATE, value)));
        refusal
    }
}

/// Text for a quoted string of a header.
fn quoted(text: &str) -> String {
    text.chars().map(|c| if matches!(c, '"' | '\\') || c.is_control() { '\'' } else { c }).collect()
}
