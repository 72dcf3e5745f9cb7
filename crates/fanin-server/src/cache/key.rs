//! By what kept responses are found: host, path and query, and the request headers that a response varies by.

use fanin_config::ResponseCache;
use http::header::{ACCEPT_ENCODING, HOST, VARY};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, Uri};
use smallvec::SmallVec;

/// Most request headers that a response may vary by. One that names more is not kept.
const MOST_NAMES: usize = 16;

/// A key. Most are short, so that a lookup allocates nothing.
pub(super) type Key = SmallVec<[u8; 192]>;

/// The host that a request names, without its case.
pub(super) fn host<'r>(uri: &'r Uri, headers: &'r HeaderMap) -> &'r str {
    let named = || headers.get(HOST).and_then(|host| host.to_str().ok());
    uri.authority().map(http::uri::Authority::as_str).or_else(named).unwrap_or("")
}

/// The key of a target, whatever it varies by.
pub(super) fn primary(config: &ResponseCache, host: &str, target: &PathAndQuery) -> Key {
    let mut key = Key::new();
    key.extend(host.bytes().map(|byte| byte.to_ascii_lowercase()));
    key.push(b'\n');
    key.extend_from_slice(target.path().as_bytes());
    let Some(query) = target.query() else { return key };
    match &config.query {
        None => {
            key.push(b'?');
            key.extend_from_slice(query.as_bytes());
        }
        Some(names) => {
            let name_of =
                |pair: &str| form_urlencoded::parse(pair.as_bytes()).next().map(|(name, _)| name.into_owned());
            // In the order of the configuration: the order in the request makes no other key.
            let mut pairs: SmallVec<[(usize, &str); 8]> = query
                .split('&')
                .filter_map(|pair| {
                    let name = name_of(pair)?;
                    Some((names.iter().position(|known| *known == name)?, pair))
                })
                .collect();
            pairs.sort_by_key(|(at, _)| *at);
            for (_, pair) in pairs {
                key.push(b'&');
                key.extend_from_slice(pair.as_bytes());
            }
        }
    }
    key
}

/// The request headers that the responses of one target vary by.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Varies {
    names: Box<[HeaderName]>,
    /// Fanin encodes them itself: of `Accept-Encoding`, only the encoding counts that it has chosen.
    is_encoded_here: bool,
    /// A part of the keys. Another one makes everything unknown that was kept under the old one.
    pub(super) epoch: u64,
}

impl Varies {
    /// What a response varies by, with what the route says; `None` for nothing. `Err`: by more than may be kept.
    pub(super) fn of(
        config: &ResponseCache,
        headers: &HeaderMap,
        is_encoded_here: bool,
        epoch: u64,
    ) -> Result<Option<Varies>, ()> {
        let lines = headers.get_all(VARY).iter().map(|line| line.to_str().map_err(|_| ()));
        let mut names: Vec<HeaderName> = config.vary.clone();
        for line in lines {
            for name in line?.split(',').map(str::trim).filter(|name| !name.is_empty()) {
                names.push(name.parse().map_err(|_| ())?);
            }
        }
        names.sort_unstable_by(|a, b| a.as_str().cmp(b.as_str()));
        names.dedup();
        match names.len() {
            0 => Ok(None),
            1..=MOST_NAMES => Ok(Some(Varies { names: names.into(), is_encoded_here, epoch })),
            _ => Err(()),
        }
    }

    /// Whether responses are told apart by the same.
    pub(super) fn is_like(&self, other: &Varies) -> bool {
        self.names == other.names && self.is_encoded_here == other.is_encoded_here
    }

    /// Bytes of memory.
    pub(super) fn memory(&self) -> usize {
        self.names.iter().map(|name| name.as_str().len() + size_of::<HeaderName>()).sum()
    }

