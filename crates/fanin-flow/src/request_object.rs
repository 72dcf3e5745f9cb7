//! `req`: the request as flows see it.

use std::borrow::Cow;
use std::cell::{Cell, OnceCell};
use std::fmt;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use arcstr::ArcStr;
use bytes::Bytes;
use fanin_json::Doc;
use fanin_lang::value::frozen::FrozenMap;
use fanin_lang::value::{Frozen, Object};
use fanin_lang::{FrozenValue, Stop, Value};
use fanin_tracecontext::{TraceContext, TraceId};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use tokio::time::Instant;
use tracing::field::{DisplayValue, display};

use crate::client_error::client_error;
use crate::client_headers::ClientHeaders;
use crate::client_identity::ClientIdentity;
use crate::flow_error::FlowError;
use crate::incoming_request::IncomingRequest;
use crate::upload::{self, UploadedBody};

use crate::json_thread::{self, Parsing, Reading};
use crate::refused_path::RefusedPath;
use crate::request_docs::{ClientParts, all_values, first_values, object};
use crate::route::LargeBodies;

/// Names of the client's values in messages. A missing part of them is answered with 400.
pub(crate) const QUERY: &str = "the request's query";
/// See [`QUERY`].
pub(crate) const HEADERS: &str = "the request's headers";
/// See [`QUERY`].
pub(crate) const BODY: &str = "the request's body";

/// Most parameters of a query. More is no use that anybody has, and answered with 400.
const MAX_QUERY_PARAMETERS: usize = 1_000;

/// `req`. Its attributes are built on first use. It lives as long as its flow, so it keeps only what a flow can read.
pub(crate) struct RequestObject {
    number: u64,
    method: Method,
    pub(crate) target: PathAndQuery,
    path_params: Vec<(ArcStr, ArcStr)>,
    client_headers: ClientHeaders,
    content: Bytes,
    upload: Option<Rc<UploadedBody>>,
    remote: IpAddr,
    identity: Option<Box<ClientIdentity>>,
    start: Instant,
    deadline: Instant,
    trace: Option<Arc<TraceContext>>,
    max_depth: u32,
    params: OnceCell<Value>,
    query: OnceCell<Doc>,
    lazy: OnceCell<Box<LazyParts>>,
}

/// Attributes that few flows use.
#[derive(Default)]
struct LazyParts {
    known_id: OnceCell<HeaderValue>,
    query_all: OnceCell<Doc>,
    headers: OnceCell<Doc>,
    body: OnceCell<Doc>,
    body_was_read: Cell<bool>,
    time: OnceCell<i64>,
    parts: ClientParts,
}

impl RequestObject {
    pub(crate) fn new(incoming: IncomingRequest, max_depth: usize) -> RequestObject {
        let IncomingRequest {
            number,
            known_id,
            method,
            uri,
            params,
            headers,
            body,
            upload,
            remote,
            identity,
            start,
            deadline,
            trace,
            permit: _,
            detail: _,
        } = incoming;
        let request = RequestObject {
            number,
            method,
            target: uri.into_parts().path_and_query.unwrap_or_else(|| PathAndQuery::from_static("/")),
            path_params: params,
            client_headers: ClientHeaders::from(headers),
            content: body,
            upload: upload.map(UploadedBody::new),
            remote: remote.ip(),
            identity,
            start,
            deadline,
            trace,
            max_depth: u32::try_from(max_depth).unwrap_or(u32::MAX),
            params: OnceCell::new(),
            query: OnceCell::new(),
            lazy: OnceCell::new(),
        };
        if let Some(id) = known_id {
            let _ = request.lazy().known_id.set(id);
        }
        request
    }

    /// Its number.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// When the request arrived.
    pub(crate) fn start(&self) -> Instant {
        self.start
    }

    /// The request's deadline.
    pub(crate) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Its trace.
    pub(crate) fn trace(&self) -> Option<&Arc<TraceContext>> {
        self.trace.as_ref()
    }

    /// The id of its trace, for log lines.
    pub(crate) fn trace_id(&self) -> Option<DisplayValue<TraceId>> {
        self.trace.as_ref().map(|trace| display(trace.id()))
    }

    /// The id by which others know it, for log lines.
    pub(crate) fn known_id(&self) -> Option<&str> {
        // The server takes ASCII only.
        self.lazy.get()?.known_id.get()?.to_str().ok()
    }

