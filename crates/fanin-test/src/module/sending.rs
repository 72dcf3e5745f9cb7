//! `get`, `post`, …, `request`, `together`, `advance`, `now`.

use std::time::Duration;

use bytes::Bytes;
use fanin_flow::ClientIdentity;
use fanin_lang::{Args, Changes, Ctx, Kind, NativeFn, Stop, Value};
use http::header::{CONTENT_TYPE, COOKIE, HOST, HeaderValue};
use http::{HeaderMap, Method, Uri};

use super::{duration, host, text, wrong};
use crate::response::ResponseObject;
use crate::values::{self, number};
use crate::world::{TestRequest, json_type};

pub(super) static FUNCTIONS: [NativeFn; 9] = [
    NativeFn::new("get", |ctx, args| send_one(ctx, args, "get", Some(Method::GET))).changes(Changes::World),
    NativeFn::new("post", |ctx, args| send_one(ctx, args, "post", Some(Method::POST))).changes(Changes::World),
    NativeFn::new("put", |ctx, args| send_one(ctx, args, "put", Some(Method::PUT))).changes(Changes::World),
    NativeFn::new("patch", |ctx, args| send_one(ctx, args, "patch", Some(Method::PATCH))).changes(Changes::World),
    NativeFn::new("delete", |ctx, args| send_one(ctx, args, "delete", Some(Method::DELETE))).changes(Changes::World),
    NativeFn::new("request", request),
    NativeFn::new("together", together).changes(Changes::World),
    NativeFn::new("advance", advance).changes(Changes::World),
    NativeFn::new("now", now).changes(Changes::World),
];

/// What a URI cannot have as it is (RFC 3986). Escapes that are there already stay.
const UNSENT: &percent_encoding::AsciiSet = &percent_encoding::CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'<')
    .add(b'>')
    .add(b'`')
    .add(b'{')
    .add(b'}')
    .add(b'|')
    .add(b'^')
    .add(b'\\');

const ARGUMENTS: [&str; 13] = [
    "method",
    "path",
    "query",
    "headers",
    "json",
    "text",
    "after",
    "principal",
    "claims",
    "cookies",
    "form",
    "multipart",
    "client",
];

/// A request from the arguments of a function; `verb` unless the first argument says it.
fn build(name: &str, args: Args<'_>, verb: Option<Method>) -> Result<TestRequest, Stop> {
    let mut given: [Option<&Value>; 13] = [None; 13];
    match &verb {
        None => given = args.bind(name, false, ARGUMENTS, 2)?,
        Some(_) => {
            let [_, names @ ..] = ARGUMENTS;
            let rest = args.bind(name, false, names, 1)?;
            given[1..].copy_from_slice(&rest);
        }
    }
    let [method, path, query, headers, json, body, after, principal, claims, cookies, form, multipart, client] = given;
    let method = match (verb, method) {
        (Some(verb), _) => verb,
        (None, method) => {
            let method = text(name, "method", method.unwrap_or(&Value::None))?;
            Method::from_bytes(method.to_ascii_uppercase().as_bytes())
                .map_err(|_| wrong(name, format_args!("{method:?} is no method")))?
        }
    };
    let mut target = text(name, "path", path.unwrap_or(&Value::None))?;
    if !target.starts_with('/') {
        return Err(wrong(name, format_args!("the path {target:?} does not start with a slash")));
    }
    if let Some(query) = query {
        let entries =
            fanin_lang::value::view::entries(&query.decide()?).ok_or_else(|| wrong(name, "query must be a dict"))?;
        let mut encoded = form_urlencoded::Serializer::new(String::new());
        for (key, value) in &entries {
            match fanin_lang::value::view::elements(&value.decide()?) {
                Ok(items) => items.iter().for_each(|item| {
                    encoded.append_pair(&values::plain(key), &values::plain(item));
                }),
                Err(_) => {
                    encoded.append_pair(&values::plain(key), &values::plain(value));
                }
            }
        }
        target.push(if target.contains('?') { '&' } else { '?' });
        target.push_str(&encoded.finish());
    }
    // People write paths as they read them; a URI has fewer characters.
    let encoded = percent_encoding::utf8_percent_encode(&target, UNSENT).to_string();
    let uri: Uri = encoded.parse().map_err(|error| wrong(name, format_args!("{target:?}: {error}")))?;
    let mut map = HeaderMap::new();
    if let Some(headers) = headers {
        for (name_of, value) in values::header_pairs(&headers.decide()?).map_err(|what| wrong(name, what))? {
            map.append(name_of, value);
        }
    }
    map.entry(HOST).or_insert(HeaderValue::from_static("test"));
    if let Some(cookies) = cookies {
        let cookies = cookie_header(name, &cookies.decide()?)?;
        map.insert(COOKIE, cookies);
    }
    if [json, body, form, multipart].into_iter().flatten().count() > 1 {
        return Err(wrong(name, "it takes one of json, text, form and multipart"));
    }
    let encoded = match (form, multipart) {
        (Some(form), _) => Some(fanin_flow::encode_form(form)),
        (None, Some(form)) => Some(fanin_flow::encode_multipart(form)),
        (None, None) => None,
    };
    let encoded = encoded.transpose().map_err(|what| wrong(name, what))?;
    let body = match (json, body, encoded) {
        (_, _, Some((body, kind))) => {
            map.entry(CONTENT_TYPE).or_insert(kind);
            body
        }
        (Some(value), ..) => {
            let (kind, json) = json_type();
            map.entry(kind).or_insert(json);
            fanin_flow::to_json(value).map_err(|what| wrong(name, format_args!("json: {what}")))?
        }
        (None, Some(body), None) => {
            map.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static("text/plain; charset=utf-8"));
            Bytes::from(text(name, "text", body)?)
        }
        (None, None, None) => Bytes::new(),
    };
    let after = after.map(|after| duration(name, "after", after)).transpose()?.unwrap_or(Duration::ZERO);
    let identity = identity(name, principal, claims, client)?;
    Ok(TestRequest { method, uri, headers: map, body, after, identity })
}

