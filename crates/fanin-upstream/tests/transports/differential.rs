//! The HTTP/1.1 client compared with hyper's: the same bytes of a server give the same answer through both, or an error
//! through both.
//!
//! Ours is stricter on purpose in some cases. [`STRICTER`] lists its errors.

use std::cell::RefCell;
use std::rc::Rc;

use crate::common::{Client, client, no_policies, raw, read_head, run};
use bytes::Bytes;
use fanin_upstream::Request;
use http::{HeaderMap, Method};
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::TokioIo;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

/// hyper accepts these. A length beside a transfer coding, or a coding that was not requested, allows smuggled answers.
/// Parsers disagree about a lone line feed in a chunk extension.
const STRICTER: [&str; 7] = [
    "both a length and a transfer coding",
    "a transfer coding other than chunked",
    "HTTP/1.0 with a transfer coding",
    "a chunk's size ends with a bare line feed",
    "a chunk's size is too long",
    "invalid trailers",
    "a head that is too long",
];

/// hyper ignores the length of an answer that has no body by its method or status.
const OF_BODILESS: [&str; 2] = ["two lengths that differ", "an invalid content-length"];

#[derive(Clone, Debug, PartialEq)]
struct Seen {
    status: u16,
    headers: HeaderMap,
    body: Bytes,
}

/// Sends the present bytes in slices on each connection, then closes it.
struct Script {
    server: crate::common::Server,
    slices: Rc<RefCell<Vec<Vec<u8>>>>,
    client: Client,
}

impl Script {
    async fn new() -> Script {
        let slices = Rc::new(RefCell::new(Vec::new()));
        let script = slices.clone();
        let server = raw(move |mut stream| {
            let script = script.clone();
            async move {
                stream.set_nodelay(true).unwrap();
                if read_head(&mut stream).await.is_none() {
                    return;
                }
                let slices: Vec<Vec<u8>> = script.borrow().clone();
                for slice in slices {
                    // A client that has enough, or too much, closes.
                    if stream.write_all(&slice).await.is_err() {
                        return;
                    }
                    tokio::task::yield_now().await;
                }
            }
        })
        .await;
        let client = client(&server.url(), no_policies);
        Script { server, slices, client }
    }

    async fn ours(&self, method: &Method) -> Result<Seen, String> {
        let request = Request { method: method.clone(), ..Request::get("/") };
        let answer = self.client.call(request).await.map_err(|error| error.to_string())?;
        Ok(Seen { status: answer.status.as_u16(), headers: answer.headers.into_map(), body: answer.body })
    }

    async fn hypers(&self, method: &Method) -> Result<Seen, String> {
        let text = |error: hyper::Error| format!("{error:?}");
        let stream = TcpStream::connect(self.server.address).await.unwrap();
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(text)?;
        let driver = tokio::task::spawn_local(connection);
        let request = http::Request::builder().method(method).uri("/").header("host", "x");
        let response = sender.send_request(request.body(Empty::<Bytes>::new()).unwrap()).await.map_err(text)?;
        if response.status().is_informational() {
            return Err("no answer".to_owned());
        }
        let (head, body) = response.into_parts();
        let body = body.collect().await.map_err(text)?.to_bytes();
        driver.abort();
        let mut headers = head.headers;
        let named: Vec<String> = headers
            .get_all("connection")
            .iter()
            .flat_map(|value| value.to_str().unwrap_or_default().split(',').map(|name| name.trim().to_owned()))
            .collect();
        let fixed = ["connection", "transfer-encoding", "keep-alive", "upgrade", "te", "trailer"];
        for name in fixed.into_iter().chain(named.iter().map(String::as_str)) {
            headers.remove(name);
        }
        Ok(Seen { status: head.status.as_u16(), headers, body })
    }

