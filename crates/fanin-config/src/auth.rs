//! `[auth.NAME]`: how clients prove who they are.

use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use http::HeaderName;
use http::header::AUTHORIZATION;
use indexmap::IndexMap;
use schemars::{JsonSchema, json_schema};
use serde::Serialize;

use crate::reader::{Reader, Table, replace};
use crate::schema::types::{self, leaf};
use crate::upstream::keys::Upstream;
use crate::upstream::kind::UpstreamKind;
use crate::values::http::header_name;
use crate::values::names::is_upstream_name;
use crate::values::serialize;

leaf!(
    /// `"jwt"`, `"api_keys"` or `"basic"`.
    AuthKindText,
    json_schema!({ "enum": ["jwt", "api_keys", "basic"] })
);
leaf!(
    /// A signature algorithm.
    AlgorithmText,
    json_schema!({ "anyOf": [{ "enum": ALGORITHMS.map(|(name, _)| name) }, types::variable()], "x-type": "algorithm" })
);

/// One of `[auth.NAME]`: how clients prove who they are. Routes name it in `auth`.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Auth {
    /// `"jwt"`: tokens of an issuer. `"api_keys"`: keys of a file. `"basic"`: names and passwords of a file.
    #[schemars(with = "AuthKindText")]
    pub kind: AuthKind,
    /// Request header with the credentials. Default: `authorization` for tokens (`Bearer` in front), `x-api-key` for keys. Names and
    /// passwords are always in `authorization`.
    #[serde(serialize_with = "serialize::display")]
    #[schemars(with = "types::Text")]
    pub header: HeaderName,
    /// Query parameter that may have the credentials in place of the header, for clients that cannot set one, such as WebSockets of
    /// browsers. Other programs may log it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "types::Text")]
    pub query: Option<String>,
    /// Tokens: what their `iss` must be, one of these. Needed; an empty list accepts every issuer whose key signs.
    pub issuers: Vec<String>,
    /// Tokens: what their `aud` must have, one of these. Needed; an empty list accepts tokens for anybody.
    pub audiences: Vec<String>,
    /// Tokens: signature algorithms that are accepted. A key is used with the algorithm that it is for, and with no other. `none` does not
    /// exist. Default: `["RS256", "ES256", "EdDSA"]`; with `secret`, `["HS256"]`.
    #[schemars(with = "Vec<AlgorithmText>")]
    pub algorithms: Vec<Algorithm>,
    /// Tokens: upstream from which the issuer's keys are fetched, as a JWK Set. Its timeouts, TLS and breaker apply.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "types::Text")]
    pub upstream: Option<String>,
    /// Tokens: path of the keys at `upstream`.
    #[schemars(with = "types::PathTemplate")]
    pub jwks_path: String,
    /// Tokens: files with a JWK Set, besides or in place of `upstream`.
    #[serde(serialize_with = "serialize::paths")]
    #[schemars(with = "Vec<types::Text>")]
    pub keys: Vec<PathBuf>,
    /// Tokens: the secret of the algorithms HS256, HS384 and HS512, at least 32 bytes. Best taken from a variable: `"${JWT_SECRET}"`.
    #[serde(serialize_with = "serialize::secret", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "types::Text")]
    pub secret: Option<String>,
    /// Tokens: how often the issuer's keys are fetched in the background.
    #[serde(serialize_with = "serialize::duration")]
    #[schemars(with = "types::DurationText")]
    pub refresh: Duration,
    /// Tokens: shortest time between two fetches. A token with an unknown key id causes one fetch, but not within this time.
    #[serde(serialize_with = "serialize::duration")]
    #[schemars(with = "types::DurationText")]
    pub min_interval: Duration,
    /// Tokens: how long fetched keys are used while the issuer does not answer. Then requests get 503.
    #[serde(serialize_with = "serialize::duration")]
    #[schemars(with = "types::DurationText")]
    pub max_stale: Duration,
    /// Tokens: how far the issuer's clock may be off, for `exp`, `nbf` and `iat`.
    #[serde(serialize_with = "serialize::duration")]
    #[schemars(with = "types::DurationText")]
    pub leeway: Duration,
    /// Tokens: claims that a token must have, besides `exp`.
    pub required_claims: Vec<String>,
    /// Tokens: the claim that is `req.principal`.
    #[schemars(with = "types::Text")]
    pub principal_claim: String,
    /// Tokens: valid ones whose signature is not checked again until they expire, or the keys change. Passwords: right ones that are not
    /// compared again for five minutes. 0: none.
    #[schemars(with = "types::Count<0, 1000000>")]
    pub max_cached: usize,
    /// Keys and passwords: file with lines `NAME:HASH`. The hash of a key is its SHA-256 in hexadecimal. That of a password is one of
    /// bcrypt, as `htpasswd -B` writes it.
    #[serde(serialize_with = "serialize::optional_path", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "types::Text")]
    pub file: Option<PathBuf>,
}