    /// What the client receives if its body was passed on and was not complete.
    pub(crate) fn upload_failure(&self) -> Option<FlowError> {
        self.upload.as_ref()?.failure()
    }

    /// Whether the client wants the head of a response only.
    pub(crate) fn is_head(&self) -> bool {
        self.method == Method::HEAD
    }

    pub(crate) fn headers(&self) -> &ClientHeaders {
        &self.client_headers
    }

    /// The value of the client that makes a path unsafe, if there is one in it: a path parameter, a value of the query, a header,
    /// or a string in the body.
    #[cold]
    pub(crate) fn unsafe_value(&self, refused: &RefusedPath) -> Option<String> {
        let params = self.path_params.iter().map(|(_, value)| Cow::Borrowed(&**value));
        let query = self.pairs().ok().into_iter().flatten().map(|(_, value)| value);
        let headers = self.client_headers.iter().filter_map(|(_, value)| value.to_str().ok()).map(Cow::Borrowed);
        let found = params.chain(query).chain(headers).find(|value| refused.is_due_to(value)).map(Cow::into_owned);
        // A flow that has not parsed the body has no value of it.
        found.or_else(|| refused.find_in(self.lazy.get()?.body.get()?.root()))
    }

    /// Whether the client has sent this value: in the path, the query, a field of the form or a header.
    #[cold]
    pub(crate) fn has_value(&self, value: &str) -> bool {
        let in_form = || self.lazy().parts.has_field(value);
        self.path_params.iter().any(|(_, own)| *own == value)
            || self.pairs().is_ok_and(|mut pairs| pairs.any(|(_, own)| own == value))
            || self.client_headers.iter().any(|(_, own)| own.as_bytes() == value.as_bytes())
            || in_form()
    }

    /// When the request began, in milliseconds since 1970: the same value throughout the request.
    pub(crate) fn time(&self) -> i64 {
        *self.lazy().time.get_or_init(|| {
            let began = SystemTime::now().checked_sub(self.start.elapsed());
            let since = began.and_then(|began| began.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
            i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
        })
    }

    fn lazy(&self) -> &LazyParts {
        self.lazy.get_or_init(Box::default)
    }

    /// What `doc` is called, if it is a part of the request.
    pub(crate) fn origin(&self, doc: &Doc) -> Option<&'static str> {
        let is = |cell: &OnceCell<Doc>| cell.get().is_some_and(|mine| mine.same(doc));
        if is(&self.query) {
            return Some(QUERY);
        }
        let lazy = self.lazy.get()?;
        if is(&lazy.query_all) {
            Some(QUERY)
        } else if is(&lazy.headers) {
            Some(HEADERS)
        } else if lazy.body.get().is_some_and(|mine| mine.same(doc)) {
            Some(BODY)
        } else {
            lazy.parts.origin(doc)
        }
    }

    fn query(&self) -> Result<&Doc, Stop> {
        if let Some(doc) = self.query.get() {
            return Ok(doc);
        }
        let doc = first_values(self.pairs()?)?;
        Ok(self.query.get_or_init(|| doc))
    }

    fn query_all(&self) -> Result<&Doc, Stop> {
        if let Some(doc) = self.lazy().query_all.get() {
            return Ok(doc);
        }
        let doc = all_values(self.pairs()?)?;
        Ok(self.lazy().query_all.get_or_init(|| doc))
    }

