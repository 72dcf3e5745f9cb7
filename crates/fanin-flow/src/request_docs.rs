//! Parts of a request as documents: unlike dicts, they are immutable and have an origin for error messages.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::rc::Rc;

use bytes::Bytes;
use fanin_json::{Doc, write_str};
use fanin_lang::{Kind, Stop, Value};
use http::header::COOKIE;

use crate::client_error::client_error;
use crate::client_headers::ClientHeaders;
use crate::cookies;
use crate::form::{self, FileObject, Form};
use crate::name_index::NameIndex;

/// Names of the client's values in messages. A missing part of them is answered with 400.
pub(crate) const COOKIES: &str = "the request's cookies";
/// See [`COOKIES`].
pub(crate) const FORM: &str = "the request's form";

type Pair<'a> = (Cow<'a, str>, Cow<'a, str>);

/// Cookies and form of a request, read on first use.
#[derive(Default)]
pub(crate) struct ClientParts {
    cookies: OnceCell<Doc>,
    form: OnceCell<Rc<Form>>,
    fields: OnceCell<Doc>,
    all_fields: OnceCell<Doc>,
}

impl ClientParts {
    pub(crate) fn cookies(&self, headers: &ClientHeaders) -> Result<Value, Stop> {
        if self.cookies.get().is_none() {
            let values = headers.iter().filter(|(name, _)| **name == COOKIE).map(|(_, value)| value.as_bytes());
            let found = cookies::parse(values);
            let doc = object(found.iter().map(|(name, value)| (&**name, &**value)))?;
            let _ = self.cookies.set(doc);
        }
        Ok(self.cookies.get().cloned().map_or(Value::None, Value::json))
    }

    fn form(&self, headers: &ClientHeaders, body: &Bytes) -> Result<Rc<Form>, Stop> {
        if let Some(form) = self.form.get() {
            return Ok(form.clone());
        }
        let form = Rc::new(form::parse(headers, body).map_err(client_error)?);
        Ok(self.form.get_or_init(|| form).clone())
    }

    /// The first value of each field.
    pub(crate) fn fields(&self, headers: &ClientHeaders, body: &Bytes) -> Result<Value, Stop> {
        if self.fields.get().is_none() {
            let form = self.form(headers, body)?;
            let _ = self.fields.set(first_values(pairs(&form))?);
        }
        Ok(self.fields.get().cloned().map_or(Value::None, Value::json))
    }

    /// All values of each field.
    pub(crate) fn all_fields(&self, headers: &ClientHeaders, body: &Bytes) -> Result<Value, Stop> {
        if self.all_fields.get().is_none() {
            let form = self.form(headers, body)?;
            let _ = self.all_fields.set(all_values(pairs(&form))?);
        }
        Ok(self.all_fields.get().cloned().map_or(Value::None, Value::json))
    }

    /// The files, as lists by the names of their fields.
    pub(crate) fn files(&self, headers: &ClientHeaders, body: &Bytes) -> Result<Value, Stop> {
        let form = self.form(headers, body)?;
        let mut lists: Vec<(&str, Vec<Value>)> = Vec::new();
        for (name, file) in &form.files {
            let value = Value::object(FileObject(file.clone()));
            match lists.iter_mut().find(|(known, _)| known == name) {
                Some((_, list)) => list.push(value),
                None => lists.push((name, vec![value])),
            }
        }
        Ok(Value::record(lists.into_iter().map(|(name, list)| (name, Value::list(list)))))
    }

    /// Whether a form that was read has a field with this value.
    pub(crate) fn has_field(&self, value: &str) -> bool {
        self.form.get().is_some_and(|form| form.fields.iter().any(|(_, own)| own == value))
    }

    /// What `doc` is called, if it is one of these.
    pub(crate) fn origin(&self, doc: &Doc) -> Option<&'static str> {
        let is = |cell: &OnceCell<Doc>| cell.get().is_some_and(|mine| mine.same(doc));
        if is(&self.cookies) {
            return Some(COOKIES);
        }
        (is(&self.fields) || is(&self.all_fields)).then_some(FORM)
    }
}

fn pairs(form: &Form) -> impl Iterator<Item = Pair<'_>> {
    form.fields.iter().map(|(name, value)| (Cow::Borrowed(&**name), Cow::Borrowed(&**value)))
}

/// The first value of each name.
pub(crate) fn first_values<'a>(given: impl Iterator<Item = Pair<'a>>) -> Result<Doc, Stop> {
    let mut pairs: Vec<Pair<'_>> = Vec::new();
    let mut names = NameIndex::default();
    for (name, value) in given {
        if names.find_or_add(&name, pairs.iter().map(|(name, _)| name)).is_none() {
            pairs.push((name, value));
        }
    }
    object(pairs.iter().map(|(name, value)| (&**name, &**value)))
}

/// All values of each name, as lists.
pub(crate) fn all_values<'a>(given: impl Iterator<Item = Pair<'a>>) -> Result<Doc, Stop> {
    let mut lists: Vec<(Cow<'_, str>, Vec<Cow<'_, str>>)> = Vec::new();
    let mut names = NameIndex::default();
    for (name, value) in given {
        match names.find_or_add(&name, lists.iter().map(|(name, _)| name)) {
            Some(at) => lists[at].1.push(value),
            None => lists.push((name, vec![value])),
        }
    }
    let mut text = vec![b'{'];
    for (at, (name, values)) in lists.iter().enumerate() {
        if at > 0 {
            text.push(b',');
        }
        write_str(&mut text, name);
        text.extend_from_slice(b":[");
        for (at, value) in values.iter().enumerate() {
            if at > 0 {
                text.push(b',');
            }
            write_str(&mut text, value);
        }
        text.push(b']');
    }
    text.push(b'}');
    parse(text)
}

/// A document of strings.
pub(crate) fn object<'a>(pairs: impl Iterator<Item = (&'a str, &'a str)>) -> Result<Doc, Stop> {
    let mut text = vec![b'{'];
    for (at, (name, value)) in pairs.enumerate() {
        if at > 0 {
            text.push(b',');
        }
        write_str(&mut text, name);
        text.push(b':');
        write_str(&mut text, value);
    }
    text.push(b'}');
    parse(text)
}

fn parse(text: Vec<u8>) -> Result<Doc, Stop> {
    // Indexed, because the flow is about to read it.
    Doc::parse_indexed(text.into(), 4).map_err(|error| Stop::fail(Kind::Host, format!("internal error: {error}")))
}
