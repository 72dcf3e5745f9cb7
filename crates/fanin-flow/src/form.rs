//! Forms: `application/x-www-form-urlencoded` and `multipart/form-data` (RFC 7578), as clients send them and as calls send them.

use std::borrow::Cow;
use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use fanin_lang::value::{Object, view};
use fanin_lang::{Args, Ctx, Kind, Stop, Value};
use futures_util::FutureExt as _;
use http::header::{CONTENT_TYPE, HeaderValue};
use multer::{Constraints, Multipart, SizeLimit};
use sha2::{Digest, Sha256};

use crate::call::text;
use crate::client_error::client_error;
use crate::client_headers::ClientHeaders;

/// Most fields of a form. More is no use that anybody has.
pub(crate) const MOST_FIELDS: usize = 1_000;
/// The largest form that is read. A worker would be held too long by a larger one.
const LARGEST: usize = 16 << 20;
/// The longest name of a field or file.
const LONGEST_NAME: usize = 1 << 10;

/// The fields of a form, in order.
#[derive(Debug, Default)]
pub(crate) struct Form {
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) files: Vec<(String, Arc<FormFile>)>,
}

/// A file of a form.
#[derive(Debug, Clone)]
pub(crate) struct FormFile {
    pub(crate) filename: String,
    pub(crate) kind: String,
    pub(crate) content: Bytes,
}

/// Reads the form in a body.
///
/// # Errors
/// What is wrong with it: the client's fault.
pub(crate) fn parse(headers: &ClientHeaders, body: &Bytes) -> Result<Form, String> {
    let mut kinds = headers.iter().filter(|(name, _)| **name == CONTENT_TYPE).map(|(_, value)| value);
    let kind = kinds.next().and_then(|value| value.to_str().ok()).unwrap_or_default();
    read(kind, body)
}

/// Reads a form of this content type.
pub(crate) fn read(kind: &str, body: &Bytes) -> Result<Form, String> {
    if body.len() > LARGEST {
        return Err(format!("a form has more than {LARGEST} bytes"));
    }
    let essence = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match &*essence {
        "application/x-www-form-urlencoded" => urlencoded(body),
        "multipart/form-data" => {
            let boundary = multer::parse_boundary(kind).map_err(|_| "the form has no valid boundary".to_owned())?;
            multipart(boundary, body)
        }
        _ => Err("the request's body is no form: its content-type is neither application/x-www-form-urlencoded nor multipart/form-data".to_owned()),
    }
}

fn urlencoded(body: &Bytes) -> Result<Form, String> {
    if body.iter().filter(|byte| **byte == b'&').count() >= MOST_FIELDS {
        return Err(format!("the form has more than {MOST_FIELDS} fields"));
    }
    let fields = form_urlencoded::parse(body).into_owned().collect();
    Ok(Form { fields, files: Vec::new() })
}

fn multipart(boundary: String, body: &Bytes) -> Result<Form, String> {
    let limit = SizeLimit::new().whole_stream(LARGEST as u64).per_field(LARGEST as u64);
    let stream = futures_util::stream::iter([Ok::<Bytes, Infallible>(body.clone())]);
    let mut parts = Multipart::with_constraints(stream, boundary, Constraints::new().size_limit(limit));
    let mut form = Form::default();
    let broken = |error: multer::Error| format!("the form is not valid: {error}");
    // All bytes are there, so nothing is ever pending.
    let pending = || "the form is not complete".to_owned();
    loop {
        let next = parts.next_field().now_or_never().ok_or_else(pending)?.map_err(broken)?;
        let Some(field) = next else { return Ok(form) };
        if form.fields.len() + form.files.len() == MOST_FIELDS {
            return Err(format!("the form has more than {MOST_FIELDS} fields"));
        }
        let name = field.name().map(str::to_owned).ok_or_else(|| "a part of the form has no name".to_owned())?;
        let filename = field.file_name().map(str::to_owned);
        if name.len() > LONGEST_NAME || filename.as_ref().is_some_and(|name| name.len() > LONGEST_NAME) {
            return Err(format!("a name in the form has more than {LONGEST_NAME} bytes"));
        }
        let kind = field.content_type().map(ToString::to_string);
        let content = field.bytes().now_or_never().ok_or_else(pending)?.map_err(broken)?;
        match filename {
            None => {
                let text =
                    std::str::from_utf8(&content).map_err(|_| format!("the field {name:?} is not UTF-8 text"))?;
                form.fields.push((name, text.to_owned()));
            }
            Some(filename) => {
                let kind = kind.unwrap_or_else(|| "application/octet-stream".to_owned());
                form.files.push((name, Arc::new(FormFile { filename, kind, content })));
            }
        }
    }
}

/// A file of a form as a value.
#[derive(Clone)]
pub(crate) struct FileObject(pub(crate) Arc<FormFile>);

