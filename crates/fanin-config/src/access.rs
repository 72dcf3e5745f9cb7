//! Who may use a route, and how often: keys of `[[routes]]`.

use indexmap::IndexMap;
use schemars::{JsonSchema, json_schema};
use serde::Serialize;
use toml::de::DeValue;

use crate::auth::{Auth, AuthKind};
use crate::certificate_name::CertificateName;
use crate::flow_ref::{FlowRef, read_flow};
use crate::network::{Network, networks};
use crate::rate_limit::{RateLimit, RateLimitKey};
use crate::reader::{Item, Table};
use crate::schema::types::{self, leaf};
use crate::server_tls::{ClientCertificates, ServerTls};
use crate::values::serialize;

leaf!(
    /// Whether something must be there.
    NeedText,
    json_schema!({ "anyOf": [{ "enum": ["optional", "required"] }, types::variable()] })
);
leaf!(
    /// Claims, each with the values of which it must have one.
    ClaimsTable,
    json_schema!({
        "type": "object",
        "x-type": "table of claims",
        "additionalProperties": {
            "anyOf": [
                { "type": ["string", "boolean", "integer"] },
                { "type": "array", "items": { "type": ["string", "boolean", "integer"] }, "minItems": 1 },
            ],
        },
    })
);

/// Keys of `[[routes]]` about clients: who may use a route, and how often.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Access {
    /// Names of `[auth.NAME]`. A request must satisfy one of them. Else: 401.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "types::OneOrMore<types::Text>")]
    pub auth: Vec<String>,
    /// What the token's claims must have: `{ scope = "orders:write", role = ["admin", "staff"] }`. All of them must be met, each by one
    /// of its values; a list in the token has one of them, and `scope` is words. `"a.b"` is the member `b` of `a`. Else: 403.
    #[serde(serialize_with = "serialize::named")]
    #[schemars(with = "ClaimsTable")]
    pub require: IndexMap<String, Vec<serde_json::Value>>,
    /// Addresses and networks of clients that may use the route: `["10.0.0.0/8"]`. Others get 403. An empty list: all may.
    #[serde(serialize_with = "serialize::list")]
    #[schemars(with = "Vec<types::NetworkText>")]
    pub allow: Vec<Network>,
    /// Addresses and networks of clients that may not, even if `allow` names them.
    #[serde(serialize_with = "serialize::list")]
    #[schemars(with = "Vec<types::NetworkText>")]
    pub deny: Vec<Network>,
    /// Whether a client must have presented a certificate: `"required"` or `"optional"`. Without one: 403. It needs `client_certificates` in
    /// `[server.tls]`.
    #[schemars(with = "NeedText")]
    pub client_certificate: Need,
    /// Names of which a client certificate must have one: `["uri:spiffe://example.org/shop/*", "dns:orders.internal"]`, also `subject:`,
    /// `email:`, `ip:` and `fingerprint:`. Others get 403. An empty list: all that are valid. With names, a certificate is required.
    #[serde(serialize_with = "serialize::list")]
    #[schemars(with = "Vec<types::Text>")]
    pub allowed_certificates: Vec<CertificateName>,
    /// Names of `[rate_limits.NAME]`. A request counts for all of them, and gets 429 if one is reached.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "types::OneOrMore<types::Text>")]
    pub rate_limit: Vec<String>,
    /// How many requests one request of this route counts as.
    #[schemars(with = "types::Count<1, 1000000>")]
    pub rate_cost: u32,
    /// A flow that runs before the route's own: `"flows/auth.star:guard"`. What it returns is `req.auth` of that one. If it aborts, or
    /// returns a `response` with a status of 300 or more, the route's flow does not run. Both have the same deadline.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "serialize::optional_display")]
    #[schemars(with = "types::FlowText")]
    pub before: Option<FlowRef>,
}

/// Whether something must be there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Need {
    /// It may.
    #[default]
    Optional,
    /// It must.
    Required,
}

/// What routes can name.
#[derive(Clone, Copy)]
pub(crate) struct Named<'a> {
    pub auth: &'a IndexMap<String, Auth>,
    pub rate_limits: &'a IndexMap<String, RateLimit>,
    pub tls: Option<&'a ServerTls>,
}

impl Access {
    /// Nothing is required.
    pub(crate) fn open() -> Access {
        Access { rate_cost: 1, ..Access::default() }
    }