/// How clients prove who they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AuthKind {
    /// JSON Web Tokens.
    Jwt,
    /// Keys of a file.
    ApiKeys,
    /// Names and passwords of a file.
    Basic,
}

/// A signature algorithm of JSON Web Tokens (RFC 7518, RFC 8037).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[allow(missing_docs, reason = "the names are those of the RFC")]
pub enum Algorithm {
    RS256,
    RS384,
    RS512,
    PS256,
    PS384,
    PS512,
    ES256,
    ES384,
    EdDSA,
    HS256,
    HS384,
    HS512,
}

const ALGORITHMS: [(&str, Algorithm); 12] = [
    ("RS256", Algorithm::RS256),
    ("RS384", Algorithm::RS384),
    ("RS512", Algorithm::RS512),
    ("PS256", Algorithm::PS256),
    ("PS384", Algorithm::PS384),
    ("PS512", Algorithm::PS512),
    ("ES256", Algorithm::ES256),
    ("ES384", Algorithm::ES384),
    ("EdDSA", Algorithm::EdDSA),
    ("HS256", Algorithm::HS256),
    ("HS384", Algorithm::HS384),
    ("HS512", Algorithm::HS512),
];

impl Algorithm {
    /// The algorithm of this name, as in the header of a token.
    pub fn named(name: &str) -> Option<Algorithm> {
        ALGORITHMS.iter().find(|(known, _)| *known == name).map(|(_, algorithm)| *algorithm)
    }

    /// Whether who verifies can sign, too.
    pub const fn is_symmetric(self) -> bool {
        matches!(self, Algorithm::HS256 | Algorithm::HS384 | Algorithm::HS512)
    }
}

/// A section, and where the file names its upstream.
pub(crate) type NamedUpstream = (String, Range<usize>);

/// Keys of one kind only.
const JWT_KEYS: [&str; 13] = [
    "issuers",
    "audiences",
    "algorithms",
    "upstream",
    "jwks_path",
    "keys",
    "secret",
    "refresh",
    "min_interval",
    "max_stale",
    "leeway",
    "required_claims",
    "principal_claim",
];

/// Shortest secret: a shorter one than its hash can be guessed (RFC 7518, 3.2).
const MIN_SECRET: usize = 32;

impl Auth {
    /// A section with all defaults.
    pub fn new(kind: AuthKind) -> Auth {
        Auth {
            kind,
            header: if kind == AuthKind::ApiKeys { HeaderName::from_static("x-api-key") } else { AUTHORIZATION },
            query: None,
            issuers: Vec::new(),
            audiences: Vec::new(),
            algorithms: vec![Algorithm::RS256, Algorithm::ES256, Algorithm::EdDSA],
            upstream: None,
            jwks_path: "/.well-known/jwks.json".into(),
            keys: Vec::new(),
            secret: None,
            refresh: Duration::from_secs(300),
            min_interval: Duration::from_secs(30),
            max_stale: Duration::from_secs(3600),
            leeway: Duration::from_secs(30),
            required_claims: Vec::new(),
            principal_claim: "sub".into(),
            max_cached: 10_000,
            file: None,
        }
    }

