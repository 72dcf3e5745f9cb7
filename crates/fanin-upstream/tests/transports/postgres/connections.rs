//! Connections to PostgreSQL: the pool, deadlines, restarts, signing on.

use super::*;

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
        // The statement is prepared now, so only the insert itself would be sent.
        insert(0).await.unwrap();
        // The call has the connection and waits for the other writes of this event loop iteration; then its request
        // ends.
        let mut call = Box::pin(insert(1));
        assert!(futures_util::poll!(&mut call).is_pending());
        drop(call);
        // On the same connection, the only one.
        assert_eq!(text(&db.query("select id from t", "").await.unwrap()), "[{\"id\":0}]");
        // The next call starts at once: there was nothing to cancel.
        insert(2).await.unwrap();
        assert_eq!(text(&db.query("select id from t order by id", "").await.unwrap()), "[{\"id\":0},{\"id\":2}]");
    });
}

#[test]
fn the_waiting_queue_is_bounded() {
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
fn workers_share_one_connection() {
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
                // The worker that opened the connection must not end before the other one.
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
        // The same when the call is dropped, as when a client leaves.
        let call = db.send(Method::GET, "/query", sleep, within(Duration::from_secs(20)));
        tokio::time::timeout(Duration::from_millis(150), call).await.unwrap_err();
        while db.running().await != "[{\"count\":0}]" {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        // Both connections are usable again.
        let both = || db.query("select 1 as a from pg_sleep(0.1)", "");
        let (a, b) = futures_util::future::join(both(), both()).await;
        assert_eq!((text(&a.unwrap()), text(&b.unwrap())), ("[{\"a\":1}]".into(), "[{\"a\":1}]".into()));
        // If this process had ended, the server would end the statement by its own timeout.
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
        // One row of 200 MB is refused by its length, before it is read.
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
fn a_server_that_restarts() {
    run(async {
        let mut server = Server::postgres();
        let db = Db::new(&server, "limit = 4\nbreaker = 'off'");
        for crash in [true, false] {
            assert!(db.query("select 1 as a", "").await.is_ok());
            // A running call gets an error.
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
fn signing_on_fails_with_clear_errors_and_works_over_tls() {
    run(async {
        let server = Server::postgres();
        let wrong = server.url.replace("secret", "guess");
        let error = Db::at(&wrong, "").query("select 1", "").await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Connect);
        assert!(error.to_string().contains("28P01: password authentication failed"), "{error}");
        assert!(!error.to_string().contains("guess"), "{error}");
        let error = Db::at(&server.url.replace("/postgres", "/none"), "").query("select 1", "").await.unwrap_err();
        assert!(error.to_string().contains("3D000"), "{error}");
        // The password may be set apart from the URL.
        let apart = Db::at(&server.url.replace(":secret", ""), "password = 'secret'");
        assert!(apart.query("select 1", "").await.is_ok());

        let ssl = "select ssl from pg_stat_ssl where pid = pg_backend_pid()";
        let plain = Db::new(&server, "");
        assert_eq!(text(&plain.query(ssl, "").await.unwrap()), "[{\"ssl\":false}]");
        let secure = Db::new(&server, &format!("tls = {{ ca = '{}' }}", server.ca.display()));
        assert_eq!(text(&secure.query(ssl, "").await.unwrap()), "[{\"ssl\":true}]");
        // A certificate of an unknown authority.
        let unknown = Db::at(&format!("{}?sslmode=require", server.url), "");
        let error = unknown.query(ssl, "").await.unwrap_err();
        assert!(error.kind == ErrorKind::Connect && error.to_string().contains("TLS"), "{error}");
        // Cancelling uses TLS as well.
        let sleep = body("select pg_sleep(60)", "");
        let error = secure.send(Method::GET, "/query", sleep, within(Duration::from_millis(150))).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Timeout);
        while secure.running().await != "[{\"count\":0}]" {}
    });
}