/// The header for a dict of cookies.
fn cookie_header(name: &str, cookies: &Value) -> Result<HeaderValue, Stop> {
    let entries = fanin_lang::value::view::entries(cookies).ok_or_else(|| wrong(name, "cookies must be a dict"))?;
    let mut pairs = Vec::with_capacity(entries.len());
    for (key, value) in &entries {
        pairs.push(format!("{}={}", values::plain(key), values::plain(&value.decide()?)));
    }
    HeaderValue::try_from(pairs.join("; "))
        .map_err(|_| wrong(name, "a cookie has a character that a header cannot have"))
}

/// Who sends the request, if the test tells.
fn identity(
    name: &str,
    principal: Option<&Value>,
    claims: Option<&Value>,
    client: Option<&Value>,
) -> Result<Option<ClientIdentity>, Stop> {
    if principal.is_none() && claims.is_none() && client.is_none() {
        return Ok(None);
    }
    let principal = principal.map(|principal| text(name, "principal", principal)).transpose()?;
    let document = |of: &str, given: Option<&Value>| match given {
        None => Ok(None),
        Some(given) if fanin_lang::value::view::entries(&given.decide()?).is_none() => {
            Err(wrong(name, format_args!("{of} must be a dict")))
        }
        Some(given) => {
            let json = fanin_flow::to_json(given).map_err(|what| wrong(name, format_args!("{of}: {what}")))?;
            values::document(&json).map(Some).ok_or_else(|| wrong(name, format_args!("{of}: nested too deep")))
        }
    };
    let (claims, client) = (document("claims", claims)?, document("client", client)?);
    Ok(Some(ClientIdentity { principal: principal.map(Into::into), claims, auth: None, client }))
}

fn send(ctx: &mut Ctx<'_>, name: &str, requests: Vec<TestRequest>) -> Result<Vec<Value>, Stop> {
    let host = host(ctx, name)?;
    let received = host.world.send(requests).map_err(|what| wrong(name, what))?;
    host.received.extend(received.iter().cloned());
    Ok(received.into_iter().map(|one| Value::object(ResponseObject(one))).collect())
}

/// `get("/products/7", headers = {...})`
fn send_one(ctx: &mut Ctx<'_>, args: Args<'_>, name: &str, verb: Option<Method>) -> Result<Value, Stop> {
    let request = build(name, args, verb)?;
    let mut responses = send(ctx, name, vec![request])?;
    Ok(responses.pop().unwrap_or_default())
}

/// A request that `together` sends.
struct RequestValue(std::cell::RefCell<Option<TestRequest>>, String);

impl std::fmt::Debug for RequestValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "<request {}>", self.1)
    }
}

impl fanin_lang::value::Object for RequestValue {
    fn type_name(&self) -> &'static str {
        "request"
    }

    fn attribute(&self, _: &str) -> Result<Option<Value>, Stop> {
        Ok(None)
    }

    fn names(&self) -> Vec<&str> {
        Vec::new()
    }

    fn show(&self) -> String {
        format!("{self:?}")
    }
}

/// `request("GET", "/products/7", after = "5ms")`: for `together`.
fn request(_: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    let request = build("request", args, None)?;
    let shown = format!("{} {}", request.method, request.uri);
    Ok(Value::object(RequestValue(Some(request).into(), shown)))
}

/// `together([request(...), request(...)])`: their responses, in this order.
fn together(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    let [list] = args.bind("together", false, ["requests"], 1)?;
    let mut requests = Vec::new();
    for one in ctx.elements(list.unwrap_or(&Value::None))? {
        let taken = match &one {
            Value::Object(object) => object.downcast::<RequestValue>().and_then(|value| value.0.take()),
            _ => None,
        };
        requests.push(taken.ok_or_else(|| {
            Stop::fail(Kind::Type, "together() takes a list of request(...), each used once".to_owned())
        })?);
    }
    let responses = send(ctx, "together", requests)?;
    ctx.list(responses)
}

/// `advance("5m")`: virtual time passes.
fn advance(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    let [time] = args.bind("advance", false, ["time"], 1)?;
    let time = duration("advance", "time", time.unwrap_or(&Value::None))?;
    host(ctx, "advance")?.world.pass(time).map_err(|what| wrong("advance", what))?;
    Ok(Value::None)
}

/// `now()`: milliseconds of virtual time since the test began.
fn now(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    args.only("now", false, 0, 0)?;
    let host = host(ctx, "now")?;
    Ok(number(host.world.elapsed()))
}
