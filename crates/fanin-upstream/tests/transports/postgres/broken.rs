//! PostgreSQL servers that break the protocol, and a network that cuts it into pieces.

use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use crate::common::run;
use fanin_testbed::Server;
use fanin_upstream::{Answer, CallContext, CallError, ErrorKind, Request, Upstreams, WorkerClient};
use http::{HeaderMap, Method};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::spawn_local;
use tokio::time::Instant;

struct Db {
    upstreams: Upstreams,
    worker: Rc<WorkerClient>,
}

impl Db {
    fn at(url: &str) -> Db {
        Db::with(url, "")
    }

    /// The same with further keys.
    fn with(url: &str, more: &str) -> Db {
        let text = format!(
            "[upstreams.db]\npostgres = '{url}'\ntimeout = '20s'\nconnect_timeout = '10s'\nlimit = 1\nretry = 'off'\nbreaker = 'off'\n{more}"
        );
        let config = fanin_config::Config::parse(&text, "fanin.toml", Path::new("."), &|_| None).unwrap();
        Db { upstreams: Upstreams::new(config.upstreams.values()).unwrap(), worker: WorkerClient::new() }
    }

    /// `body` is the statement and its parameters, as JSON.
    async fn query(&self, body: String) -> Result<Answer, CallError> {
        let request = Request {
            method: Method::GET,
            path_and_query: "/query".into(),
            headers: HeaderMap::new(),
            body: body.into(),
        };
        let context = CallContext::new(Instant::now() + Duration::from_secs(20));
        self.upstreams.get("db").unwrap().call(&self.worker, request, context).await
    }
}

fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap();
    [&[tag][..], &length.to_be_bytes(), body].concat()
}

fn trusted() -> Vec<u8> {
    [message(b'R', &[0; 4]), message(b'K', &[0; 8]), message(b'Z', b"I")].concat()
}

fn done() -> Vec<u8> {
    [message(b'C', b"SET\0"), message(b'Z', b"I")].concat()
}

/// The replies after a statement with one column `a` of type int4 has been prepared.
fn prepared() -> Vec<u8> {
    let column = [&b"\0\x01a\0"[..], &[0; 6], &23_u32.to_be_bytes(), &[0, 4, 0xff, 0xff, 0xff, 0xff, 0, 0]].concat();
    [message(b'1', b""), message(b't', &[0, 0]), message(b'T', &column), message(b'Z', b"I")].concat()
}

fn row(value: &[u8]) -> Vec<u8> {
    let length = u32::try_from(value.len()).unwrap();
    message(b'D', &[&[0, 1][..], &length.to_be_bytes(), value].concat())
}

/// A server that replies to each read with the next of `says`, and then closes the connection.
async fn fake(says: Vec<Vec<u8>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    spawn_local(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            for answer in &says {
                if stream.read(&mut [0; 4096]).await.unwrap_or(0) == 0 {
                    break;
                }
                stream.write_all(answer).await.unwrap();
            }
            // Closing with unread bytes would be a reset.
            let _ = tokio::time::timeout(Duration::from_millis(20), stream.read(&mut [0; 4096])).await;
        }
    });
    format!("postgres://fanin:secret@{address}/postgres")
}

