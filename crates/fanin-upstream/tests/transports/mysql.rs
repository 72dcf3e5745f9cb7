//! MySQL's protocol against a real MariaDB.

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::common::run;
use fanin_testbed::Server;
use fanin_upstream::{Answer, CallContext, CallError, ErrorKind, Request, Upstream, Upstreams, WorkerClient};
use http::{HeaderMap, Method};
use tokio::time::Instant;

/// A deadline that does not pass.
const LONG: Duration = Duration::from_secs(60);

struct Db {
    upstreams: Upstreams,
    worker: Rc<WorkerClient>,
}

impl Db {
    /// The upstream `db` with further keys.
    fn new(server: &Server, more: &str) -> Db {
        Db::at(&server.url, more)
    }

    fn at(url: &str, more: &str) -> Db {
        let text = format!("[upstreams.db]\nmysql = '{url}'\ntimeout = '60s'\nconnect_timeout = '20s'\n{more}");
        let config = fanin_config::Config::parse(&text, "fanin.toml", Path::new("."), &|_| None).unwrap();
        let configs: Vec<_> = config.upstreams.into_values().collect();
        Db { upstreams: Upstreams::new(&configs).unwrap(), worker: WorkerClient::new() }
    }

    fn upstream(&self) -> &Arc<Upstream> {
        self.upstreams.get("db").unwrap()
    }

    fn send(
        &self,
        method: Method,
        path: &str,
        body: String,
        time: Duration,
    ) -> impl Future<Output = Result<Answer, CallError>> + use<> {
        let request = Request { method, path_and_query: path.into(), headers: HeaderMap::new(), body: body.into() };
        self.upstream().call(&self.worker, request, CallContext::new(Instant::now() + time))
    }

    /// `params` is JSON without the brackets.
    async fn query(&self, sql: &str, params: &str) -> Result<Answer, CallError> {
        self.send(Method::GET, "/query", body(sql, params), LONG).await
    }

    async fn write(&self, sql: &str, params: &str) -> Answer {
        self.send(Method::POST, "/execute", body(sql, params), LONG).await.unwrap()
    }

    async fn text(&self, sql: &str, params: &str) -> String {
        let answer = self.query(sql, params).await.unwrap();
        assert_eq!(answer.status, 200, "{}", text(&answer));
        text(&answer)
    }

    /// The body of an error answer.
    async fn refused(&self, sql: &str, params: &str) -> String {
        let answer = self.query(sql, params).await.unwrap();
        format!("{} {}", answer.status.as_u16(), text(&answer))
    }

    /// Statements that run at the server now.
    async fn running(&self) -> String {
        self.text("select count(*) as n from information_schema.processlist where info like 'select sleep(%'", "").await
    }
}

fn body(sql: &str, params: &str) -> String {
    let mut text = Vec::new();
    fanin_json::write_str(&mut text, sql);
    let text = String::from_utf8(text).unwrap();
    if params.is_empty() { format!("[{text}]") } else { format!("[{text}, {params}]") }
}

fn text(answer: &Answer) -> String {
    String::from_utf8(answer.body.to_vec()).unwrap()
}

const TABLE: &str = "create table kinds (
    id bigint unsigned primary key auto_increment, small tinyint, price decimal(20, 4), padded decimal(6, 2) zerofill,
    ratio double, short float, name varchar(40), plain text, raw varbinary(10), data blob, doc json,
    mood enum('sad', 'glad'), flags set('a', 'b'), bits bit(12), day date, at datetime(6), stamp timestamp(3) null,
    span time(2), yr year)";

