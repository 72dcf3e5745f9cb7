//! Statements of PostgreSQL: values, parameters, errors.

use super::*;

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
        // Both writers produce the same JSON.
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
fn parameters_round_trip() {
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
fn null_is_allowed_everywhere() {
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
        // Each as a parameter and as a column, together and alone.
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
fn wrong_calls_have_one_clear_error_and_keep_the_connection() {
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
            // It fails midway: the rows before are not an answer.
            ("select 10 / (500 - g) from generate_series(1, 1000) g", "", "22012"),
            ("create table t (id int)", "", "a statement that writes needs writes = true"),
        ] {
            let said = db.refused(sql, params).await;
            assert!(said.contains(says), "{sql}: {said}");
        }
        let context = within(Duration::from_secs(20));
        let answer = db.send(Method::GET, "/by_id", "[\"a\"]".into(), context.clone()).await.unwrap();
        assert!(text(&answer).contains("parameter 1 (id) of by_id is a string"), "{}", text(&answer));
        let answer = db.send(Method::GET, "/by_id", "[5]".into(), context.clone()).await.unwrap();
        assert_eq!(text(&answer), "[{\"id\":5}]");
        let error = db.send(Method::GET, "/unknown", "[5]".into(), context).await.unwrap_err();
        assert!(error.to_string().contains("there is no statement unknown"), "{error}");
        assert_eq!(text(&db.query("select pg_backend_pid()", "").await.unwrap()), pid, "one connection did all this");
    });
}

#[test]
fn writing_must_be_declared_and_conflicts_are_answers() {
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