    fn pairs(&self) -> Result<form_urlencoded::Parse<'_>, Stop> {
        let query = self.target.query().unwrap_or("").as_bytes();
        if query.iter().filter(|byte| **byte == b'&').count() >= MAX_QUERY_PARAMETERS {
            return Err(client_error(format!("{QUERY} has more than {MAX_QUERY_PARAMETERS} parameters")));
        }
        Ok(form_urlencoded::parse(query))
    }

    fn header_doc(&self) -> Result<&Doc, Stop> {
        if let Some(doc) = self.lazy().headers.get() {
            return Ok(doc);
        }
        let joined = join(self.client_headers.iter());
        let doc = object(joined.iter().map(|(name, value)| (name.as_str(), value.as_str())))?;
        Ok(self.lazy().headers.get_or_init(|| doc))
    }

    /// Parses a large body ahead of its first use, on the thread for JSON.
    pub(crate) fn parse_ahead(&self) -> Parsing {
        json_thread::parse(self.content.clone(), self.max_depth as usize, Reading::Expected)
    }

    /// The body, parsed ahead. An invalid one is reported when it is read.
    pub(crate) fn set_parsed(&self, doc: Doc) {
        let _ = self.lazy().body.set(doc);
    }

    /// Whether the body is a large one.
    #[inline]
    pub(crate) fn has_large_body(&self) -> bool {
        self.content.len() > LargeBodies::SIZE
    }

    /// Whether the flow has read the body as JSON.
    pub(crate) fn body_was_read(&self) -> bool {
        self.lazy.get().is_some_and(|lazy| lazy.body_was_read.get())
    }

    fn identity_doc(&self, part: impl Fn(&ClientIdentity) -> &Option<Doc>) -> Value {
        let doc = self.identity.as_ref().and_then(|identity| part(identity).clone());
        doc.map_or(Value::None, Value::json)
    }

    fn body(&self) -> Result<Value, Stop> {
        self.lazy().body_was_read.set(true);
        let parsed = &self.lazy().body;
        if let Some(doc) = parsed.get() {
            return Ok(Value::json(doc.clone()));
        }
        // `null`, and not None: an operation that needs more is then the client's fault, as with any other body.
        let text = if self.content.is_empty() { Bytes::from_static(b"null") } else { self.content.clone() };
        let doc = Doc::parse(text, self.max_depth as usize)
            .map_err(|error| client_error(format!("the request's body is not valid JSON: {error}")))?;
        Ok(Value::json(parsed.get_or_init(|| doc).clone()))
    }
}

/// Header values by name. Several of one name are joined with a comma (RFC 9110, section 5.3).
pub(crate) fn join_headers(headers: &HeaderMap) -> Vec<(String, String)> {
    join(headers.iter())
}

fn join<'a>(headers: impl Iterator<Item = (&'a HeaderName, &'a HeaderValue)>) -> Vec<(String, String)> {
    let mut joined: Vec<(&HeaderName, String)> = Vec::new();
    for (name, value) in headers {
        let value = String::from_utf8_lossy(value.as_bytes());
        // A header map yields values of one name consecutively.
        match joined.last_mut() {
            Some((last, values)) if *last == name => {
                values.push_str(", ");
                values.push_str(&value);
            }
            _ => joined.push((name, value.into_owned())),
        }
    }
    joined.into_iter().map(|(name, values)| (name.as_str().to_owned(), values)).collect()
}

impl fmt::Debug for RequestObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<request {} {}>", self.method, self.target.path())
    }
}

/// Shared by the flow and the host, which names the request's parts in messages.
impl Object for RequestObject {
    fn type_name(&self) -> &'static str {
        "request"
    }

    fn attribute(&self, name: &str) -> Result<Option<Value>, Stop> {
        let req = self;
        Ok(Some(match name {
            "params" => req
                .params
                .get_or_init(|| {
                    let text = |text: &ArcStr| FrozenValue::Str(text.clone());
                    let entries = req.path_params.iter().map(|(name, value)| (text(name), text(value)));
                    Value::Frozen(Arc::new(Frozen::Dict(FrozenMap::new(entries.collect()))))
                })
                .clone(),
            "query" => Value::json(req.query()?.clone()),
            "query_all" => Value::json(req.query_all()?.clone()),
            "headers" => Value::json(req.header_doc()?.clone()),
            "cookies" => req.lazy().parts.cookies(&req.client_headers)?,
            "body" | "text" | "form" | "form_all" | "files" if req.upload.is_some() => {
                return Err(upload::not_read(name));
            }
            "stream" => upload::stream(req.upload.as_ref())?,
            "form" => req.lazy().parts.fields(&req.client_headers, &req.content)?,
            "form_all" => req.lazy().parts.all_fields(&req.client_headers, &req.content)?,
            "files" => req.lazy().parts.files(&req.client_headers, &req.content)?,
            "body" => req.body()?,
            "text" => match std::str::from_utf8(&req.content) {
                Ok(text) => Value::str(text),
                Err(_) => return Err(client_error("the request's body is not UTF-8 text".to_owned())),
            },
            "id" => match req.known_id() {
                Some(id) => Value::str(id),
                None => Value::str(&format!("{:016x}", req.number)),
            },
            "method" => Value::str(req.method.as_str()),
            "path" => Value::str(req.target.path()),
            "time" => Value::Int(req.time()),
            "remote" => Value::str(&req.remote.to_string()),
            "principal" => {
                let principal = req.identity.as_ref().and_then(|identity| identity.principal.as_deref());
                principal.map_or(Value::None, Value::str)
            }
            "claims" => req.identity_doc(|identity| &identity.claims),
            "auth" => req.identity_doc(|identity| &identity.auth),
            "client" => req.identity_doc(|identity| &identity.client),
            _ => return Ok(None),
        }))
    }

    fn names(&self) -> Vec<&str> {
        vec![
            "auth",
            "body",
            "claims",
            "client",
            "cookies",
            "files",
            "form",
            "form_all",
            "headers",
            "id",
            "method",
            "params",
            "path",
            "principal",
            "query",
            "query_all",
            "remote",
            "stream",
            "text",
            "time",
        ]
    }

    fn show(&self) -> String {
        format!("{self:?}")
    }
}