#[test]
fn values_round_trip_and_mistakes_have_clear_errors() {
    run(async {
        let server = Server::mariadb();
        let db = Db::new(
            &server,
            "limit = 1\n[upstreams.db.statements.by_name]\nsql = 'select id from kinds where name = ?'\nparams = ['name']\nrows = 'one'",
        );
        assert_eq!(text(&db.write(TABLE, "").await), "{\"affected\":0}");
        let insert = "insert into kinds values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
        let values = r#"18446744073709551615, -7, 1234567890123456.7890, 1.5, 0.1, 0.1, "a\"b\\c\nж", "text", "hi", "\u0001", {"a": [1, 2.50]},
            "glad", "a,b", 257, "2024-02-29", "2024-02-29T01:02:03.000004", "2024-02-29 01:02:03.500", "-26:03:04.50", 2024"#;
        assert!(text(&db.write(insert, values).await).starts_with("{\"affected\":1"));
        let expected = concat!(
            r#"[{"id":18446744073709551615,"small":-7,"price":1234567890123456.7890,"padded":1.50,"ratio":0.1,"short":0.1,"#,
            r#""name":"a\"b\\c\nж","plain":"text","raw":"aGk=","data":"AQ==","doc":"{\"a\": [1, 2.50]}","mood":"glad","#,
            r#""flags":"a,b","bits":257,"day":"2024-02-29","at":"2024-02-29T01:02:03.000004","#,
            r#""stamp":"2024-02-29T01:02:03.5Z","span":"-26:03:04.5","yr":2024}]"#
        );
        assert_eq!(db.text("select * from kinds", "").await, expected);
        // NULL of each type, and an id that the database generated.
        db.write("truncate table kinds", "").await;
        let made = text(&db.write("insert into kinds (name) values (?)", "null").await);
        assert!(made.starts_with("{\"affected\":1,\"insert_id\":"), "{made}");
        let nulls = db
            .text("select small, price, ratio, name, raw, doc, mood, bits, day, at, stamp, span, yr from kinds", "")
            .await;
        assert_eq!(nulls.matches(":null").count(), 13, "{nulls}");
        assert_eq!(
            db.text("select ? as a, ? as b, ? as c", "true, null, 2.5").await,
            "[{\"a\":1,\"b\":null,\"c\":2.5}]"
        );
        // A list is one parameter, as JSON.
        db.write("truncate table kinds", "").await;
        db.write("insert into kinds (id, name) values (1, 'one'), (2, 'two'), (3, 'three')", "").await;
        let keyed = "select kinds.id, name from json_table(?, '$[*]' columns (id int path '$')) k join kinds using (id) order by id";
        assert_eq!(db.text(keyed, "[3, 1, 9]").await, "[{\"id\":1,\"name\":\"one\"},{\"id\":3,\"name\":\"three\"}]");
        // One row.
        let one = async |name: &str| {
            let answer = db.send(Method::GET, "/by_name", format!("[{name}]"), LONG).await.unwrap();
            format!("{} {}", answer.status.as_u16(), text(&answer))
        };
        assert_eq!(
            (one("\"two\"").await, one("\"' or true -- \"").await),
            ("200 {\"id\":2}".into(), "200 null".into())
        );
        db.write("insert into kinds (id, name) values (4, 'two')", "").await;
        assert!(one("\"two\"").await.contains("by_name gave more than the one row"));

        // A reading statement cannot write, whatever its text; and the connection works after each mistake.
        for (sql, params, said) in [
            ("insert into kinds (name) values ('x')", "", "400 {\"code\":\"25006\""),
            ("select nothing from kinds", "", "400 {\"code\":\"42S22\""),
            ("selec 1", "", "400 {\"code\":\"42000\""),
            ("select ? as a", "", "400 {\"code\":\"fanin\",\"message\":\"query takes 1 parameters and was given 0"),
            ("select 1 as a, 2 as a", "", "two columns named a"),
            ("select point(1, 2) as p", "", "column p of query has the type geometry"),
        ] {
            let answer = db.refused(sql, params).await;
            assert!(answer.contains(said), "{sql}: {answer}");
            assert_eq!(db.text("select 1 as a", "").await, "[{\"a\":1}]");
        }
        assert!(db.refused("insert into kinds (name) values ('x')", "").await.contains("needs writes = true"));
        for (sql, params, status) in [
            ("insert into kinds (id, name) values (1, 'again')", "", 409),
            ("insert into kinds (name) values (?)", "\"12345678901234567890123456789012345678901\"", 400),
            ("insert into kinds (small) values (?)", "\"many\"", 400),
            ("insert into kinds (doc) values (?)", "\"{\"", 409),
        ] {
            let answer = db.write(sql, params).await;
            assert_eq!(answer.status, status, "{sql}: {}", text(&answer));
        }
        // An update counts the rows found, changed or not.
        assert_eq!(text(&db.write("update kinds set name = 'one' where id = 1", "").await), "{\"affected\":1}");
        // A table that changes under a prepared statement.
        db.write("alter table kinds drop column yr, add column more int default 5 after id", "").await;
        assert!(db.text("select * from kinds where id = 1", "").await.starts_with("[{\"id\":1,\"more\":5,"));
    });
}

