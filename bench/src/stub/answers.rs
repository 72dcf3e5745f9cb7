//! Which path gets which answer, after which delay. Answers are made once and shared by index.

use std::collections::HashMap;
use std::time::Duration;

use super::bodies;
use super::reply::{Action, Reply, ok};
use super::shop::Shop;

/// The delay of every answer of *page* and *search*.
const DELAY: Duration = Duration::from_millis(5);

/// Every answer made so far, head and body in one buffer, so that an answer is one `write`.
#[derive(Debug)]
pub struct Answers {
    made: Vec<Vec<u8>>,
    items: HashMap<usize, usize>,
    page: [usize; 5],
    raw: usize,
    ids: usize,
    vacancies: usize,
    not_found: usize,
    failure: usize,
    shop: Shop,
}

impl Answers {
    /// Makes the fixed answers; items of other sizes are made at their first use.
    pub fn new() -> Self {
        let mut made = Vec::new();
        let mut add = |answer| {
            made.push(answer);
            made.len() - 1
        };
        Self {
            page: bodies::PAGE_KEYS.map(|key| add(ok(&bodies::item(key, 1024)))),
            raw: add(ok(&bodies::item('f', 1024))),
            ids: add(ok(&bodies::ids())),
            vacancies: add(ok(&bodies::vacancies())),
            not_found: add(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_vec()),
            failure: add(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n".to_vec()),
            items: HashMap::new(),
            shop: Shop::default(),
            made,
        }
    }

    /// The bytes of an answer.
    pub fn bytes(&self, answer: usize) -> &[u8] {
        &self.made[answer]
    }

    /// What a request for `path` (with its query) asks for:
    /// `/a/ID` to `/e/ID` 1 KB after 5 ms, `/ids` and `/vacancies?ids=` after 5 ms, `/raw` at once,
    /// `/shop/...` what a retailer's backends answer (see [`Shop`]),
    /// `/item/BYTES/MICROSECONDS/ANYTHING` a body of that size after that time, `/fail` 503 after 1 ms, `/never` nothing, `/counters` the stub's counters.
    pub fn ask(&mut self, path: &[u8]) -> Action {
        let reply = |answer, delay| Action::Reply(Reply { answer, delay });
        match path {
            [b'/', key @ b'a'..=b'e', b'/', ..] => reply(self.page[usize::from(key - b'a')], DELAY),
            _ if path.starts_with(b"/raw") => reply(self.raw, Duration::ZERO),
            _ if path.starts_with(b"/ids") => reply(self.ids, DELAY),
            _ if path.starts_with(b"/vacancies?") && has_all_ids(path) => reply(self.vacancies, DELAY),
            _ if path.starts_with(b"/fail") => reply(self.failure, Duration::from_millis(1)),
            _ if path.starts_with(b"/never") => Action::Silence,
            _ if path == b"/counters" => Action::Counters,
            _ if path.starts_with(b"/shop/") => self.shop.ask(path),
            _ => match item_path(path) {
                Some((size, delay)) => {
                    let made = &mut self.made;
                    let answer = *self.items.entry(size).or_insert_with(|| {
                        made.push(ok(&bodies::item('f', size)));
                        made.len() - 1
                    });
                    reply(answer, delay)
                }
                None => reply(self.not_found, Duration::ZERO),
            },
        }
    }
}

/// A server that forgot to send the ids must not look fast.
fn has_all_ids(path: &[u8]) -> bool {
    let has = |needle: &[u8]| memchr::memmem::find(path, needle).is_some();
    has(b"ids=") && has(b"1001") && has(b"1020")
}

fn item_path(path: &[u8]) -> Option<(usize, Duration)> {
    let rest = std::str::from_utf8(path).ok()?.strip_prefix("/item/")?;
    let mut parts = rest.split('/');
    let size = parts.next()?.parse().ok()?;
    let micros = parts.next()?.parse().ok()?;
    Some((size, Duration::from_micros(micros)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(answers: &Answers, asked: Action) -> (serde_json::Value, Duration) {
        let Action::Reply(reply) = asked else { panic!("no reply: {asked:?}") };
        let bytes = answers.bytes(reply.answer);
        let head = memchr::memmem::find(bytes, b"\r\n\r\n").unwrap() + 4;
        (serde_json::from_slice(&bytes[head..]).unwrap_or_default(), reply.delay)
    }

    #[test]
    fn paths_name_answers_and_delays() {
        let mut answers = Answers::new();
        for key in bodies::PAGE_KEYS {
            let asked = answers.ask(format!("/{key}/12345").as_bytes());
            let (value, delay) = body(&answers, asked);
            assert_eq!((value["kind"].as_str().unwrap(), delay), (key.to_string().as_str(), DELAY));
        }
        let asked = answers.ask(b"/vacancies?ids=1001,1002,1020");
        assert_eq!(body(&answers, asked).0["total"], 20);
        let asked = answers.ask(b"/vacancies?ids=1001");
        assert_eq!(body(&answers, asked).0, serde_json::Value::Null);
        let asked = answers.ask(b"/item/4096/250/7");
        assert_eq!(body(&answers, asked.clone()).1, Duration::from_micros(250));
        assert_eq!(answers.ask(b"/item/4096/250/8"), asked, "an item of one size is made once");
        assert_eq!(answers.ask(b"/never"), Action::Silence);
    }
}
