//! Cookies (RFC 6265bis): those of a request, and those that a response sets.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use fanin_lang::value::{Object, view};
use fanin_lang::{Args, Ctx, Failure, Kind, Stop, Value};
use http::HeaderMap;
use http::header::{HeaderValue, SET_COOKIE};

use crate::call::text;

/// Most cookies of a request that are read. Browsers send at most a few hundred.
const MOST: usize = 500;
/// The longest cookie that browsers keep: name, value and attributes.
const LONGEST: usize = 4096;

/// The cookies in the values of `Cookie`, in order. Whatever has no name is left out, as browsers and servers do. Of several with one name
/// the first counts: its path is the most exact one.
pub(crate) fn parse<'v>(values: impl Iterator<Item = &'v [u8]>) -> Vec<(Cow<'v, str>, Cow<'v, str>)> {
    let mut found: Vec<(Cow<'v, str>, Cow<'v, str>)> = Vec::new();
    let pairs = values.flat_map(|value| value.split(|byte| *byte == b';')).map(<[u8]>::trim_ascii);
    for pair in pairs.filter(|pair| !pair.is_empty()).take(MOST) {
        let Some(equals) = pair.iter().position(|byte| *byte == b'=') else { continue };
        let (name, value) = (pair[..equals].trim_ascii(), pair[equals + 1..].trim_ascii());
        let value = match value {
            [b'"', inner @ .., b'"'] => inner,
            value => value,
        };
        if name.is_empty() {
            continue;
        }
        let name = String::from_utf8_lossy(name);
        if !found.iter().any(|(known, _)| *known == name) {
            found.push((name, String::from_utf8_lossy(value)));
        }
    }
    found
}

/// `cookie(...)`: a cookie to be set.
#[derive(Clone)]
pub(crate) struct CookieObject {
    name: String,
    header: HeaderValue,
}

impl fmt::Debug for CookieObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The value may be a secret.
        write!(f, "<cookie {}>", self.name)
    }
}

impl Object for CookieObject {
    fn type_name(&self) -> &'static str {
        "cookie"
    }

    fn attribute(&self, name: &str) -> Result<Option<Value>, Stop> {
        Ok((name == "name").then(|| Value::str(&self.name)))
    }

    fn names(&self) -> Vec<&str> {
        vec!["name"]
    }

    fn show(&self) -> String {
        format!("{self:?}")
    }
}

fn wrong(what: impl fmt::Display) -> Stop {
    Stop::fail(Kind::Value, format!("cookie(): {what}"))
}

/// A character of a name (a token) or of a value (RFC 6265bis, section 4.1.1).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn is_value(byte: u8) -> bool {
    byte.is_ascii_graphic() && !b"\",;\\".contains(&byte)
}

/// The attributes of a cookie.
struct Attributes {
    max_age: Option<Duration>,
    path: String,
    domain: Option<String>,
    http_only: bool,
    secure: bool,
    same_site: &'static str,
}

