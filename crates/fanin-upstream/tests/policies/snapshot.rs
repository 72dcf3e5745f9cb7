//! Snapshots: fetched in the background, kept during failures, restored after a restart.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use crate::common::{Client, LONG, Response, Version, client, run, serve, text, until};
use fanin_config::Snapshot;
use tokio::time::Instant;

const EVERY: Duration = Duration::from_millis(20);

fn with(url: &str, change: impl FnOnce(&mut Snapshot)) -> Client {
    let mut snapshot = Snapshot { every: EVERY, ..Snapshot::new("/masks") };
    change(&mut snapshot);
    let client = client(url, |config| config.snapshot = Some(snapshot));
    client.worker.refresh_snapshots(&client.upstreams);
    client
}

fn row(client: &Client, key: &str) -> Option<String> {
    let table = client.upstream.snapshot().expect("it has one").table()?;
    table.get(key).map(|row| String::from_utf8(row.raw().to_vec()).expect("JSON"))
}

fn status(status: u16, body: &str) -> Response {
    let mut response = text(body.to_owned());
    *response.status_mut() = http::StatusCode::from_u16(status).expect("a status");
    response
}

fn fetches(client: &Client, outcome: &str) -> f64 {
    client.metric(&format!("fanin_snapshot_fetches_total{{upstream=\"u\",outcome=\"{outcome}\"}}"))
}

#[test]
fn a_table_is_fetched_and_refreshed() {
    run(async {
        let body = Rc::new(RefCell::new(r#"{"a": [1]}"#.to_owned()));
        let answered = body.clone();
        let server = serve(Version::One, move |request| {
            assert_eq!(request.uri(), "/masks");
            let body = answered.borrow().clone();
            async move { text(body) }
        })
        .await;
        let client = with(&server.url(), |_| {});
        let snapshot = client.upstream.snapshot().expect("it has one").clone();
        let table = snapshot.wait(client.upstream.name(), Instant::now() + LONG).await.expect("fetched");
        assert_eq!(table.len(), 1);
        *body.borrow_mut() = r#"{"a": [2], "b": 3}"#.to_owned();
        until(|| row(&client, "b").is_some()).await;
        assert_eq!(row(&client, "a").as_deref(), Some("[2]"));
        assert_eq!(table.get("a").expect("a row").raw(), b"[1]", "who has looked before keeps what there was");
        assert_eq!(client.metric("fanin_snapshot_rows{upstream=\"u\"}"), 2.0);
        assert!(client.metric("fanin_snapshot_bytes{upstream=\"u\"}") > 10.0);
    });
}

#[test]
fn failures_and_broken_tables_leave_the_table_unchanged() {
    run(async {
        let answer = Rc::new(RefCell::new((200, r#"[{"id": 1}]"#)));
        let answered = answer.clone();
        let server = serve(Version::One, move |_| {
            let (code, body) = *answered.borrow();
            async move { status(code, body) }
        })
        .await;
        let client = with(&server.url(), |snapshot| snapshot.key = Some("id".into()));
        until(|| row(&client, "1").is_some()).await;
        for bad in [(500, "{}"), (200, "[{"), (200, r#"[{"id": 2}, {}]"#), (200, r#"{"id": 2}"#), (200, "[]")] {
            *answer.borrow_mut() = bad;
            let before = fetches(&client, "failed");
            until(|| fetches(&client, "failed") > before).await;
            assert_eq!((row(&client, "1").is_some(), row(&client, "2")), (true, None), "{bad:?}");
            assert!(client.metric("fanin_snapshot_age_seconds{upstream=\"u\"}") > 0.0, "it grows older");
        }
        *answer.borrow_mut() = (200, r#"[{"id": 2}]"#);
        until(|| row(&client, "2").is_some()).await;
    });
}

#[test]
fn an_empty_table_is_accepted_only_if_allowed() {
    run(async {
        let empty = Rc::new(RefCell::new(false));
        let answered = empty.clone();
        let server = serve(Version::One, move |_| {
            let body = if *answered.borrow() { "{}" } else { r#"{"a": 1}"# };
            async move { text(body) }
        })
        .await;
        let client = with(&server.url(), |snapshot| snapshot.allow_empty = true);
        until(|| row(&client, "a").is_some()).await;
        *empty.borrow_mut() = true;
        until(|| row(&client, "a").is_none()).await;
    });
}

#[test]
fn a_restart_does_not_need_the_service() {
    run(async {
        let dir = tempfile::tempdir().expect("a folder");
        let dump = dir.path().join("masks.dump");
        let server = serve(Version::One, |_| async { text(r#"{"a": 1.50}"#) }).await;
        let url = server.url();
        let first = with(&url, |snapshot| snapshot.dump = Some(dump.clone()));
        until(|| row(&first, "a").is_some() && dump.exists()).await;
        drop((first, server));
        let second = with(&url, |snapshot| snapshot.dump = Some(dump.clone()));
        assert_eq!(row(&second, "a").as_deref(), Some("1.50"), "at once");
        until(|| fetches(&second, "failed") > 0.0).await;
        assert_eq!(row(&second, "a").as_deref(), Some("1.50"));
        // The dump of another table is refused.
        let third = with(&url, |snapshot| {
            snapshot.path = "/others".into();
            snapshot.dump = Some(dump.clone());
        });
        assert_eq!(row(&third, "a"), None);
    });
}

#[test]
fn a_lookup_before_the_first_fetch_waits_and_reports_the_problem() {
    run(async {
        let client = with("http://127.0.0.1:1", |_| {});
        let snapshot = client.upstream.snapshot().expect("it has one").clone();
        until(|| fetches(&client, "failed") > 0.0).await;
        let error = snapshot.wait(client.upstream.name(), Instant::now()).await.expect_err("it is not there");
        assert!(error.to_string().contains("could not be fetched"), "{error}");
    });
}

#[test]
fn a_reload_keeps_the_table() {
    run(async {
        let server = serve(Version::One, |_| async { text(r#"{"a": 1}"#) }).await;
        let client = with(&server.url(), |_| {});
        until(|| row(&client, "a").is_some()).await;
        let mut config = client.upstream.config().clone();
        config.limit = fanin_config::Limit::Fixed(7);
        let next = client.upstreams.reload([&config]).expect("valid");
        let table = next.get("u").expect("there").snapshot().expect("it has one").table();
        assert_eq!(table.expect("kept").len(), 1);
    });
}
