//! CORS: which pages may read a response, told to their browser (the Fetch standard, "CORS protocol").

use fanin_config::OriginPattern;
use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, HeaderName, HeaderValue, ORIGIN,
};
use http::{HeaderMap, Method};

use super::vary;
use crate::RouteSpec;

/// What clients of gRPC-Web and Connect send.
const RPC_HEADERS: [&str; 6] =
    ["connect-protocol-version", "connect-timeout-ms", "content-type", "grpc-timeout", "x-grpc-web", "x-user-agent"];
/// How a call ended.
const RPC_EXPOSED: [&str; 3] = ["grpc-message", "grpc-status", "grpc-status-details-bin"];
/// What only the server may say. A response copied from an upstream may have them.
const OURS: [HeaderName; 3] =
    [ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_EXPOSE_HEADERS];

/// The rules of a route.
#[derive(Debug)]
pub(super) struct Cors {
    origins: Vec<OriginPattern>,
    /// Methods that pages may use.
    methods: Vec<Method>,
    credentials: bool,
    /// The values of headers.
    allow_methods: HeaderValue,
    allow_headers: Option<HeaderValue>,
    expose: Option<HeaderValue>,
    max_age: HeaderValue,
}

impl Cors {
    pub(super) fn new(config: &fanin_config::Cors, route: &RouteSpec) -> Cors {
        let mut methods = route.methods.clone();
        if methods.contains(&Method::GET) && !methods.contains(&Method::HEAD) {
            methods.push(Method::HEAD);
        }
        if let Some(allowed) = &config.methods {
            methods.retain(|method| {
                allowed.contains(method) || (*method == Method::HEAD && allowed.contains(&Method::GET))
            });
        }
        let of_rpc = |names: &'static [&'static str]| if route.grpc { names } else { &[] };
        Cors {
            origins: config.origins.clone(),
            credentials: config.credentials,
            allow_methods: list(methods.iter().map(Method::as_str)).unwrap_or(HeaderValue::from_static("")),
            allow_headers: names(&config.headers, of_rpc(&RPC_HEADERS)),
            expose: names(&config.expose, of_rpc(&RPC_EXPOSED)),
            max_age: HeaderValue::from(config.max_age.as_secs()),
            methods,
        }
    }

    /// Every page may read every response, so that responses do not depend on the page.
    fn is_open(&self) -> bool {
        self.origins.contains(&OriginPattern::Any)
    }

    /// The page's origin, if its pages may use the method.
    pub(super) fn allowed<'a>(&self, method: &Method, headers: &'a HeaderMap) -> Option<&'a HeaderValue> {
        let mut sent = headers.get_all(ORIGIN).iter();
        let (origin, None) = (sent.next()?, sent.next()) else { return None };
        let text = origin.to_str().ok()?;
        (self.methods.contains(method) && self.origins.iter().any(|pattern| pattern.matches(text))).then_some(origin)
    }

    /// Headers of the answer to a preflight: what the browser asks before the request. A refused page gets none.
    pub(super) fn preflight(&self, asked: &Method, headers: &HeaderMap) -> HeaderMap {
        let mut answer = HeaderMap::new();
        if let Some(origin) = self.allowed(asked, headers) {
            self.allow(Some(origin), &mut answer);
            answer.insert(ACCESS_CONTROL_ALLOW_METHODS, self.allow_methods.clone());
            answer.extend(self.allow_headers.iter().map(|names| (ACCESS_CONTROL_ALLOW_HEADERS, names.clone())));
            answer.insert(ACCESS_CONTROL_MAX_AGE, self.max_age.clone());
        }
        for name in [ORIGIN, ACCESS_CONTROL_REQUEST_METHOD, ACCESS_CONTROL_REQUEST_HEADERS] {
            vary::add(&mut answer, &name);
        }
        answer
    }

    /// Adds the headers that let a page read a response. `origin` is that of [`allowed`](Self::allowed).
    pub(super) fn apply(&self, origin: Option<&HeaderValue>, headers: &mut HeaderMap) {
        for name in OURS {
            headers.remove(name);
        }
        if !self.is_open() {
            vary::add(headers, &ORIGIN);
        }
        if self.allow(origin, headers) {
            headers.extend(self.expose.iter().map(|names| (ACCESS_CONTROL_EXPOSE_HEADERS, names.clone())));
        }
    }

    /// Whether the page may read the response.
    fn allow(&self, origin: Option<&HeaderValue>, headers: &mut HeaderMap) -> bool {
        let Some(origin) = origin else { return false };
        let origin = if self.is_open() { HeaderValue::from_static("*") } else { origin.clone() };
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        if self.credentials {
            headers.insert(ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
        }
        true
    }
}

/// The method that a preflight asks for; `None` if the request is none.
pub(crate) fn preflight_method(headers: &HeaderMap) -> Option<Method> {
    headers.get(ORIGIN)?;
    Method::from_bytes(headers.get(ACCESS_CONTROL_REQUEST_METHOD)?.as_bytes()).ok()
}

/// Configured names, and those that a route for a method has in any case.
fn names(configured: &[HeaderName], of_rpc: &[&str]) -> Option<HeaderValue> {
    let configured = configured.iter().map(HeaderName::as_str);
    let further = of_rpc.iter().copied().filter(|name| !configured.clone().any(|known| known == *name));
    list(configured.clone().chain(further))
}

fn list<'a>(names: impl Iterator<Item = &'a str>) -> Option<HeaderValue> {
    let text = names.collect::<Vec<_>>().join(", ");
    // Names of headers and methods are tokens, which are valid in values.
    (!text.is_empty()).then(|| HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("")))
}