impl Attributes {
    /// What keeps the cookie from working, or from being safe.
    fn check(&self, name: &str) -> Result<(), Stop> {
        let is_attribute = |text: &str| text.bytes().all(|byte| (b' '..0x7f).contains(&byte) && byte != b';');
        if !self.path.starts_with('/') || !is_attribute(&self.path) {
            return Err(wrong(format_args!("path {:?} must begin with a slash", self.path)));
        }
        if let Some(domain) = &self.domain
            && (domain.is_empty() || !domain.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-".contains(&byte)))
        {
            return Err(wrong(format_args!("domain {domain:?} is no host")));
        }
        if self.same_site == "None" && !self.secure {
            return Err(wrong("same_site = \"none\" needs secure = True: browsers drop the cookie otherwise"));
        }
        let begins = |prefix: &str| name.get(..prefix.len()).is_some_and(|it| it.eq_ignore_ascii_case(prefix));
        if (begins("__Secure-") || begins("__Host-")) && !self.secure {
            return Err(wrong(format_args!("the name {name:?} needs secure = True")));
        }
        if begins("__Host-") && (self.domain.is_some() || self.path != "/") {
            return Err(wrong(format_args!("the name {name:?} needs path = \"/\" and no domain")));
        }
        Ok(())
    }

    fn header(&self, name: &str, value: &str) -> Result<HeaderValue, Stop> {
        let mut header = format!("{name}={value}; Path={}", self.path);
        if let Some(domain) = &self.domain {
            header.push_str(&format!("; Domain={domain}"));
        }
        if let Some(age) = self.max_age {
            header.push_str(&format!("; Max-Age={}", age.as_secs()));
        }
        header.push_str(&format!("; SameSite={}", self.same_site));
        header.push_str(if self.secure { "; Secure" } else { "" });
        header.push_str(if self.http_only { "; HttpOnly" } else { "" });
        if header.len() > LONGEST {
            return Err(wrong(format_args!("{name:?} is longer than the {LONGEST} bytes that browsers keep")));
        }
        HeaderValue::try_from(header).map_err(|_| wrong("it has a character that a header cannot have"))
    }
}

/// `cookie(name, value, max_age = None, path = "/", domain = None, http_only = True, secure = True, same_site = "lax")`
pub(crate) fn cookie(_: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    let names = ["name", "value", "max_age", "path", "domain", "http_only", "secure", "same_site"];
    let [name, value, max_age, path, domain, http_only, secure, same_site] = args.bind("cookie", false, names, 2)?;
    let given = |value: Option<&Value>| -> Result<Option<Value>, Stop> {
        Ok(value.map(Value::decide).transpose()?.filter(|value| !matches!(value, Value::None)))
    };
    let string = |what: &str, value: Option<&Value>| match given(value)? {
        None => Ok(None),
        Some(Value::Str(text)) => Ok(Some(text.to_string())),
        Some(_) => Err(wrong(format_args!("{what} must be a string"))),
    };
    let flag = |what: &str, value: Option<&Value>| match given(value)? {
        None => Ok(true),
        Some(Value::Bool(flag)) => Ok(flag),
        Some(_) => Err(wrong(format_args!("{what} must be True or False"))),
    };
    let name = string("name", name)?.unwrap_or_default();
    if name.is_empty() || !name.bytes().all(is_token) {
        return Err(wrong(format_args!("{name:?} is no name of a cookie")));
    }
    let value = given(value)?;
    let max_age = match given(max_age)? {
        // Without a value, the client is to forget it.
        None => value.is_none().then_some(Duration::ZERO),
        Some(Value::Int(seconds)) if seconds >= 0 => Some(Duration::from_secs(seconds.unsigned_abs())),
        Some(age) => match age.as_str().and_then(|text| fanin_config::parse_duration(text).ok()) {
            Some(age) => Some(age),
            None => return Err(wrong("max_age must be a duration such as \"30d\", or a number of seconds")),
        },
    };
    let same_site = match string("same_site", same_site)?.as_deref().map(str::to_ascii_lowercase).as_deref() {
        None | Some("lax") => "Lax",
        Some("strict") => "Strict",
        Some("none") => "None",
        Some(_) => return Err(wrong("same_site must be \"lax\", \"strict\" or \"none\"")),
    };
    let attributes = Attributes {
        max_age,
        path: string("path", path)?.unwrap_or_else(|| "/".to_owned()),
        domain: string("domain", domain)?,
        http_only: flag("http_only", http_only)?,
        secure: flag("secure", secure)?,
        same_site,
    };
    attributes.check(&name)?;
    let value = match &value {
        None => Cow::Borrowed(""),
        Some(value) => text(value).ok_or_else(|| wrong("the value must be a string or a number"))?,
    };
    if let Some(bad) = value.chars().find(|char| !char.is_ascii() || !is_value(*char as u8)) {
        let what = format!("cookie(): the value of {name:?} has {bad:?}, which a cookie cannot have");
        let hint = "write it with sign(), or with encode(value, url = True) of \"@base64\"";
        return Err(Failure::new(Kind::Value, what).with_hint(hint).into());
    }
    let header = attributes.header(&name, &value)?;
    Ok(Value::object(CookieObject { name, header }))
}

/// The headers that set the cookies of a `response(...)`.
pub(crate) fn set(cookies: &Value, headers: &mut HeaderMap) -> Result<(), Failure> {
    let wrong = |what: &str| Failure::new(Kind::Value, format!("response(): {what}"));
    let cookies = cookies.decide().map_err(|_| wrong("cookies are pending"))?;
    let list = match &cookies {
        Value::None => return Ok(()),
        Value::List(_) | Value::Tuple(_) => view::elements(&cookies).map_err(|_| wrong("cookies are pending"))?,
        _ => return Err(wrong("cookies must be a list of cookie(...)")),
    };
    for one in list {
        let one = one.decide().map_err(|_| wrong("a cookie is pending"))?;
        let cookie = match &one {
            Value::Object(object) => object.downcast::<CookieObject>().cloned(),
            _ => None,
        };
        let cookie = cookie.ok_or_else(|| wrong("cookies must be a list of cookie(...)"))?;
        headers.append(SET_COOKIE, cookie.header);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_are_read_leniently() {
        let read = |values: &[&str]| {
            let found = parse(values.iter().map(|value| value.as_bytes()));
            found.iter().map(|(name, value)| format!("{name}:{value}")).collect::<Vec<_>>()
        };
        for (values, expected) in [
            (&["a=1; b=2"][..], &["a:1", "b:2"][..]),
            (&["a=1", "b=2"], &["a:1", "b:2"]),
            (&["a=1;b=2;;  ; c = 3 ;"], &["a:1", "b:2", "c:3"]),
            (&["a=x=y=z"], &["a:x=y=z"]),
            (&["a=\"quoted, text\"; b=\""], &["a:quoted, text", "b:\""]),
            (&["a=1; a=2"], &["a:1"]),
            (&["flag; =value; a="], &["a:"]),
            (&["$Version=1; ü=é"], &["$Version:1", "ü:é"]),
            (&[""], &[]),
        ] {
            assert_eq!(read(values), expected, "{values:?}");
        }
        let many = (0..2 * MOST).map(|at| format!("c{at}=1")).collect::<Vec<_>>().join(";");
        assert_eq!(read(&[&many]).len(), MOST);
        assert_eq!(parse(std::iter::once(&b"a=\xff"[..])), [("a".into(), "\u{fffd}".into())]);
    }
}