#[test]
fn a_server_that_breaks_off_or_breaks_the_protocol_is_an_error() {
    run(async {
        let begun = [message(b'2', b""), row(&7_i32.to_be_bytes())].concat();
        // The settings before the statement are answered as well.
        let with = |last: &[Vec<u8>]| vec![trusted(), done(), prepared(), [done(), last.concat()].concat()];
        for (says, kind, words) in [
            (vec![], ErrorKind::Connect, "closed the connection"),
            (vec![b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()], ErrorKind::Connect, "unexpected message H"),
            (vec![message(b'R', &[0, 0])], ErrorKind::Connect, "unexpected message R"),
            (vec![message(b'R', &[0, 0, 0, 7])], ErrorKind::Connect, "not supported (7)"),
            (vec![message(b'R', b"\0\0\0\x0aSOMETHING\0\0")], ErrorKind::Connect, "no SCRAM-SHA-256"),
            // It reports success without the proof that it knows the password.
            (
                vec![message(b'R', b"\0\0\0\x0aSCRAM-SHA-256\0\0"), trusted()],
                ErrorKind::Connect,
                "unexpected message R",
            ),
            (vec![trusted(), done()], ErrorKind::Protocol, "closed the connection"),
            (with(&[]), ErrorKind::Protocol, "closed the connection"),
            (with(std::slice::from_ref(&begun)), ErrorKind::Protocol, "closed the connection"),
            (with(&[begun.clone(), row(b"abc")]), ErrorKind::Decode, "column 1 is not what its type says"),
            (with(&[begun.clone(), message(b'D', &[0, 2])]), ErrorKind::Decode, "is not what its type says"),
            (with(&[begun.clone(), message(b'D', &[0, 1, 0, 0, 0, 9, 1])]), ErrorKind::Decode, "column 1"),
            (with(&[begun.clone(), message(b'G', &[0; 3])]), ErrorKind::Protocol, "unexpected message G"),
            (with(&[begun.clone(), b"D\xff\xff\xff\xff".to_vec()]), ErrorKind::TooLarge, "a row of 4294967291 bytes"),
            (with(&[begun, b"D\0\0\0\0".to_vec()]), ErrorKind::Protocol, "unexpected message D"),
        ] {
            let count = says.len();
            let db = Db::at(&fake(says).await);
            let error = db.query("[\"select 7 as a\"]".into()).await.unwrap_err();
            assert_eq!(error.kind, kind, "{count} {words}: {error}");
            assert!(error.to_string().contains(words), "{count} {words}: {error}");
        }
        // Valid replies are understood, so the failures above have the stated reasons.
        let end = [message(b'2', b""), row(&7_i32.to_be_bytes()), done()].concat();
        let db = Db::at(&fake(with(&[end])).await);
        let answer = db.query("[\"select 7 as a\"]".into()).await.unwrap();
        assert_eq!(&answer.body[..], b"[{\"a\":7}]");
    });
}

#[test]
fn weak_authentication_is_refused_before_the_password_is_sent() {
    run(async {
        const CLEARTEXT: [u8; 4] = 3_u32.to_be_bytes();
        const MD5: [u8; 8] = [0, 0, 0, 5, 1, 2, 3, 4];
        let end = [message(b'2', b""), row(&7_i32.to_be_bytes()), done()].concat();
        let says =
            |asks: &[u8]| vec![message(b'R', asks), trusted(), done(), prepared(), [done(), end.clone()].concat()];
        for (asks, keys, refused) in [
            (&CLEARTEXT[..], "", Some("the password in clear text")),
            (&CLEARTEXT, "auth = 'md5'", Some("the password in clear text")),
            (&CLEARTEXT, "auth = 'cleartext'", None),
            (&MD5, "", Some("an MD5 hash")),
            (&MD5, "auth = 'scram'", Some("an MD5 hash")),
            (&MD5, "auth = 'md5'", None),
            (&MD5, "auth = 'cleartext'", None),
        ] {
            let db = Db::with(&fake(says(asks)).await, keys);
            match (db.query("[\"select 7 as a\"]".into()).await, refused) {
                (Ok(answer), None) => assert_eq!(&answer.body[..], b"[{\"a\":7}]", "{keys}"),
                (Err(error), Some(words)) => {
                    assert_eq!(error.kind, ErrorKind::Connect, "{keys}: {error}");
                    assert!(error.to_string().contains(words) && error.to_string().contains("set auth ="), "{error}");
                }
                (result, _) => panic!("{asks:?} {keys}: {result:?}"),
            }
        }
    });
}

