//! Databases and folders as flows call them: what is sent, and what is refused before anything is.

mod common;

use common::{after, load, paused, setup_with};

const DB: &str = r#"
[upstreams.db]
postgres = "postgres://u@127.0.0.1:1/d"
[upstreams.db.statements.order_by_id]
sql = "select * from orders where id = $1 and city = $2"
params = ["id", "city"]
[upstreams.db.statements.plain]
sql = "select $1::int"
[upstreams.db.statements.place]
sql = "insert into orders values ($1)"
params = ["id"]
writes = true
[upstreams.docs]
files = "."
"#;

fn flow(body: &str) -> String {
    format!("load(\"@upstreams\", \"db\", \"docs\")\ndef flow(req):\n    {}\n", body.replace('\n', "\n    "))
}

fn sent(body: &str) -> Vec<String> {
    paused(async {
        let it = setup_with(&flow(body), DB, |_, _| after(5, "[{\"id\": 3}]"));
        it.text("/").await;
        it.events()
    })
}

fn refused(body: &str) -> String {
    match load(&flow(body), DB) {
        Ok(_) => panic!("accepted: {body}"),
        Err(problems) => problems.join("\n"),
    }
}

#[test]
fn statements_travel_as_requests() {
    assert_eq!(sent("return db.order_by_id(7, \"Rome\")"), ["0 GET db/order_by_id [7,\"Rome\"]"]);
    assert_eq!(sent("return db.order_by_id(city = \"Rome\", id = 7)"), ["0 GET db/order_by_id [7,\"Rome\"]"]);
    assert_eq!(sent("return db.order_by_id(7, city = None)"), ["0 GET db/order_by_id [7,null]"]);
    assert_eq!(sent("return db.plain([1, {\"a\": 2.5}])"), ["0 GET db/plain [[1,{\"a\":2.5}]]"]);
    assert_eq!(sent("return db.query(\"select $1\", 1)"), ["0 GET db/query [\"select $1\",1]"]);
    assert_eq!(sent("return db.query_one(\"select 1\")"), ["0 GET db/query_one [\"select 1\"]"]);
    assert_eq!(sent("return docs.lines(\"a/b.txt\")"), ["0 GET docs/lines [\"a/b.txt\"]"]);
    assert_eq!(sent("return docs.list()"), ["0 GET docs/list [\"\"]"]);
}

#[test]
fn a_query_takes_what_another_gave_without_waiting_for_it() {
    let body = "a = db.plain(1)\nb = db.plain(a[0][\"id\"])\nc = docs.read(\"x\")\nreturn [b, c]";
    assert_eq!(sent(body), ["0 GET db/plain [1]", "0 GET docs/read [\"x\"]", "5 GET db/plain [3]"]);
}

#[test]
fn what_writes_stands_where_it_is_written() {
    let body = "a = db.plain(1)\nb = db.place(2)\nc = db.plain(3)\nreturn [a, b, c]";
    assert_eq!(sent(body), ["0 GET db/plain [1]", "5 POST db/place [2]", "10 GET db/plain [3]"]);
    let body = "a = db.plain(1)\nb = db.execute(\"delete from t\")\nreturn [a, b]";
    assert_eq!(sent(body), ["0 GET db/plain [1]", "5 POST db/execute [\"delete from t\"]"]);
    let body = "a = db.plain(1)\nb = db.place(2, unordered = True)\nreturn [a, b]";
    assert_eq!(sent(body), ["0 GET db/plain [1]", "0 POST db/place [2]"]);
}

#[test]
fn texts_of_statements_are_literals() {
    for spliced in [
        "return db.query(\"select \" + req.query[\"x\"])",
        "return db.query(f\"select {req.path}\")",
        "return db.query(\"select %s\" % req.path)",
        "sql = \"select 1\"\nreturn db.query(sql)",
        "return db.query()",
        "return db.execute(*[\"delete from t\"])",
    ] {
        let said = refused(spliced);
        assert!(said.contains("flow.star:4:") || said.contains("flow.star:5:"), "{said}");
        assert!(said.contains("the text of a statement must be a string literal in the call itself"), "{said}");
        assert!(said.contains("pass values as parameters"), "{said}");
    }
    assert!(refused("return db.query(\"delete from t\")").contains("`delete` changes something"));
    assert!(refused("return db.execute(\"begin\")").contains("the connection that the next call gets"));
    assert!(refused("return db.order_by_ids(1)").contains("db has no method order_by_ids (did you mean order_by_id?)"));
    assert!(refused("return db.get(\"/x\")").contains("db has no method get"));
    // A method that is called through a value is checked when it is called.
    paused(async {
        let star = "load(\"@upstreams\", \"db\")\ndef ask(it, sql):\n    return it.query(sql)\ndef flow(req):\n    return ask(db, \"select 1\")\n";
        let it = setup_with(star, DB, |_, _| after(5, "[]"));
        assert_eq!(it.error("/").await.kind, "flow");
        assert!(it.events().is_empty());
    });
}

#[test]
fn arguments_that_do_not_fit_fail_before_anything_is_sent() {
    for wrong in [
        "return db.order_by_id(7)",
        "return db.order_by_id(7, \"a\", 8)",
        "return db.order_by_id(7, id = 8)",
        "return db.order_by_id(7, town = \"a\")",
        "return db.plain(lambda x: x)",
        "return docs.read()",
        "return docs.read(\"a\", depth = 2)",
    ] {
        paused(async {
            let it = setup_with(&flow(wrong), DB, |_, _| after(5, "[]"));
            let error = it.error("/").await;
            assert_eq!(error.kind, "flow", "{wrong}");
            assert!(it.events().is_empty(), "{wrong}");
        });
    }
}

#[test]
fn statuses_and_defaults_are_those_of_every_call() {
    paused(async {
        let body = "a = db.place(1, ok = [409])\nreturn [a.status, a[\"code\"]]";
        let it = setup_with(&flow(body), DB, |_, _| after(5, "{\"code\": \"23505\"}").status(409));
        assert_eq!(it.text("/").await, "[409,\"23505\"]");
        let body = "return [db.plain(1, optional = True), docs.read(\"a\", default = \"none\")]";
        let it = setup_with(&flow(body), DB, |_, _| after(5, "").status(503));
        assert_eq!(it.text("/").await, "[null,\"none\"]");
    });
}
