//! What a statement leaves behind in its session: nothing that a later call could notice.

use super::*;

/// Checked by their first word as `select`, but PostgreSQL's comments nest.
const BEGIN: &str = "/* /* */ select */ begin";

#[test]
fn a_connection_in_a_transaction_is_not_used_again() {
    run(async {
        let server = Server::postgres();
        let db = Db::new(&server, "limit = 1");
        db.write("create table t (id int)", "").await.unwrap();
        let pid = async || text(&db.query("select pg_backend_pid() as a", "").await.unwrap());
        let before = pid().await;
        let answer = db.write(BEGIN, "").await.unwrap();
        assert_eq!(answer.status, 400, "{}", text(&answer));
        assert!(text(&answer).contains("execute left a transaction open"), "{}", text(&answer));
        // On a new connection: what is acknowledged is there for others.
        assert_eq!(text(&db.write("insert into t values (1)", "").await.unwrap()), "{\"affected\":1}");
        let other = Db::new(&server, "");
        assert_eq!(text(&other.query("select id from t", "").await.unwrap()), "[{\"id\":1}]");
        assert_ne!(pid().await, before);
        // A reading statement is not tried again, and its connection is not used again either.
        let answer = db.query(BEGIN, "").await.unwrap();
        assert!(answer.status == 400 && text(&answer).contains("transaction open"), "{}", text(&answer));
        db.write("insert into t values (2)", "").await.unwrap();
        assert_eq!(text(&other.query("select count(*) as n from t", "").await.unwrap()), "[{\"n\":2}]");
    });
}

#[test]
fn a_session_is_reset_after_statements_that_change_it() {
    run(async {
        let server = Server::postgres();
        let db = Db::new(&server, "limit = 1");
        let sql = "create function keep(path text) returns text language sql as \
                   $$ select set_config('search_path', path, false) $$";
        assert_eq!(db.write(sql, "").await.unwrap().status, 200);
        let sql = "create procedure configure() language plpgsql as \
                   $$ begin perform set_config('search_path', 'nowhere', false); end $$";
        assert_eq!(db.write(sql, "").await.unwrap().status, 200);
        let show = async |db: &Db| {
            let sql = "select current_setting('search_path') as path, current_setting('TimeZone') as zone, \
                       current_setting('default_transaction_read_only') as ro, \
                       (select count(*) from pg_locks where locktype = 'advisory') as locks, pg_backend_pid() as pid";
            text(&db.query(sql, "").await.unwrap())
        };
        let before = show(&db).await;
        for sql in [
            "select set_config('search_path', 'nowhere', false) as a",
            "SELECT pg_catalog.Set_Config('TimeZone', 'Asia/Tokyo', false) as a",
            "select set_config('default_transaction_read_only', 'off', false) as a",
            "select pg_advisory_lock(7) as a",
            "select pg_try_advisory_lock(8) as a",
        ] {
            assert_eq!(db.query(sql, "").await.unwrap().status, 200, "{sql}");
            assert_eq!(show(&db).await, before, "{sql}");
        }
        for sql in ["call configure()", "do $$ begin set session timezone = 'Asia/Tokyo'; end $$"] {
            assert_eq!(db.write(sql, "").await.unwrap().status, 200, "{sql}");
            assert_eq!(show(&db).await, before, "{sql}");
        }
        // A function of one's own hides what it does.
        let hidden = "select keep('nowhere') as a";
        assert_eq!(db.query(hidden, "").await.unwrap().status, 200);
        assert!(show(&db).await.contains("nowhere"));
        let always = Db::new(&server, "limit = 1\nreset = 'always'");
        let before = show(&always).await;
        assert_eq!(always.query(hidden, "").await.unwrap().status, 200);
        assert_eq!(show(&always).await, before);
    });
}
