//! `[cors]`: pages of which origins may use a route (the Fetch standard, "CORS protocol").

use std::time::Duration;

use http::{HeaderName, Method};
use schemars::JsonSchema;
use serde::Serialize;

use crate::reader::{Located, Table, TableOrWord};
use crate::schema::types::{self, leaf};
use crate::values::http::header_name;
use crate::values::origin::{OriginPattern, web_origin};
use crate::values::serialize;

leaf!(
    /// `"https://shop.example"`, `"https://*.example.com"` or `"*"`.
    OriginPatternText,
    schemars::json_schema!({ "type": "string", "pattern": r"^https?://[^/]+$|^\*$|\$\{", "x-type": "origin" })
);

/// `[cors]`: which pages of other origins may use the routes from a browser. A route can have its own `cors`, which replaces all of this.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Cors {
    /// Origins whose pages may read responses: `["https://shop.example"]`. `https://*.shop.example` stands for every subdomain, at any
    /// depth, and not for `https://shop.example` itself. `["*"]` stands for all pages.
    #[serde(serialize_with = "serialize::list")]
    #[schemars(with = "Vec<OriginPatternText>")]
    pub origins: Vec<OriginPattern>,
    /// Methods that pages may use. Default: all that the route has.
    #[serde(serialize_with = "serialize::optional_list", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<types::MethodText>")]
    pub methods: Option<Vec<Method>>,
    /// Request headers that pages may send, besides those that every page may. `["*"]` stands for all but `authorization`, which must be
    /// named. Routes with `grpc` also take the headers of gRPC-Web and Connect.
    #[serde(serialize_with = "serialize::list")]
    #[schemars(with = "Vec<types::Text>")]
    pub headers: Vec<HeaderName>,
    /// Response headers that pages may read, besides `cache-control`, `content-language`, `content-length`, `content-type`, `expires`,
    /// `last-modified` and `pragma`. `["*"]` stands for all. Routes with `grpc` also show how the call ended.
    #[serde(serialize_with = "serialize::list")]
    #[schemars(with = "Vec<types::Text>")]
    pub expose: Vec<HeaderName>,
    /// Pages may send cookies and other credentials with the request. The origins must be listed for that: nothing may be `"*"`.
    #[schemars(with = "types::Flag")]
    pub credentials: bool,
    /// How long a browser may remember the answer to a preflight. Browsers have their own upper bounds, such as two hours.
    #[serde(serialize_with = "serialize::duration")]
    #[schemars(with = "types::DurationText")]
    pub max_age: Duration,
}

impl Cors {
    /// These origins, and all defaults.
    pub fn new(origins: Vec<OriginPattern>) -> Cors {
        Cors {
            origins,
            methods: None,
            headers: vec![http::header::CONTENT_TYPE],
            expose: Vec::new(),
            credentials: false,
            max_age: Duration::from_secs(600),
        }
    }

    /// Reads `[cors]`, or `cors` of a route.
    pub(crate) fn read(mut table: Table<'_, '_>) -> Option<Cors> {
        let what = "an origin such as \"https://shop.example\"";
        let found = table.list("origins", what, false, origin_pattern);
        if !table.has("origins") {
            table.missing("origins", "write origins = [\"https://shop.example\"]");
        } else if table.is_empty_list("origins") {
            table.error("origins", "is empty; name an origin, or remove the whole table");
        }
        let origins: Vec<OriginPattern> = found.iter().flatten().map(|at| at.value.clone()).collect();
        if origins.len() > 1 && origins.contains(&OriginPattern::Any) {
            table.error("origins", "\"*\" stands for all pages; remove it or the others");
        }
        let mut cors = Cors::new(origins);
        cors.methods = table.methods("methods", false);
        let mut names = |key| {
            let found = table.list(key, "a header's name", false, header_name);
            found.map(|list| list.into_iter().map(|Located { value, .. }| value).collect::<Vec<_>>())
        };
        let (headers, expose) = (names("headers"), names("expose"));
        cors.headers = headers.unwrap_or(cors.headers);
        cors.expose = expose.unwrap_or_default();
        cors.credentials = table.boolean("credentials").unwrap_or(false);
        cors.max_age = table.duration("max_age").unwrap_or(cors.max_age);
        if cors.credentials {
            if cors.origins.contains(&OriginPattern::Any) {
                table.error("credentials", "browsers send none where `origins` is \"*\"; list the origins");
            }
            for (key, names) in [("headers", &cors.headers), ("expose", &cors.expose)] {
                if names.iter().any(|name| name == "*") {
                    let message = "with `credentials`, browsers take \"*\" for a header of this name; list the headers";
                    table.error(key, message);
                }
            }
        }
        table.finish();
        found.is_some().then_some(cors)
    }

    /// Reads `cors` of a route. `default` is that of the file.
    pub(crate) fn of_route(
        table: &mut Table<'_, '_>,
        methods: Option<&[Method]>,
        default: Option<&Cors>,
    ) -> Option<Cors> {
        let cors = match table.table_or_word("cors", "a table such as { origins = [...] }, or \"off\"", "off") {
            TableOrWord::Absent => return default.cloned(),
            TableOrWord::Word => return None,
            TableOrWord::Table(table) => Cors::read(table)?,
        };
        let unknown = |method: &&Method| {
            methods.is_some_and(|of_route| {
                !(of_route.contains(method) || **method == Method::HEAD && of_route.contains(&Method::GET))
            })
        };
        if let Some(method) = cors.methods.iter().flatten().find(unknown) {
            table.error("cors", format_args!("methods: the route has no {method}; remove it here, or add it there"));
        }
        Some(cors)
    }
}

fn origin_pattern(text: &str) -> Result<OriginPattern, String> {
    if text == "*" {
        return Ok(OriginPattern::Any);
    }
    if let Some((scheme, domain)) = text.split_once("://*.") {
        let whole = web_origin(&format!("{scheme}://{domain}"));
        // A pattern for a whole top-level domain, or for parts of an address, is a mistake.
        let parts = whole.as_deref().and_then(|origin| origin.split_once("://"));
        let is_name = |domain: &str| domain.contains('.') && domain.contains(|char: char| char.is_ascii_alphabetic());
        if let Some((scheme, domain)) = parts.filter(|(_, domain)| is_name(domain) && !domain.contains('[')) {
            return Ok(OriginPattern::Below { scheme: scheme.into(), domain: domain.into() });
        }
    } else if let Some(origin) = web_origin(text) {
        return Ok(OriginPattern::One(origin.into()));
    }
    Err(format!(
        "`{text}` is no origin; write scheme, host and perhaps port, and nothing behind them; \
         `*.` may stand for all subdomains of a domain"
    ))
}