#[test]
fn time_and_size_are_bounded_and_signing_on_has_clear_errors() {
    run(async {
        let server = Server::mariadb();
        let db = Db::new(&server, "limit = 2\nmax_waiting = 1\nmax_answer = '1MB'");
        let sleep = || db.query("select 1 as a from (select sleep(0.3)) s", "");
        let (a, b, c, d) = futures_util::future::join4(sleep(), sleep(), sleep(), sleep()).await;
        assert!(a.is_ok() && b.is_ok() && c.is_ok());
        assert_eq!(d.unwrap_err().kind, ErrorKind::Limit);

        // At the deadline, and when a call is dropped, the server stops the statement.
        let long = body("select sleep(60) as s", "");
        let error = db.send(Method::GET, "/query", long.clone(), Duration::from_millis(300)).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Timeout, "{error}");
        let call = db.send(Method::GET, "/query", long, LONG);
        tokio::time::timeout(Duration::from_millis(300), call).await.unwrap_err();
        while db.running().await != "[{\"n\":0}]" {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let both = || db.query("select 1 as a from (select sleep(0.1)) s", "");
        let (a, b) = futures_util::future::join(both(), both()).await;
        assert_eq!((text(&a.unwrap()), text(&b.unwrap())), ("[{\"a\":1}]".into(), "[{\"a\":1}]".into()));
        // If this process had ended, the server would end the statement by its own timeout.
        let setting = body("select @@max_statement_time as t", "");
        let answer = db.send(Method::GET, "/query", setting, Duration::from_secs(10)).await.unwrap();
        let seconds: f64 = text(&answer).trim_matches(|c: char| !c.is_ascii_digit()).parse().unwrap();
        assert!((5.0..=20.0).contains(&seconds), "{}", text(&answer));

        // One row that is too large, and many rows that are too large together.
        let error = db.query("select repeat('x', 5000000) as a", "").await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::TooLarge, "{error}");
        let error = db.query("select repeat('x', 1000) as a, seq from seq_1_to_100000000", "").await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::TooLarge, "{error}");
        assert_eq!(db.text("select 1 as a", "").await, "[{\"a\":1}]");

        let error = Db::at(&server.url.replace("secret", "guess"), "").query("select 1", "").await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Connect);
        assert!(error.to_string().contains("Access denied") && !error.to_string().contains("guess"), "{error}");
        let error = Db::at(&server.url.replace("/shop", "/none"), "").query("select 1", "").await.unwrap_err();
        assert!(error.to_string().contains("Unknown database"), "{error}");
        let apart = Db::at(&server.url.replace(":secret", ""), "password = 'secret'");
        assert!(apart.query("select 1", "").await.is_ok());

        let cipher = "select variable_value <> '' as tls from information_schema.session_status where variable_name = 'ssl_cipher'";
        assert_eq!(db.text(cipher, "").await, "[{\"tls\":0}]");
        let secure = Db::new(&server, &format!("tls = {{ ca = '{}' }}", server.ca.display()));
        assert_eq!(secure.text(cipher, "").await, "[{\"tls\":1}]");
        let other = Db::new(&server, &format!("tls = {{ ca = '{}', server_name = 'other' }}", server.ca.display()));
        assert_eq!(other.query(cipher, "").await.unwrap_err().kind, ErrorKind::Connect);
        let unknown = Db::at(&format!("{}?sslmode=require", server.url), "");
        let error = unknown.query(cipher, "").await.unwrap_err();
        assert!(error.kind == ErrorKind::Connect && error.to_string().contains("certificate"), "{error}");
    });
}

