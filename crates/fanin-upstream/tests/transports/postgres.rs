//! PostgreSQL, a real one.

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::common::run;
use fanin_testbed::Server;
use fanin_upstream::{Answer, CallContext, CallError, ErrorKind, Request, Upstream, Upstreams, WorkerClient};
use http::{HeaderMap, Method};
use tokio::time::Instant;

struct Db {
    upstreams: Arc<Upstreams>,
    worker: Rc<WorkerClient>,
}

fn config(text: &str) -> Vec<fanin_config::Upstream> {
    let config = fanin_config::Config::parse(text, "fanin.toml", Path::new("."), &|_| None).unwrap();
    config.upstreams.into_values().collect()
}

impl Db {
    /// The upstream `db` with further keys.
    fn new(server: &Server, more: &str) -> Db {
        Db::at(&server.url, more)
    }

    fn at(url: &str, more: &str) -> Db {
        let text = format!("[upstreams.db]\npostgres = '{url}'\ntimeout = '20s'\nconnect_timeout = '10s'\n{more}");
        Db { upstreams: Arc::new(Upstreams::new(&config(&text)).unwrap()), worker: WorkerClient::new() }
    }

    fn upstream(&self) -> &Arc<Upstream> {
        self.upstreams.get("db").unwrap()
    }

    fn send(
        &self,
        method: Method,
        path: &str,
        body: String,
        context: CallContext,
    ) -> impl Future<Output = Result<Answer, CallError>> + use<> {
        let request = Request { method, path_and_query: path.into(), headers: HeaderMap::new(), body: body.into() };
        self.upstream().call(&self.worker, request, context)
    }

    /// `params` is JSON without the brackets.
    async fn query(&self, sql: &str, params: &str) -> Result<Answer, CallError> {
        self.send(Method::GET, "/query", body(sql, params), within(Duration::from_secs(20))).await
    }

    async fn write(&self, sql: &str, params: &str) -> Result<Answer, CallError> {
        self.send(Method::POST, "/execute", body(sql, params), within(Duration::from_secs(20))).await
    }

    /// What a query with a status other than 200 says.
    async fn refused(&self, sql: &str, params: &str) -> String {
        let answer = self.query(sql, params).await.unwrap();
        let text = format!("{} {}", answer.status.as_u16(), text(&answer));
        let error = CallError::status(self.upstream().name(), &answer);
        assert!(error.to_string().contains("status 4") || error.to_string().contains("status 5"), "{error}");
        text
    }

    /// Statements of the pool that run at the server now.
    async fn running(&self) -> String {
        let sql = "select count(*) from pg_stat_activity where state = 'active' and query like '%pg_sleep%' \
                   and pid <> pg_backend_pid()";
        text(&self.query(sql, "").await.unwrap())
    }
}