impl fmt::Debug for FileObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<file {:?}, {} bytes>", self.0.filename, self.0.content.len())
    }
}

impl Object for FileObject {
    fn type_name(&self) -> &'static str {
        "file"
    }

    fn attribute(&self, name: &str) -> Result<Option<Value>, Stop> {
        let file = &self.0;
        Ok(Some(match name {
            "filename" => Value::str(&file.filename),
            "type" => Value::str(&file.kind),
            "size" => Value::Int(i64::try_from(file.content.len()).unwrap_or(i64::MAX)),
            "bytes" => Value::Bytes(Arc::new(file.content.to_vec())),
            "text" => match std::str::from_utf8(&file.content) {
                Ok(text) => Value::str(text),
                Err(_) => {
                    let message = format!("the file {:?} is not UTF-8 text", file.filename);
                    return Err(client_error(message));
                }
            },
            _ => return Ok(None),
        }))
    }

    fn names(&self) -> Vec<&str> {
        vec!["bytes", "filename", "size", "text", "type"]
    }

    fn show(&self) -> String {
        format!("{self:?}")
    }
}

/// `file(content, filename, type = "application/octet-stream")`: a file for `multipart`.
pub(crate) fn file(_: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    let [content, filename, kind] = args.bind("file", false, ["content", "filename", "type"], 2)?;
    let wrong = |what: &str| Stop::fail(Kind::Type, format!("file(): {what}"));
    let content = match content.map(Value::decide).transpose()? {
        Some(Value::Bytes(bytes)) => Bytes::from(bytes.to_vec()),
        Some(value) => match value.as_str() {
            Some(text) => Bytes::copy_from_slice(text.as_bytes()),
            None => return Err(wrong("the content must be bytes or a string")),
        },
        None => return Err(wrong("the content must be bytes or a string")),
    };
    let string = |value: Option<&Value>| -> Result<Option<String>, Stop> {
        match value.map(Value::decide).transpose()? {
            None | Some(Value::None) => Ok(None),
            Some(value) => {
                value.as_str().map(|text| Some(text.to_owned())).ok_or_else(|| wrong("names must be strings"))
            }
        }
    };
    let filename = string(filename)?.ok_or_else(|| wrong("it needs a filename"))?;
    let kind = string(kind)?.unwrap_or_else(|| "application/octet-stream".to_owned());
    if HeaderValue::from_str(&kind).is_err() {
        return Err(wrong("the type has a character that a header cannot have"));
    }
    Ok(Value::object(FileObject(Arc::new(FormFile { filename, kind, content }))))
}

/// A body of a call, and its content type.
pub type Encoded = (Bytes, HeaderValue);

/// `form = {...}`: fields as in a query. A list repeats its name; `None` leaves it out.
///
/// # Errors
/// What cannot be sent.
pub fn encode(form: &Value) -> Result<Encoded, String> {
    let mut out = form_urlencoded::Serializer::new(String::new());
    each(form, "form", |name, value| {
        let value =
            text(value).ok_or_else(|| format!("form: the field {name:?} must be a string, a number or a list"))?;
        out.append_pair(name, &value);
        Ok(())
    })?;
    Ok((out.finish().into(), HeaderValue::from_static("application/x-www-form-urlencoded")))
}

/// `multipart = {...}`: strings, numbers and files. A list repeats its name; `None` leaves it out.
///
/// # Errors
/// What cannot be sent.
pub fn encode_multipart(form: &Value) -> Result<Encoded, String> {
    let mut parts: Vec<(String, Bytes)> = Vec::new();
    each(form, "multipart", |name, value| {
        let disposition = format!("content-disposition: form-data; name=\"{}\"", quoted(name));
        let file = match value.decide() {
            Ok(Value::Object(object)) => object.downcast::<FileObject>().cloned(),
            _ => None,
        };
        if let Some(FileObject(file)) = file {
            let head = format!("{disposition}; filename=\"{}\"\r\ncontent-type: {}", quoted(&file.filename), file.kind);
            parts.push((head, file.content.clone()));
            return Ok(());
        }
        let value = text(value).ok_or_else(|| {
            format!("multipart: the field {name:?} must be a string, a number, a file or a list of these")
        })?;
        parts.push((disposition, Bytes::copy_from_slice(value.as_bytes())));
        Ok(())
    })?;
    let boundary = boundary(&parts);
    let size = parts.iter().map(|(head, content)| head.len() + content.len() + boundary.len() + 10).sum::<usize>();
    let mut body = Vec::with_capacity(size + boundary.len() + 8);
    for (head, content) in &parts {
        body.extend_from_slice(format!("--{boundary}\r\n{head}\r\n\r\n").as_bytes());
        body.extend_from_slice(content);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
    let kind = HeaderValue::try_from(format!("multipart/form-data; boundary={boundary}"));
    Ok((body.into(), kind.map_err(|error| error.to_string())?))
}

/// A boundary that is in no part. The same parts have the same one, so that the same call is the same request.
fn boundary(parts: &[(String, Bytes)]) -> String {
    let mut hash = Sha256::new();
    for (head, content) in parts {
        hash.update((head.len() as u64).to_be_bytes());
        hash.update(head.as_bytes());
        hash.update((content.len() as u64).to_be_bytes());
        hash.update(content);
    }
    let digest = hash.finalize();
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    // Whoever could write its own hash into a part could also break SHA-256.
    format!("fanin-{}", hex(&digest[..16]))
}

/// A name within quotes, as browsers escape it (the HTML standard, "multipart/form-data").
fn quoted(name: &str) -> Cow<'_, str> {
    match name.contains(['"', '\r', '\n']) {
        true => Cow::Owned(name.replace('"', "%22").replace('\r', "%0D").replace('\n', "%0A")),
        false => Cow::Borrowed(name),
    }
}