/// Forwards a connection in pieces of at most `piece` bytes.
async fn through(server: &Server, piece: usize) -> String {
    let (before, rest) = server.url.split_once('@').unwrap();
    let (to, after) = rest.split_once('/').unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let to = to.to_owned();
    spawn_local(async move {
        while let Ok((near, _)) = listener.accept().await {
            let far = TcpStream::connect(&to).await.unwrap();
            near.set_nodelay(true).unwrap();
            far.set_nodelay(true).unwrap();
            let ((mut from_near, mut to_near), (mut from_far, mut to_far)) = (near.into_split(), far.into_split());
            spawn_local(async move { tokio::io::copy(&mut from_near, &mut to_far).await });
            spawn_local(async move {
                let mut bytes = vec![0; piece];
                while let Ok(count @ 1..) = from_far.read(&mut bytes).await {
                    if to_near.write_all(&bytes[..count]).await.is_err() {
                        return;
                    }
                    tokio::task::yield_now().await;
                }
            });
        }
    });
    format!("{before}@{address}/{after}")
}

#[test]
fn answers_do_not_depend_on_the_size_of_pieces() {
    run(async {
        let server = Server::postgres();
        for piece in [1, 3, 7] {
            let db = Db::at(&through(&server, piece).await);
            let body = "[\"select g, repeat('x', g) as x, $1::text as y from generate_series(1, 20) g\", \"z\"]";
            for _ in 0..2 {
                let answer = db.query(body.into()).await.unwrap();
                let rows: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
                assert_eq!(rows.as_array().unwrap().len(), 20, "in pieces of {piece}");
                assert_eq!(rows[19], serde_json::json!({"g": 20, "x": "x".repeat(20), "y": "z"}));
            }
            let answer = db.query("[\"select 1 / $1::int as a\", 0]".into()).await.unwrap();
            assert_eq!(answer.status, 400);
        }
        // More than the network buffers, in both directions.
        let db = Db::at(&server.url);
        let large = "y".repeat(6 << 20);
        for _ in 0..2 {
            let answer = db.query(format!("[\"select $1::text as a, $1::text as b\", \"{large}\"]")).await.unwrap();
            assert_eq!(answer.body.len(), 2 * large.len() + "[{\"a\":\"\",\"b\":\"\"}]".len());
        }
        let answer = db.query("[\"select pg_backend_pid() as a\"]".into()).await.unwrap();
        let again = db.query("[\"select pg_backend_pid() as a\"]".into()).await.unwrap();
        assert_eq!(answer.body, again.body, "the same connection");
    });
}

#[test]
fn asynchronous_messages_are_no_replies() {
    run(async {
        let server = Server::postgres();
        let db = Db::at(&server.url);
        // A notice comes in the middle of the answer, and a changed setting after it.
        let notice = "[\"select 1 as a where pg_catalog.set_config('TimeZone', 'Asia/Tokyo', false) <> ''\"]";
        for _ in 0..3 {
            assert_eq!(&db.query(notice.into()).await.unwrap().body[..], b"[{\"a\":1}]");
        }
        // While the connection is unused, the server reloads its configuration and reports a change, or closes the
        // connection, which is then not used again.
        let pid = async || {
            let answer = db.query("[\"select pg_backend_pid() as a\"]".into()).await.unwrap();
            String::from_utf8(answer.body.to_vec())
        };
        let before = pid().await.unwrap();
        let admin = Db::at(&server.url);
        for sql in ["select pg_reload_conf() as a", "select pg_sleep(0.2)::text as a"] {
            assert_eq!(admin.query(format!("[\"{sql}\"]")).await.unwrap().status, 200);
        }
        assert_eq!(pid().await.unwrap(), before);
        let sql = "select count(pg_terminate_backend(pid)) as n from pg_stat_activity where pid <> pg_backend_pid() and \
                   application_name = 'fanin'";
        assert_eq!(&admin.query(format!("[\"{sql}\"]")).await.unwrap().body[..], b"[{\"n\":1}]");
        let sql =
            "select count(*) as n from pg_stat_activity where pid <> pg_backend_pid() and application_name = 'fanin'";
        while &admin.query(format!("[\"{sql}\"]")).await.unwrap().body[..] != b"[{\"n\":0}]" {}
        let after = pid().await.unwrap();
        assert!(after.starts_with("[{\"a\":"), "{after}");
        assert_ne!(after, before, "a new connection, and no call failed");
    });
}