    /// Compares both. `Err` if they differ in a way that is not listed.
    async fn compare(&self, slices: Vec<Vec<u8>>, method: &Method) -> Result<Result<Seen, String>, String> {
        let whole = slices.concat();
        *self.slices.borrow_mut() = slices;
        let (ours, hypers) = (self.ours(method).await, self.hypers(method).await);
        match (&ours, &hypers) {
            (Ok(ours), Ok(hypers)) if ours == hypers => {}
            (Err(_), Err(_)) => {}
            (Err(error), Ok(_)) if STRICTER.iter().any(|what| error.contains(what)) => {}
            (Err(error), Ok(hypers))
                if (*method == Method::HEAD || matches!(hypers.status, 204 | 304))
                    && OF_BODILESS.iter().any(|what| error.contains(what)) => {}
            _ => return Err(format!("{} {}\nours: {ours:?}\nhyper's: {hypers:?}", method, whole.escape_ascii())),
        }
        Ok(ours)
    }
}

/// Valid and invalid answers, each to a GET and a HEAD.
const CORPUS: [&[u8]; 30] = [
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 7\r\n\r\n{\"a\":1}",
    b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nx-empty: \r\n\r\n",
    b"HTTP/1.1 200\r\ncontent-length: 2\r\n\r\nok",
    b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\nconnection: keep-alive\r\n\r\nok",
    b"HTTP/1.0 200 OK\r\n\r\nuntil the end",
    b"HTTP/1.1 404 Not Found\r\nset-cookie: a=1\r\nset-cookie: b=2\r\ncontent-length: 4\r\nkeep-alive: timeout=5\r\n\r\nnone",
    b"HTTP/1.1 200 OK\r\nconnection: close, x-hop\r\nx-hop: 1\r\n\r\nuntil closed",
    b"HTTP/1.1 204 No Content\r\n\r\n",
    b"HTTP/1.1 304 Not Modified\r\netag: \"x\"\r\ncontent-length: 100\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n6;x=y\r\n world\r\n0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: CHUNKED\r\n\r\n1\r\nx\r\n0\r\nx-trailer: y\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
    b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok, and more than that",
    b"HTTP/1.1 200 OK\ncontent-length: 2\n\nok",
    b"\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
    b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\ncontent-length: 3\r\n\r\nyes",
    // From here on they are invalid.
    b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nyes!",
    b"HTTP/1.1 200 OK\r\ncontent-length: -3\r\n\r\nyes",
    b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf!",
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhalf!\r\n",
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nwrong end\r\n0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nnothing\r\n",
    b"HTTP/1.1 200 OK\r\nx: folded\r\n over lines\r\ncontent-length: 2\r\n\r\nok",
    b"HTTP/1.1 200 OK\r\nno colon\r\ncontent-length: 2\r\n\r\nok",
    b"HTTP/1.1 200 OK\r\nx : y\r\ncontent-length: 2\r\n\r\nok",
    b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n",
    b"HTTP/2.0 200 OK\r\ncontent-length: 2\r\n\r\nok",
    b"SSH-2.0-OpenSSH_9\r\n",
    b"",
];
const FIRST_BAD: usize = 16;

#[test]
fn the_corpus_gives_the_same_answers() {
    run(async {
        let script = Script::new().await;
        for (at, text) in CORPUS.iter().enumerate() {
            for method in [Method::GET, Method::HEAD] {
                let result = script.compare(vec![text.to_vec()], &method).await.unwrap_or_else(|why| panic!("{why}"));
                if method == Method::GET {
                    assert_eq!(result.is_err(), at >= FIRST_BAD, "{}: {result:?}", text.escape_ascii());
                }
            }
        }
    });
}

#[test]
fn stricter_checks_have_a_reason() {
    run(async {
        let script = Script::new().await;
        for (head, body, why) in [
            ("content-length: 2\r\ntransfer-encoding: chunked", "2\r\nok\r\n0\r\n\r\n", STRICTER[0]),
            ("transfer-encoding: gzip, chunked", "2\r\nok\r\n0\r\n\r\n", STRICTER[1]),
            ("transfer-encoding: identity", "ok", STRICTER[1]),
            ("transfer-encoding: chunked", "2;x\ny\r\nok\r\n0\r\n\r\n", STRICTER[3]),
        ] {
            let text = format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n{body}").into_bytes();
            let result = script.compare(vec![text], &Method::GET).await.unwrap_or_else(|why| panic!("{why}"));
            let error = result.expect_err(why);
            assert!(error.contains(why), "{error}");
        }
    });
}

/// Pseudo-random numbers, the same in each run (Marsaglia's xorshift).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound.max(1) as u64) as usize
    }

    fn slices(&mut self, text: &[u8]) -> Vec<Vec<u8>> {
        let mut slices = Vec::new();
        let mut rest = text;
        while !rest.is_empty() && slices.len() < 40 {
            let longest = if self.below(3) == 0 { rest.len() } else { 7 };
            let (slice, next) = rest.split_at(1 + self.below(longest.min(rest.len())));
            slices.push(slice.to_vec());
            rest = next;
        }
        slices.push(rest.to_vec());
        slices
    }

    /// Some bytes changed, removed, repeated, or taken from another text.
    fn spoil(&mut self, text: &mut Vec<u8>) {
        const ODD: &[u8] = b"\r\n :;,0159aAfFxX\0\x7f\xff\tkeep";
        for _ in 0..=self.below(3) {
            let at = self.below(text.len());
            match self.below(5) {
                0 if !text.is_empty() => text[at] = ODD[self.below(ODD.len())],
                1 if !text.is_empty() => drop(text.remove(at)),
                2 => text.insert(at, ODD[self.below(ODD.len())]),
                3 => {
                    let end = at + self.below((text.len() - at).min(30));
                    let part = text[at..end].to_vec();
                    text.splice(end..end, part);
                }
                _ => text.truncate(text.len() - self.below(text.len().min(20))),
            }
        }
    }
}