    pub(crate) fn read(table: &mut Table<'_, '_>, named: &Named<'_>) -> Access {
        let auth = names(table, "auth", named.auth.keys());
        let rate_limit = names(table, "rate_limit", named.rate_limits.keys());
        let require = table.items("require").into_iter().filter_map(|(name, item)| Some((name.value, values(&item)?)));
        let access = Access {
            require: require.collect(),
            allow: networks(table, "allow"),
            deny: networks(table, "deny"),
            client_certificate: table
                .choice("client_certificate", &[("optional", Need::Optional), ("required", Need::Required)])
                .unwrap_or_default(),
            allowed_certificates: table
                .list("allowed_certificates", "a name such as \"dns:orders.internal\"", false, CertificateName::parse)
                .map_or_else(Vec::new, |found| found.into_iter().map(|at| at.value).collect()),
            rate_cost: table.number("rate_cost", 1..=1_000_000).map_or(1, |cost| cost as u32),
            before: read_flow(table, "before"),
            auth,
            rate_limit,
        };
        access.check(table, named);
        access
    }

    /// Whether a request needs a client certificate.
    #[must_use]
    pub fn needs_certificate(&self) -> bool {
        self.client_certificate == Need::Required || !self.allowed_certificates.is_empty()
    }

    fn check(&self, table: &Table<'_, '_>, named: &Named<'_>) {
        let asks = named.tls.is_some_and(|tls| tls.client_certificates != ClientCertificates::Off);
        for key in ["client_certificate", "allowed_certificates"] {
            if self.needs_certificate() && !asks && table.has(key) {
                table.error(key, "no client has a certificate: set `client_certificates` in [server.tls]");
            }
        }
        let is_of = |name: &String, kind| named.auth.get(name).is_some_and(|auth| auth.kind == kind);
        let has_claims = self.auth.iter().any(|name| is_of(name, AuthKind::Jwt));
        if !self.require.is_empty() && !has_claims && !table.has("auth") {
            table.error("require", "needs `auth` with the name of a section [auth.NAME] of kind \"jwt\"");
        } else if !self.require.is_empty() && !has_claims && self.auth.iter().all(|name| named.auth.contains_key(name))
        {
            table.error("require", "no token has claims here: none of `auth` is of kind \"jwt\"");
        }
        for limit in self.rate_limit.iter().filter_map(|name| named.rate_limits.get(name)) {
            let missing = match &limit.key {
                RateLimitKey::Principal if self.auth.is_empty() => "a section [auth.NAME]",
                RateLimitKey::Claim(_) if !has_claims => "a section [auth.NAME] of kind \"jwt\"",
                _ => continue,
            };
            let message = format!("its key is \"{}\", so the route needs `auth` with {missing}", limit.key);
            table.error("rate_limit", message);
        }
        if table.has("rate_cost") && self.rate_limit.is_empty() {
            table.error("rate_cost", "needs `rate_limit`");
        }
        for limit in self.rate_limit.iter().filter_map(|name| named.rate_limits.get(name)) {
            if u64::from(self.rate_cost) > limit.burst {
                table.error(
                    "rate_cost",
                    format_args!("is above the burst of the limit, {}: no request could pass", limit.burst),
                );
            }
        }
    }
}

/// Names of sections.
fn names<'n>(
    table: &mut Table<'_, '_>,
    key: &'static str,
    known: impl Iterator<Item = &'n String> + Clone,
) -> Vec<String> {
    let section = if key == "auth" { "auth" } else { "rate_limits" };
    let found = table.list(key, "the name of a section", true, |name| {
        if known.clone().any(|known| known == name) {
            return Ok(name.to_owned());
        }
        let known: Vec<&str> = known.clone().map(String::as_str).collect();
        Err(match known.as_slice() {
            [] => format!("there is no section [{section}.{name}]"),
            known => format!("there is no section [{section}.{name}]; there is {}", known.join(", ")),
        })
    });
    found.unwrap_or_default().into_iter().map(|name| name.value).collect()
}

/// The values of which a claim must have one.
fn values(item: &Item<'_, '_>) -> Option<Vec<serde_json::Value>> {
    let one = |item: &Item<'_, '_>| match item.get() {
        DeValue::String(_) => item.string("a string").map(|text| text.text.into()),
        DeValue::Boolean(value) => Some((*value).into()),
        DeValue::Integer(_) => item.number(&(0..=i64::MAX as u64)).map(Into::into),
        _ => {
            item.type_error("a string, a number, true or false, or a list of these", None);
            None
        }
    };
    match item.get() {
        DeValue::Array(list) if list.is_empty() => {
            item.error("is empty: no token could satisfy it");
            None
        }
        DeValue::Array(list) => {
            Some(list.iter().enumerate().filter_map(|(at, value)| one(&item.element(at, value))).collect())
        }
        _ => one(item).map(|value| vec![value]),
    }
}