fn within(time: Duration) -> CallContext {
    CallContext::new(Instant::now() + time)
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

#[test]
fn every_type_has_its_form_in_json() {
    run(async {
        let server = Server::postgres();
        let db = Db::new(&server, "");
        db.write("create type mood as enum ('sad', 'glad')", "").await.unwrap();
        db.write("create domain positive as int check (value > 0)", "").await.unwrap();
        for (sql, json) in [
            ("true", "true"),
            ("(-32768)::int2", "-32768"),
            ("2147483647", "2147483647"),
            ("9223372036854775807", "9223372036854775807"),
            ("0.1::float4", "0.1"),
            ("1e30::float4", "1e30"),
            ("0.1::float8", "0.1"),
            ("'NaN'::float8", "\"NaN\""),
            ("'-infinity'::float4", "\"-Infinity\""),
            ("12345678901234567890.123456789012345678900", "12345678901234567890.123456789012345678900"),
            ("0.00010::numeric", "0.00010"),
            ("(-0.5)::numeric", "-0.5"),
            ("1e20::numeric", "100000000000000000000"),
            ("10000::numeric", "10000"),
            ("'NaN'::numeric", "\"NaN\""),
            ("'a\"b\\c' || chr(10) || 'ж'", r#""a\"b\\c\nж""#),
            ("'x'::char(3)", "\"x  \""),
            ("'x'::\"char\"", "\"x\""),
            ("'{\"a\": [1, 2.50]}'::json", "{\"a\": [1, 2.50]}"),
            ("'{\"a\":1}'::jsonb", "{\"a\": 1}"),
            ("'6B29FC40-CA47-1067-B31D-00DD010662DA'::uuid", "\"6b29fc40-ca47-1067-b31d-00dd010662da\""),
            ("'\\x00ff10'::bytea", "\"AP8Q\""),
            ("date '2024-02-29'", "\"2024-02-29\""),
            ("date '0044-03-15 BC'", "\"0044-03-15 BC\""),
            ("date 'infinity'", "\"infinity\""),
            ("time '23:59:59.5'", "\"23:59:59.5\""),
            ("timetz '10:00:00+05:30'", "\"10:00:00+05:30\""),
            ("timestamp '1999-12-31 23:59:59.999999'", "\"1999-12-31T23:59:59.999999\""),
            ("timestamptz '2024-01-01 00:00:00+01'", "\"2023-12-31T23:00:00Z\""),
            ("timestamptz '-infinity'", "\"-infinity\""),
            ("interval '1 year 2 months 3 days 04:05:06.789'", "\"P1Y2M3DT4H5M6.789S\""),
            ("inet '10.0.0.1'", "\"10.0.0.1\""),
            ("cidr '10.0.0.0/8'", "\"10.0.0.0/8\""),
            ("inet '::1/64'", "\"::1/64\""),
            ("macaddr '08:00:2b:01:02:03'", "\"08:00:2b:01:02:03\""),
            ("'glad'::mood", "\"glad\""),
            ("7::positive", "7"),
            ("array[1, null, 3]", "[1,null,3]"),
            ("array[['a', 'b'], ['c', 'd']]", "[[\"a\",\"b\"],[\"c\",\"d\"]]"),
            ("'{}'::int[]", "[]"),
            ("array['{\"a\":1}'::jsonb]", "[{\"a\": 1}]"),
            ("array['sad'::mood]", "[\"sad\"]"),
            ("null::int", "null"),
            ("null::jsonb", "null"),
            ("null::timestamptz", "null"),
            ("null::int[]", "null"),
        ] {
            let answer = db.query(&format!("select {sql} as v"), "").await.unwrap();
            assert_eq!(text(&answer), format!("[{{\"v\":{json}}}]"), "{sql}");
        }
        // The two writers agree on what JSON is.
        let sql =
            "select row_to_json(t)::text as a, n, d, f from (select 1.50 n, date '0001-01-01' d, 0.1::float8 f) t";
        let answer = text(&db.query(sql, "").await.unwrap());
        assert_eq!(
            answer,
            r#"[{"a":"{\"n\":1.50,\"d\":\"0001-01-01\",\"f\":0.1}","n":1.50,"d":"0001-01-01","f":0.1}]"#
        );
        assert_eq!(text(&db.query("select 1 as a where false", "").await.unwrap()), "[]");
        assert_eq!(text(&db.query("select from generate_series(1, 2)", "").await.unwrap()), "{\"affected\":2}");
    });
}

#[test]
fn parameters_come_back_as_they_went() {
    run(async {
        let server = Server::postgres();
        let db = Db::new(&server, "");
        for (kind, json) in [
            ("int4", "-7"),
            ("int8", "9007199254740993"),
            ("numeric", "12345678901234567890.50"),
            ("float8", "1.5"),
            ("bool", "false"),
            ("text", r#""a ' \" \\ ; drop table x; -- ж""#),
            ("jsonb", r#"{"a": [1, "b", null]}"#),
            ("uuid", "\"6b29fc40-ca47-1067-b31d-00dd010662da\""),
            ("bytea", "\"AP8Q\""),
            ("date", "\"2024-02-29\""),
            ("timestamptz", "\"2024-02-29T10:00:00.5Z\""),
            ("interval", "\"P1DT2H\""),
            ("int4[]", "[1,null,3]"),
            ("text[]", r#"[["a","{b,\"}"]]"#),
            ("inet", "\"10.0.0.0/8\""),
            ("int4", "null"),
        ] {
            let answer = db.query(&format!("select $1::{kind} as v"), json).await.unwrap();
            assert_eq!(text(&answer), format!("[{{\"v\":{json}}}]"), "{kind}");
        }
        let sql = "select count(*) as n from generate_series(1, 10) g where g = any($1)";
        assert_eq!(text(&db.query(sql, "[2, 4, 40]").await.unwrap()), "[{\"n\":2}]");
    });
}

#[test]
fn null_may_stand_everywhere() {
    run(async {
        let server = Server::postgres();
        let db = Db::new(&server, "");
        db.write("create type mood as enum ('sad', 'glad')", "").await.unwrap();
        db.write("create domain positive as int check (value > 0)", "").await.unwrap();
        let kinds = [
            "bool",
            "int2",
            "int4",
            "int8",
            "oid",
            "float4",
            "float8",
            "numeric",
            "text",
            "varchar",
            "bpchar",
            "name",
            "\"char\"",
            "json",
            "jsonb",
            "uuid",
            "bytea",
            "date",
            "time",
            "timetz",
            "timestamp",
            "timestamptz",
            "interval",
            "inet",
            "cidr",
            "macaddr",
            "macaddr8",
            "mood",
            "positive",
            "int4[]",
            "text[]",
            "mood[]",
        ];
        // Each as a parameter and as a column, at once and alone.
        let columns: Vec<String> =
            kinds.iter().enumerate().map(|(at, kind)| format!("${}::{kind} as c{at}", at + 1)).collect();
        let row: Vec<String> = (0..kinds.len()).map(|at| format!("\"c{at}\":null")).collect();
        let sql = format!("select {} from generate_series(1, 2)", columns.join(", "));
        let answer = text(&db.query(&sql, &vec!["null"; kinds.len()].join(", ")).await.unwrap());
        assert_eq!(answer, format!("[{{{0}}},{{{0}}}]", row.join(",")));
        for kind in kinds {
            let answer = db.query(&format!("select $1::{kind} as v"), "null").await.unwrap();
            assert_eq!(text(&answer), "[{\"v\":null}]", "{kind}");
        }
        let sql = "select count(*) as n from generate_series(1, 10) g where g = any($1)";
        assert_eq!(text(&db.query(sql, "null").await.unwrap()), "[{\"n\":0}]");
        assert_eq!(text(&db.query(sql, "[null, null, 3]").await.unwrap()), "[{\"n\":1}]");
    });
}

#[test]
fn what_is_asked_wrongly_has_one_clear_error_and_harms_no_connection() {
    run(async {
        let server = Server::postgres();
        let named = "limit = 1\n[upstreams.db.statements.by_id]\nsql = 'select $1::int as id'\nparams = ['id']\n";
        let db = Db::new(&server, named);
        let pid = text(&db.query("select pg_backend_pid()", "").await.unwrap());
        for (sql, params, says) in [
            (
                "select $1::int",
                "\"7\"",
                "400 {\"code\":\"fanin\",\"message\":\"parameter 1 of query is a string; int4 needs a whole number\"}",
            ),
            ("select $1::int", "", "query takes 1 parameters and was given 0"),
            ("select 1", "1", "query takes 0 parameters and was given 1"),
            ("select $1::date", "\"soon\"", "400 {\"code\":\"22007\",\"message\":\"invalid input syntax for type date"),
            ("selec 1", "", "400 {\"code\":\"42601\",\"message\":\"syntax error at or near"),
            ("select 1; select 2", "", "cannot insert multiple commands"),
            ("select * from nothing", "", "42P01"),
            ("select 1 as a, 2 as a", "", "two columns named a: name one of them with AS"),
            (
                "select int4range(1, 2) as r",
                "",
                "column r of query has the type int4range, which has no form in JSON: cast it, as in r::text",
            ),
            // It fails midway: the rows before it are no answer.
            ("select 10 / (500 - g) from generate_series(1, 1000) g", "", "22012"),
            ("create table t (id int)", "", "a statement that writes needs writes = true"),
        ] {
            let said = db.refused(sql, params).await;
            assert!(said.contains(says), "{sql}: {said}");
        }
        let context = within(Duration::from_secs(20));
        let answer = db.send(Method::GET, "/by_id", "[\"a\"]".into(), context).await.unwrap();
        assert!(text(&answer).contains("parameter 1 (id) of by_id is a string"), "{}", text(&answer));
        let answer = db.send(Method::GET, "/by_id", "[5]".into(), context).await.unwrap();
        assert_eq!(text(&answer), "[{\"id\":5}]");
        let error = db.send(Method::GET, "/unknown", "[5]".into(), context).await.unwrap_err();
        assert!(error.to_string().contains("there is no statement unknown"), "{error}");
        assert_eq!(text(&db.query("select pg_backend_pid()", "").await.unwrap()), pid, "one connection did all this");
    });
}

#[test]
fn writing_is_said_and_conflicts_are_answers() {
    run(async {
        let server = Server::postgres();
        let db = Db::new(&server, "limit = 1");
        db.write("create table t (id int primary key, name text not null)", "").await.unwrap();
        let insert = "insert into t values ($1, $2)";
        assert_eq!(text(&db.write(insert, "1, \"a\"").await.unwrap()), "{\"affected\":1}");
        let answer = db.write(insert, "1, \"a\"").await.unwrap();
        assert_eq!(answer.status, 409);
        assert!(text(&answer).contains(r#""code":"23505""#) && text(&answer).contains(r#""constraint":"t_pkey""#));
        let answer = db.write(insert, "2, null").await.unwrap();
        assert!(answer.status == 409 && text(&answer).contains(r#""column":"name""#), "{}", text(&answer));
        // After a writing statement the same connection is read-only again.
        let hidden = "with x as (insert into t values (3, 'c') returning id) select * from x";
        assert!(db.refused(hidden, "").await.contains("25006"));
        assert_eq!(text(&db.write(hidden, "").await.unwrap()), "[{\"id\":3}]");
        assert_eq!(text(&db.query("select id from t order by id", "").await.unwrap()), "[{\"id\":1},{\"id\":3}]");
        // The table changes under a prepared statement.
        let all = "select * from t where id = 1";
        assert_eq!(text(&db.query(all, "").await.unwrap()), r#"[{"id":1,"name":"a"}]"#);
        db.write("alter table t add column more int", "").await.unwrap();
        assert_eq!(text(&db.query(all, "").await.unwrap()), r#"[{"id":1,"name":"a","more":null}]"#);
    });
}

#[test]
fn a_call_dropped_before_it_is_sent_writes_nothing() {
    run(async {
        let server = Server::postgres();
        let db = Db::new(&server, "limit = 1");
        db.write("create table t (id int)", "").await.unwrap();
        let insert = |id: usize| {
            db.send(
                Method::POST,
                "/execute",
                body("insert into t values ($1)", &id.to_string()),
                within(Duration::from_secs(20)),
            )
        };
        // From here on the statement is prepared, so that nothing but the insert itself is to be sent.
        insert(0).await.unwrap();
        // The call has the connection and waits for the other sends of its lap, and its request ends.
        let mut call = Box::pin(insert(1));
        assert!(futures_util::poll!(&mut call).is_pending());
        drop(call);
        // On the same connection, the only one.
        assert_eq!(text(&db.query("select id from t", "").await.unwrap()), "[{\"id\":0}]");
        // The next may go at once: there was nothing to cancel.
        insert(2).await.unwrap();
        assert_eq!(text(&db.query("select id from t order by id", "").await.unwrap()), "[{\"id\":0},{\"id\":2}]");
    });
}

#[test]
fn one_row_is_the_row() {
    run(async {
        let server = Server::postgres();
        let db = Db::new(&server, "limit = 1");
        let one = async |sql: &str| {
            db.send(Method::GET, "/query_one", body(sql, ""), within(Duration::from_secs(20))).await.unwrap()
        };
        assert_eq!(text(&one("select 1 as a").await), "{\"a\":1}");
        assert_eq!(text(&one("select 1 as a where false").await), "null");
        let answer = one("select generate_series(1, 5000000) as g").await;
        assert!(answer.status == 400 && text(&answer).contains("more than the one row"), "{}", text(&answer));
        assert_eq!(text(&one("select 2 as a").await), "{\"a\":2}");
    });
}

#[test]
fn calls_wait_by_number_and_the_next_one_is_refused() {
    run(async {
        let server = Server::postgres();
        let db = Db::new(&server, "limit = 2\nmax_waiting = 1");
        let sleep = || db.query("select 1 as a from pg_sleep(0.3)", "");
        let (a, b, c, d) = futures_util::future::join4(sleep(), sleep(), sleep(), sleep()).await;
        assert!(a.is_ok() && b.is_ok() && c.is_ok());
        let error = d.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Limit);
        assert!(error.elapsed < Duration::from_millis(250), "at once, not after a wait");
        let sql = "select count(*) as n from pg_stat_activity where application_name = 'fanin'";
        assert_eq!(text(&db.query(sql, "").await.unwrap()), "[{\"n\":2}]", "no more connections than the limit");
    });
}

#[test]
fn workers_take_turns_on_one_connection() {
    let server = Server::postgres();
    let text_of = format!(
        "[upstreams.db]\npostgres = '{}'\ntimeout = '60s'\nconnect_timeout = '10s'\nlimit = 1\nmax_waiting = 64",
        server.url
    );
    let upstreams = Arc::new(Upstreams::new(&config(&text_of)).unwrap());
    let pids: Vec<String> = std::thread::scope(|scope| {
        let worker = || {
            let mut seen = Vec::new();
            run(async {
                let db = Db { upstreams: upstreams.clone(), worker: WorkerClient::new() };
                for number in 0..100 {
                    let sql = "select pg_backend_pid() as pid, $1::int as n";
                    let param = number.to_string();
                    let (one, other) = futures_util::future::join(db.query(sql, "1"), db.query(sql, &param)).await;
                    let (one, other) = (text(&one.unwrap()), text(&other.unwrap()));
                    assert!(
                        one.ends_with(",\"n\":1}]") && other.ends_with(&format!(",\"n\":{number}}}]")),
                        "{one} {other}"
                    );
                    seen.push(one);
                    seen.push(other.replace(&format!(",\"n\":{number}}}"), ",\"n\":1}"));
                }
                // The worker that has opened the connection must not end before the other one.
                tokio::time::sleep(Duration::from_millis(500)).await;
            });
            seen
        };
        let threads: Vec<_> = (0..3).map(|_| scope.spawn(worker)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(pids.len(), 600);
    assert!(pids.iter().all(|pid| *pid == pids[0]), "one connection did all this");
}

#[test]
fn at_the_deadline_the_server_stops_too() {
    run(async {
        let server = Server::postgres();
        let db = Db::new(&server, "limit = 2");
        let sleep = body("select pg_sleep(60)", "");
        let error =
            db.send(Method::GET, "/query", sleep.clone(), within(Duration::from_millis(150))).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Timeout);
        // The same when the call is dropped, as it is when the client leaves.
        let call = db.send(Method::GET, "/query", sleep, within(Duration::from_secs(20)));
        tokio::time::timeout(Duration::from_millis(150), call).await.unwrap_err();
        while db.running().await != "[{\"count\":0}]" {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        // Both connections are there again and in order.
        let both = || db.query("select 1 as a from pg_sleep(0.1)", "");
        let (a, b) = futures_util::future::join(both(), both()).await;
        assert_eq!((text(&a.unwrap()), text(&b.unwrap())), ("[{\"a\":1}]".into(), "[{\"a\":1}]".into()));
        // And if nobody were left to cancel it, the server would by itself.
        let setting = "select current_setting('statement_timeout') as t";
        let answer = db.send(Method::GET, "/query", body(setting, ""), within(Duration::from_secs(2))).await.unwrap();
        assert!(
            ["\"3s\"", "\"2998ms\""].iter().any(|t| text(&answer).contains(t)) || text(&answer).contains("ms\""),
            "{}",
            text(&answer)
        );
    });
}

#[test]
fn answers_that_are_too_large_end_early() {
    run(async {
        let server = Server::postgres();
        let db = Db::new(&server, "limit = 1\nmax_answer = '1MB'");
        // One row of 200 MB: refused by its length, before it is read.
        let begun = std::time::Instant::now();
        let error = db.query("select repeat('x', 200000000) as a", "").await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::TooLarge, "{error}");
        assert!(error.to_string().contains("a row of 200000"), "{error}");
        // Many small ones.
        let error =
            db.query("select repeat('x', 1000) as a, generate_series(1, 100000000) as b", "").await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::TooLarge, "{error}");
        assert_eq!(text(&db.query("select 1 as a", "").await.unwrap()), "[{\"a\":1}]");
        assert!(begun.elapsed() < Duration::from_secs(15), "the rest was not read");
    });
}

#[test]
fn a_server_that_goes_and_comes_back() {
    run(async {
        let mut server = Server::postgres();
        let db = Db::new(&server, "limit = 4\nbreaker = 'off'");
        for crash in [true, false] {
            assert!(db.query("select 1 as a", "").await.is_ok());
            // Whoever is being served gets an error, not silence.
            let running = tokio::task::spawn_local(db.send(
                Method::POST,
                "/execute",
                body("select pg_sleep(60)", ""),
                within(Duration::from_secs(20)),
            ));
            while db.running().await == "[{\"count\":0}]" {}
            let server = &mut server;
            if crash {
                server.kill()
            } else {
                server.stop()
            };
            let ended = running.await.unwrap();
            match ended {
                Ok(answer) => assert!(answer.status.is_server_error(), "{}", text(&answer)),
                Err(error) => assert!(matches!(error.kind, ErrorKind::Protocol | ErrorKind::Refused), "{error}"),
            }
            for _ in 0..20 {
                let error = db.query("select 1 as a", "").await.unwrap_err();
                assert!(matches!(error.kind, ErrorKind::Refused | ErrorKind::Connect | ErrorKind::Protocol), "{error}");
            }
            server.start();
            let back = Instant::now();
            while db.query("select 1 as a", "").await.is_err() {
                tokio::time::sleep(Duration::from_millis(5)).await;
                assert!(back.elapsed() < Duration::from_secs(10), "it is not found again");
            }
        }
    });
}

#[test]
fn signing_on_may_fail_in_words_and_may_be_encrypted() {
    run(async {
        let server = Server::postgres();
        let wrong = server.url.replace("secret", "guess");
        let error = Db::at(&wrong, "").query("select 1", "").await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Connect);
        assert!(error.to_string().contains("28P01: password authentication failed"), "{error}");
        assert!(!error.to_string().contains("guess"), "{error}");
        let error = Db::at(&server.url.replace("/postgres", "/none"), "").query("select 1", "").await.unwrap_err();
        assert!(error.to_string().contains("3D000"), "{error}");
        // The password may stand apart from the URL.
        let apart = Db::at(&server.url.replace(":secret", ""), "password = 'secret'");
        assert!(apart.query("select 1", "").await.is_ok());

        let ssl = "select ssl from pg_stat_ssl where pid = pg_backend_pid()";
        let plain = Db::new(&server, "");
        assert_eq!(text(&plain.query(ssl, "").await.unwrap()), "[{\"ssl\":false}]");
        let secure = Db::new(&server, &format!("tls = {{ ca = '{}' }}", server.ca.display()));
        assert_eq!(text(&secure.query(ssl, "").await.unwrap()), "[{\"ssl\":true}]");
        // A certificate that nobody we know has signed.
        let unknown = Db::at(&format!("{}?sslmode=require", server.url), "");
        let error = unknown.query(ssl, "").await.unwrap_err();
        assert!(error.kind == ErrorKind::Connect && error.to_string().contains("TLS"), "{error}");
        // Cancelling goes over TLS as well.
        let sleep = body("select pg_sleep(60)", "");
        let error = secure.send(Method::GET, "/query", sleep, within(Duration::from_millis(150))).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Timeout);
        while secure.running().await != "[{\"count\":0}]" {}
    });
}