/// Calls `add` for each field of a dict.
fn each(form: &Value, what: &str, mut add: impl FnMut(&str, &Value) -> Result<(), String>) -> Result<(), String> {
    let pending = || format!("{what} is pending");
    let form = form.decide().map_err(|_| pending())?;
    let entries = view::entries(&form).ok_or_else(|| format!("{what} must be a dict"))?;
    let mut count = 0;
    for (name, value) in entries {
        let name = text(&name).ok_or_else(|| format!("{what}: the name of a field must be a string"))?.into_owned();
        let values = match value.decide().map_err(|_| pending())? {
            Value::None => Vec::new(),
            list @ (Value::List(_) | Value::Tuple(_)) => view::elements(&list).map_err(|_| pending())?,
            value if view::elements(&value).is_ok() && text(&value).is_none() => {
                view::elements(&value).map_err(|_| pending())?
            }
            _ => vec![value],
        };
        count += values.len();
        if count > MOST_FIELDS {
            return Err(format!("{what} has more than {MOST_FIELDS} fields"));
        }
        for value in &values {
            add(&name, value)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(form: &Form) -> Vec<(&str, &str)> {
        form.fields.iter().map(|(name, value)| (&**name, &**value)).collect()
    }

    #[test]
    fn fields_and_files_come_back() {
        let file = FormFile { filename: "a \"b\".txt".into(), kind: "text/plain".into(), content: "x\r\n--y".into() };
        let form = Value::record([
            ("title", Value::str("ü & =")),
            ("n", Value::list(vec![Value::Int(1), Value::Int(2)])),
            ("none", Value::None),
        ]);
        let (body, kind) = encode(&form).expect("encoded");
        assert_eq!(body, "title=%C3%BC+%26+%3D&n=1&n=2");
        let read_back = read(kind.to_str().expect("ASCII"), &body).expect("a form");
        assert_eq!(fields(&read_back), [("title", "ü & ="), ("n", "1"), ("n", "2")]);

        let form = Value::record([
            ("title", Value::str("ü\r\n--fanin-")),
            ("na\"me\r\n", Value::str("x")),
            ("photo", Value::object(FileObject(Arc::new(file.clone())))),
        ]);
        let (body, kind) = encode_multipart(&form).expect("encoded");
        assert_eq!(encode_multipart(&form).expect("encoded").0, body, "the same parts are the same bytes");
        let read_back = read(kind.to_str().expect("ASCII"), &body).expect("a form");
        assert_eq!(fields(&read_back), [("title", "ü\r\n--fanin-"), ("na%22me%0D%0A", "x")]);
        let (name, photo) = &read_back.files[0];
        assert_eq!((&**name, &*photo.kind, &photo.content), ("photo", "text/plain", &file.content));
        assert_eq!(photo.filename, "a %22b%22.txt");
    }

    #[test]
    fn broken_forms_are_refused() {
        let kind = "multipart/form-data; boundary=b";
        let part = "--b\r\ncontent-disposition: form-data; name=\"a\"\r\n\r\n1\r\n";
        assert!(read(kind, &format!("{part}--b--\r\n").into()).is_ok());
        let nameless = "--b\r\ncontent-disposition: form-data\r\n\r\n1\r\n--b--\r\n";
        for body in ["", "no form", "--b", part, nameless, &format!("{}--b--\r\n", part.repeat(MOST_FIELDS + 1))] {
            assert!(read(kind, &body.to_owned().into()).is_err(), "{body:.60}");
        }
        assert!(read("multipart/form-data", &"".into()).is_err());
        assert!(read("application/json", &"{}".into()).is_err());
        assert!(read("application/x-www-form-urlencoded", &"a&".repeat(MOST_FIELDS).into()).is_err());
        let form = read("Application/X-WWW-Form-Urlencoded; charset=utf-8", &"a=1&b&=c".into()).expect("a form");
        assert_eq!(fields(&form), [("a", "1"), ("b", ""), ("", "c")]);
    }
}