#[test]
fn a_server_that_restarts() {
    run(async {
        let mut server = Server::mariadb();
        let db = Db::new(&server, "limit = 4\nbreaker = 'off'\nretry = { budget = 1.0, floor = 1000 }");
        let four = || {
            let one = || db.query("select 1 as a from (select sleep(0.05)) s", "");
            futures_util::future::join4(one(), one(), one(), one())
        };
        for crash in [true, false] {
            let (a, b, c, d) = four().await;
            assert!(a.is_ok() && b.is_ok() && c.is_ok() && d.is_ok());
            // A running call gets an error.
            let long = body("select sleep(60) as s", "");
            let running = tokio::task::spawn_local(db.send(Method::POST, "/execute", long, LONG));
            while db.running().await == "[{\"n\":0}]" {}
            if crash {
                server.kill()
            } else {
                server.stop()
            }
            match running.await.unwrap() {
                // An orderly shutdown interrupts statements, and this function then returns 1.
                Ok(answer) => {
                    assert!(answer.status.is_server_error() || text(&answer) == "[{\"s\":1}]", "{}", text(&answer))
                }
                Err(error) => assert!(
                    matches!(error.kind, ErrorKind::Protocol | ErrorKind::Refused | ErrorKind::Timeout),
                    "{error}"
                ),
            }
            server.start();
            // The first call that finds its connection closed discards the others, and is retried.
            let back = Instant::now();
            while db.query("select 1 as a", "").await.is_err() {
                tokio::time::sleep(Duration::from_millis(5)).await;
                assert!(back.elapsed() < Duration::from_secs(20), "it is not found again");
            }
            let (a, b, c, d) = four().await;
            assert!(a.is_ok() && b.is_ok() && c.is_ok() && d.is_ok());
        }
    });
}

#[test]
fn a_session_is_clean_for_the_next_call() {
    run(async {
        let server = Server::mariadb();
        let db = Db::new(&server, "limit = 1");
        let other = Db::new(&server, "");
        for sql in [
            "create table t (id int)",
            "create procedure leave_open() begin start transaction; insert into t values (10); end",
            "create procedure leave_rows() begin start transaction; insert into t values (20); select 1 as a; end",
            "create procedure fail_open() begin start transaction; signal sqlstate '45000'; end",
            "create procedure no_commit() set autocommit = 0",
            "create procedure configure() begin set session sql_mode = ''; set @kept = 5; do get_lock('own', 0); end",
            "create function hidden() returns int begin set @kept = 6; return 1; end",
        ] {
            assert_eq!(db.write(sql, "").await.status, 200, "{sql}");
        }
        // What is acknowledged is there for others, whatever ran before.
        for (number, call) in ["leave_open", "leave_rows", "fail_open", "no_commit"].into_iter().enumerate() {
            let answer = db.write(&format!("call {call}()"), "").await;
            match call {
                "no_commit" => assert_eq!(answer.status, 200),
                "fail_open" => assert_eq!(answer.status, 400),
                _ => {
                    assert_eq!(answer.status, 400, "{call}: {}", text(&answer));
                    assert!(text(&answer).contains("execute left a transaction open"), "{}", text(&answer));
                }
            }
            let answer = db.write("insert into t values (?)", &number.to_string()).await;
            assert_eq!(text(&answer), "{\"affected\":1}", "{call}");
            let seen = other.text("select max(id) as m, count(*) as n from t", "").await;
            assert_eq!(seen, format!("[{{\"m\":{number},\"n\":{}}}]", number + 1), "{call}");
        }
        let show = async |db: &Db| {
            let sql = "select @@sql_mode as mode, @kept as kept, is_used_lock('own') as lck, connection_id() as id, \
                       @@time_zone as zone, @@tx_read_only as ro";
            db.text(sql, "").await
        };
        let before = show(&db).await;
        assert!(before.contains("STRICT_ALL_TABLES") && before.contains("+00:00"), "{before}");
        assert_eq!(db.write("call configure()", "").await.status, 200);
        assert_eq!(show(&db).await, before);
        for sql in ["select get_lock('own', 0) as a", "select @kept := 7 as a", "select 7 as a into @kept"] {
            let answer = db.query(sql, "").await.unwrap();
            assert_eq!(answer.status, 200, "{sql}: {}", text(&answer));
            assert_eq!(show(&db).await, before, "{sql}");
        }
        // A function of one's own hides what it does.
        let hidden = "select hidden() as a";
        db.text(hidden, "").await;
        assert!(show(&db).await.contains("\"kept\":6"));
        let always = Db::new(&server, "limit = 1\nreset = 'always'");
        let before = show(&always).await;
        always.text(hidden, "").await;
        assert_eq!(show(&always).await, before);
    });
}