#[test]
fn bodies_of_every_size_are_complete() {
    run(async {
        let script = Script::new().await;
        let mut numbers = Numbers(0xb0d1e5);
        for size in [1, 4095, 4096, 4097, 10_000, 16_000, 16_384, 16_385, 40_000, 1_048_577] {
            let body: Vec<u8> = (0..size).map(|at| b'a' + (at % 23) as u8).collect();
            let length = [format!("content-length: {size}\r\n\r\n").as_bytes(), &body].concat();
            let half = size - size / 2;
            let chunked = [
                format!("transfer-encoding: chunked\r\n\r\n{half:x}\r\n").as_bytes(),
                &body[..half],
                format!("\r\n{:x}\r\n", size - half).as_bytes(),
                &body[half..],
                b"\r\n0\r\n\r\n",
            ]
            .concat();
            let until_close = [&b"x: y\r\n\r\n"[..], &body].concat();
            let extra = [&length[..], b"and more"].concat();
            for (text, whole) in
                [(&length, true), (&chunked, true), (&until_close, true), (&extra, true), (&length, false)]
            {
                for before in ["", "HTTP/1.1 103 Early Hints\r\n\r\n"] {
                    let mut text = [before.as_bytes(), b"HTTP/1.1 200 OK\r\ncontent-type: text/x\r\n", text].concat();
                    if !whole {
                        text.pop();
                    }
                    for slices in [vec![text.clone()], numbers.slices(&text)] {
                        let seen = script.compare(slices, &Method::GET).await.unwrap_or_else(|why| panic!("{why}"));
                        assert_eq!(seen.is_ok(), whole, "{size}: {seen:?}");
                        if let Ok(seen) = seen {
                            assert!(seen.body == body && seen.headers["content-type"] == "text/x", "{size}");
                        }
                    }
                }
            }
        }
    });
}

#[test]
fn slicing_changes_nothing_and_corrupted_bytes_give_the_same_result() {
    run(async {
        let script = Script::new().await;
        let mut numbers = Numbers(0x5eed_cafe);
        let (mut good, mut bad) = (0, 0);
        for round in 0..1200 {
            let text = CORPUS[numbers.below(CORPUS.len())];
            let method = if numbers.below(8) == 0 { Method::HEAD } else { Method::GET };
            let mut text = text.to_vec();
            if round % 2 == 0 {
                numbers.spoil(&mut text);
            }
            let whole = script.compare(vec![text.clone()], &method).await.unwrap_or_else(|why| panic!("{why}"));
            let sliced = script.compare(numbers.slices(&text), &method).await.unwrap_or_else(|why| panic!("{why}"));
            assert_eq!(whole.as_ref().ok(), sliced.as_ref().ok(), "{method} {}", text.escape_ascii());
            if whole.is_ok() { good += 1 } else { bad += 1 }
        }
        assert!(good > 200 && bad > 200, "{good} good and {bad} bad answers");
    });
}