#[cfg(test)]
mod tests {
    use http::header::{ACCEPT, COOKIE, HOST};

    use super::*;
    use crate::client_error::ClientError;

    #[test]
    fn repeated_headers_are_kept_together() {
        let mut headers = HeaderMap::new();
        headers.append(COOKIE, HeaderValue::from_static("a=1"));
        headers.append(HOST, HeaderValue::from_static("shop"));
        headers.append(COOKIE, HeaderValue::from_static("b=2"));
        headers.append(ACCEPT, HeaderValue::from_static("*/*"));
        headers.append(COOKIE, HeaderValue::from_static("c=3"));
        let kept = ClientHeaders::from(headers.clone());
        assert_eq!(kept.iter().collect::<Vec<_>>(), headers.iter().collect::<Vec<_>>());
        let joined = join(kept.iter());
        assert_eq!(joined, join_headers(&headers));
        let of = |name: &str| joined.iter().filter(|(other, _)| other == name).map(|(_, value)| &**value).collect();
        let (cookies, hosts): (Vec<&str>, Vec<&str>) = (of("cookie"), of("host"));
        assert_eq!((cookies, hosts), (vec!["a=1, b=2, c=3"], vec!["shop"]));
    }

    fn request(query: &str) -> RequestObject {
        let now = Instant::now();
        let incoming = IncomingRequest {
            number: 0,
            known_id: None,
            method: Method::GET,
            uri: format!("/x?{query}").parse().unwrap(),
            params: Vec::new(),
            headers: HeaderMap::new(),
            body: Bytes::new(),
            upload: None,
            remote: "127.0.0.1:1".parse().unwrap(),
            identity: None,
            start: now,
            deadline: now,
            trace: None,
            permit: None,
            detail: crate::call_record::Detail::Nothing,
        };
        RequestObject::new(incoming, 4)
    }

    fn text(doc: Result<&Doc, Stop>) -> String {
        String::from_utf8(doc.expect("a valid query").bytes().to_vec()).unwrap()
    }

    #[test]
    fn the_first_value_of_a_name_counts_however_many_there_are() {
        let few = request("a=1&b=2&a=3");
        assert_eq!(text(few.query()), r#"{"a":"1","b":"2"}"#);
        assert_eq!(text(few.query_all()), r#"{"a":["1","3"],"b":["2"]}"#);
        let names: Vec<String> = (0..499).map(|n| format!("%6e{n}={n}")).collect();
        let twice = request(&format!("{}&{}", names.join("&"), names.join("&")));
        let expected: Vec<String> = (0..499).map(|n| format!("\"n{n}\":\"{n}\"")).collect();
        assert_eq!(text(twice.query()), format!("{{{}}}", expected.join(",")));
        let expected: Vec<String> = (0..499).map(|n| format!("\"n{n}\":[\"{n}\",\"{n}\"]")).collect();
        assert_eq!(text(twice.query_all()), format!("{{{}}}", expected.join(",")));
    }

    #[test]
    fn a_query_of_too_many_parameters_is_the_clients_fault() {
        let most = vec!["a"; MAX_QUERY_PARAMETERS].join("&");
        assert!(request(&most).query().is_ok());
        let Err(Stop::Fail(failure)) = request(&format!("{most}&a")).query().map(drop) else { panic!("accepted") };
        assert!(failure.payload.as_ref().is_some_and(|payload| payload.is::<ClientError>()), "{failure:?}");
    }
}