    /// Files whose change concerns it.
    pub fn files(&self) -> impl Iterator<Item = &PathBuf> {
        self.keys.iter().chain(&self.file)
    }

    /// Reads `[auth.NAME]`, all of them.
    /// Also gives where the file names upstreams.
    pub(crate) fn read_all(root: &mut Table<'_, '_>) -> (IndexMap<String, Auth>, Vec<NamedUpstream>) {
        let (mut all, mut upstreams) = (IndexMap::new(), Vec::new());
        for (name, mut table) in root.named_tables("auth") {
            if !is_upstream_name(&name.value) {
                let message = format!("`{}` is not a valid name", name.value);
                table.reader().error_hint(&name.span, message, "use letters, digits, `_` and `-`, a letter first");
            }
            if let Some(auth) = Auth::read(&mut table) {
                upstreams.extend(table.span_of("upstream").map(|at| (name.value.clone(), at)));
                table.finish();
                all.insert(name.value, auth);
            }
        }
        (all, upstreams)
    }

    fn read(table: &mut Table<'_, '_>) -> Option<Auth> {
        if !table.has("kind") {
            table.missing("kind", "kind = \"jwt\", \"api_keys\" or \"basic\"");
        }
        let kinds = [("jwt", AuthKind::Jwt), ("api_keys", AuthKind::ApiKeys), ("basic", AuthKind::Basic)];
        let kind = table.choice("kind", &kinds)?;
        let mut auth = Auth::new(kind);
        replace(&mut auth.header, table.parsed("header", "a header's name", header_name).map(|at| at.value));
        auth.query = table.parsed("query", "a parameter's name", not_empty).map(|at| at.value);
        auth.file = table.file("file");
        auth.read_jwt(table);
        let foreign: (&[&str], &str) = match kind {
            AuthKind::Jwt => (&["file"], "kind = \"api_keys\" and \"basic\""),
            AuthKind::ApiKeys | AuthKind::Basic => (&JWT_KEYS, "kind = \"jwt\""),
        };
        for key in foreign.0.iter().filter(|key| table.has(key)) {
            table.error(key, format_args!("belongs to {}", foreign.1));
        }
        if kind == AuthKind::ApiKeys && table.has("max_cached") {
            table.error("max_cached", "belongs to kind = \"jwt\" and \"basic\"");
        }
        for key in ["header", "query"].iter().filter(|key| kind == AuthKind::Basic && table.has(key)) {
            table.error(key, "cannot be chosen: names and passwords are in the header authorization");
        }
        match kind {
            AuthKind::Jwt => auth.check_jwt(table),
            AuthKind::ApiKeys | AuthKind::Basic if !table.has("file") => table.missing("file", "file = \"users.txt\""),
            AuthKind::ApiKeys | AuthKind::Basic => {}
        }
        Some(auth)
    }

