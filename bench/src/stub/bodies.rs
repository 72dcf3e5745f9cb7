//! The bodies that the stub answers with: fixed bytes, so that every server under test merges and validates the same.

/// Keys of the five items of a page, which are also the first segment of their paths.
pub const PAGE_KEYS: [char; 5] = ['a', 'b', 'c', 'd', 'e'];

/// Ids that `/ids` answers with and that `/vacancies` insists on.
pub const IDS: std::ops::Range<u32> = 1001..1021;

/// One item of about `size` bytes (at least some 700: the fixed part), an object of mixed members as backends send them.
pub fn item(kind: char, size: usize) -> Vec<u8> {
    let mut body = format!(
        r#"{{"kind":"{kind}","id":12345,"name":"item-{kind}","price":129.95,"active":true,"tags":["red","green","blue"],"nested":{{"x":1,"y":2.5,"z":null}},"list":["#
    );
    // A large item is a longer list and not a longer text: what costs a validator is structure.
    for i in 0..(size / 102).max(10) {
        if i > 0 {
            body.push(',');
        }
        body += &format!(r#"{{"n":{i},"title":"Title number {i} of list","score":{}.{}}}"#, i * 3, i % 10);
    }
    body += r#"],"text":""#;
    while body.len() < size.saturating_sub(9) {
        body += "lorem ipsum ";
    }
    body += r#""}"#;
    body.into_bytes()
}

/// The answer of `/ids`: twenty ids.
pub fn ids() -> Vec<u8> {
    let ids: Vec<String> = IDS.map(|id| id.to_string()).collect();
    format!(r#"{{"ids":[{}]}}"#, ids.join(",")).into_bytes()
}

/// The answer of `/vacancies`: twenty vacancies of about 500 bytes each.
pub fn vacancies() -> Vec<u8> {
    let mut body = String::from(r#"{"items":["#);
    for (i, id) in IDS.enumerate() {
        if i > 0 {
            body.push(',');
        }
        let start = body.len();
        body += &format!(
            r#"{{"id":{id},"title":"Senior Rust Developer {i}","salary":{{"from":{},"to":{},"cur":"EUR"}},"employer":{{"id":{},"name":"Company {i}"}},"remote":true,"skills":["rust","tokio","http"],"desc":""#,
            50_000 + i,
            70_000 + i,
            i * 7
        );
        while body.len() - start < 495 {
            body += "work description ";
        }
        body += r#""}"#;
    }
    body += r#"],"total":20}"#;
    body.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_json_of_the_promised_size() {
        for kind in PAGE_KEYS {
            let body = item(kind, 1024);
            let value: serde_json::Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(value["kind"], kind.to_string());
            assert!((1015..=1030).contains(&body.len()), "{}", body.len());
        }
        let large = item('f', 1 << 20);
        assert!(serde_json::from_slice::<serde_json::Value>(&large).is_ok());
        assert!((1 << 20) * 4 / 5 < large.len() && large.len() < (1 << 20) * 6 / 5, "{}", large.len());
        let vacancies = vacancies();
        let value: serde_json::Value = serde_json::from_slice(&vacancies).unwrap();
        assert_eq!(value["items"].as_array().unwrap().len(), 20);
        assert!((9_500..11_000).contains(&vacancies.len()), "{}", vacancies.len());
        let value: serde_json::Value = serde_json::from_slice(&ids()).unwrap();
        assert_eq!(value["ids"][19], 1020);
    }
}