    /// The key of the response for a request. `coding` is the encoding that Fanin has chosen for it.
    pub(super) fn key(&self, primary: &[u8], headers: &HeaderMap, coding: Option<&str>) -> Key {
        let mut key = Key::from_slice(primary);
        key.push(0);
        key.extend_from_slice(&self.epoch.to_le_bytes());
        for name in &self.names {
            key.push(0);
            if self.is_encoded_here && *name == ACCEPT_ENCODING {
                key.extend_from_slice(coding.unwrap_or("").as_bytes());
                continue;
            }
            // Absent is another value than empty.
            for (at, line) in headers.get_all(name).iter().enumerate() {
                key.push(if at == 0 { 1 } else { b',' });
                normalise(line.as_bytes(), &mut key);
            }
        }
        key
    }
}

/// A value without the white space around its list's members (RFC 9111, 4.1).
fn normalise(value: &[u8], to: &mut Key) {
    for (at, member) in value.split(|byte| *byte == b',').enumerate() {
        if at > 0 {
            to.push(b',');
        }
        to.extend_from_slice(member.trim_ascii());
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use http::header::{ACCEPT, ACCEPT_LANGUAGE};

    use super::*;

    fn of(config: &ResponseCache, host: &str, target: &'static str) -> String {
        let key = primary(config, host, &PathAndQuery::from_static(target));
        String::from_utf8(key.to_vec()).unwrap()
    }

    #[test]
    fn targets_are_told_apart() {
        let config = ResponseCache::default();
        let all = ["/a", "/a?", "/a?b", "/a?b=1", "/a?b=1&c", "/A"].map(|target| of(&config, "shop", target));
        assert_eq!(all.iter().collect::<std::collections::HashSet<_>>().len(), 6);
        assert_eq!(of(&config, "SHOP:80", "/a"), of(&config, "shop:80", "/a"));
        assert_ne!(of(&config, "shop", "/a"), of(&config, "shops", "/a"));
    }

    #[test]
    fn only_the_parameters_that_count_are_in_the_key() {
        let config = ResponseCache { query: Some(vec!["page".into(), "sort".into()]), ..ResponseCache::default() };
        let plain = of(&config, "shop", "/a?page=2&sort=x");
        assert_eq!(of(&config, "shop", "/a?utm=7&sort=x&p%61ge=3&page=2"), "shop\n/a&p%61ge=3&page=2&sort=x");
        assert_eq!(of(&config, "shop", "/a?sort=x&utm=1&page=2"), plain);
        assert_eq!(of(&config, "shop", "/a?utm=7"), "shop\n/a");
    }

    #[test]
    fn responses_vary_by_headers() {
        let config = ResponseCache { vary: vec![ACCEPT_LANGUAGE], ..ResponseCache::default() };
        let response = HeaderMap::from_iter([(VARY, HeaderValue::from_static("Accept-Encoding, ACCEPT"))]);
        let varies = Varies::of(&config, &response, true, 1).unwrap().unwrap();
        assert_eq!(*varies.names, [ACCEPT, ACCEPT_ENCODING, ACCEPT_LANGUAGE]);
        let key = |lines: &[(HeaderName, &'static str)], coding| {
            let mut headers = HeaderMap::new();
            for (name, value) in lines {
                headers.append(name.clone(), HeaderValue::from_static(value));
            }
            varies.key(b"p", &headers, coding)
        };
        let plain = key(&[(ACCEPT, "a, b")], Some("gzip"));
        assert_eq!(key(&[(ACCEPT, "a"), (ACCEPT, " b")], Some("gzip")), plain);
        assert_eq!(key(&[(ACCEPT, "a,b"), (ACCEPT_ENCODING, "gzip;q=1")], Some("gzip")), plain);
        assert_ne!(key(&[(ACCEPT, "a, b")], None), plain);
        assert_ne!(key(&[(ACCEPT, "b, a")], Some("gzip")), plain);
        assert_ne!(key(&[(ACCEPT, "a, b"), (ACCEPT_LANGUAGE, "")], Some("gzip")), plain);
        let many: String = (0..=MOST_NAMES).map(|at| format!("x-{at},")).collect();
        let many = HeaderMap::from_iter([(VARY, HeaderValue::from_str(&many).unwrap())]);
        assert!(Varies::of(&config, &many, false, 1).is_err());
        assert_eq!(Varies::of(&ResponseCache::default(), &HeaderMap::new(), false, 1), Ok(None));
    }
}