    fn read_jwt(&mut self, table: &mut Table<'_, '_>) {
        let texts = |table: &mut Table<'_, '_>, key| {
            let found = table.list(key, "a text", false, not_empty);
            found.unwrap_or_default().into_iter().map(|at| at.value).collect::<Vec<_>>()
        };
        self.issuers = texts(table, "issuers");
        self.audiences = texts(table, "audiences");
        self.required_claims = texts(table, "required_claims");
        if table.has("secret") {
            self.algorithms = vec![Algorithm::HS256];
        }
        let algorithms = table.list("algorithms", "an algorithm such as \"RS256\"", false, |name| {
            Algorithm::named(name).ok_or_else(|| {
                let known: Vec<&str> = ALGORITHMS.iter().map(|(name, _)| *name).collect();
                format!("`{name}` is not one of {}", known.join(", "))
            })
        });
        replace(&mut self.algorithms, algorithms.map(|list| list.into_iter().map(|at| at.value).collect()));
        self.upstream = table.parsed("upstream", "the name of an upstream", not_empty).map(|at| at.value);
        let path = table.parsed("jwks_path", "a path", |text| match text.starts_with('/') {
            true => Ok(text.to_owned()),
            false => Err(format!("`{text}` does not begin with /")),
        });
        replace(&mut self.jwks_path, path.map(|at| at.value));
        let dir = table.reader().dir();
        let keys = table.list("keys", "a file's path", false, |text| {
            let file = dir.join(text);
            if file.is_file() { Ok(file) } else { Err(format!("there is no file {}", file.display())) }
        });
        self.keys = keys.unwrap_or_default().into_iter().map(|at| at.value).collect();
        self.secret = table.string("secret");
        replace(&mut self.refresh, table.duration("refresh"));
        replace(&mut self.min_interval, table.duration("min_interval"));
        replace(&mut self.max_stale, table.duration("max_stale"));
        replace(&mut self.leeway, table.duration("leeway"));
        replace(&mut self.principal_claim, table.string("principal_claim"));
        replace(&mut self.max_cached, table.count("max_cached", 0..=1_000_000));
    }

    fn check_jwt(&self, table: &Table<'_, '_>) {
        for (key, hint) in [
            ("issuers", "issuers = [\"https://idp.example\"]; [] accepts every issuer"),
            ("audiences", "audiences = [\"shop\"]; [] accepts tokens for anybody"),
        ] {
            if !table.has(key) {
                table.missing(key, hint);
            }
        }
        if table.is_empty_list("algorithms") {
            table.error("algorithms", "is empty: no token could be valid");
        }
        if !["upstream", "keys", "secret"].iter().any(|key| table.has(key)) {
            table.missing("upstream", "upstream = \"idp\", or `keys` with files, or `secret`");
        }
        if self.secret.as_ref().is_some_and(|secret| secret.len() < MIN_SECRET) {
            table.error("secret", format_args!("has less than {MIN_SECRET} bytes, so it can be guessed"));
        }
        // A public key must never be taken for a secret.
        let symmetric = self.algorithms.iter().filter(|algorithm| algorithm.is_symmetric()).count();
        if table.has("secret") && symmetric != self.algorithms.len() {
            table.error(
                "algorithms",
                "a `secret` is for HS256, HS384 and HS512 only; use another section for other keys",
            );
        } else if !table.has("secret") && symmetric > 0 {
            table.error("algorithms", "HS256, HS384 and HS512 need a `secret`");
        }
        for key in ["upstream", "keys"].iter().filter(|key| table.has("secret") && table.has(key)) {
            table.error(key, "cannot be combined with `secret`; use two sections, and name both on the route");
        }
        if table.has("max_stale") && self.max_stale < self.refresh {
            table.error("max_stale", "is shorter than `refresh`");
        }
        if self.min_interval > self.refresh {
            table.error("min_interval", "is longer than `refresh`");
        }
    }

    /// The upstream of the keys must be there, and speak HTTP.
    pub(crate) fn check_upstream(
        &self,
        (name, at): &NamedUpstream,
        reader: &Reader<'_>,
        upstreams: &IndexMap<String, Upstream>,
    ) {
        let Some(upstream) = &self.upstream else { return };
        let problem = match upstreams.get(upstream).map(Upstream::kind) {
            Some(UpstreamKind::Http) => return,
            Some(kind) => format!("{upstream} is {kind}; the keys come over HTTP"),
            None => format!("there is no section [upstreams.{upstream}]"),
        };
        reader.error(at, format!("auth.{name}.upstream: {problem}"));
    }
}

fn not_empty(text: &str) -> Result<String, String> {
    if text.is_empty() { Err("is empty".into()) } else { Ok(text.to_owned()) }
}
