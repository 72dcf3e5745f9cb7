//! SQL, file and model upstreams: requests that calls send, and calls that are refused before sending.

use crate::common::{after, load, paused, setup_with};
use fanin_upstream::Request;

const DB: &str = r#"
[upstreams.db]
postgres = "postgres://u@127.0.0.1:1/d"
retry = { budget = 1.0, floor = 1000 }
[upstreams.db.statements.order_by_id]
sql = "select * from orders where id = $1 and city = $2"
params = ["id", "city"]
[upstreams.db.statements.plain]
sql = "select $1::int"
[upstreams.db.statements.place]
sql = "insert into orders values ($1)"
params = ["id"]
writes = true
[upstreams.db.statements.products]
sql = "select id, name from products where city = $1 and id = any($2)"
params = ["city", "ids"]
rows = "one"
batch = { key = "ids", match = "id", max_keys = 30 }
[upstreams.db.statements.items]
sql = "select order_id, product from items where order_id = any($1)"
params = ["orders"]
batch = { key = "orders", match = "order_id" }
[upstreams.db.statements.cities]
sql = "select name from cities where country = $1"
params = ["country"]
cache = { ttl = "1m" }
[upstreams.docs]
files = "."
[upstreams.spam]
model = "words"
[models]
repository = "none"
"#;

fn flow(body: &str) -> String {
    format!("load(\"@upstreams\", \"db\", \"docs\", \"spam\")\ndef flow(req):\n    {}\n", body.replace('\n', "\n    "))
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
fn requests_of_statements() {
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
fn query_with_a_pending_argument() {
    let body = "a = db.plain(1)\nb = db.plain(a[0][\"id\"])\nc = docs.read(\"x\")\nreturn [b, c]";
    assert_eq!(sent(body), ["0 GET db/plain [1]", "0 GET docs/read [\"x\"]", "5 GET db/plain [3]"]);
}

#[test]
fn writing_statements_run_in_program_order() {
    let body = "a = db.plain(1)\nb = db.place(2)\nc = db.plain(3)\nreturn [a, b, c]";
    assert_eq!(sent(body), ["0 GET db/plain [1]", "5 POST db/place [2]", "10 GET db/plain [3]"]);
    let body = "a = db.plain(1)\nb = db.execute(\"delete from t\")\nreturn [a, b]";
    assert_eq!(sent(body), ["0 GET db/plain [1]", "5 POST db/execute [\"delete from t\"]"]);
    let body = "a = db.plain(1)\nb = db.place(2, unordered = True)\nreturn [a, b]";
    assert_eq!(sent(body), ["0 GET db/plain [1]", "0 POST db/place [2]"]);
}

#[test]
fn texts_of_statements_must_be_literals() {
    for spliced in [
        "return db.query(\"select \" + req.query[\"x\"])",
        "return db.query(f\"select {req.path}\")",
        "return db.query(\"select %s\" % req.path)",
        "sql = \"select 1\"\nreturn db.query(sql)",
        "return db.query()",
        "return db.execute(*[\"delete from t\"])",
    ] {
        let text = refused(spliced);
        assert!(text.contains("flow.star:4:") || text.contains("flow.star:5:"), "{text}");
        assert!(text.contains("the text of a statement must be a string literal in the call itself"), "{text}");
        assert!(text.contains("pass values as parameters"), "{text}");
    }
    assert!(refused("return db.query(\"delete from t\")").contains("`delete` changes data"));
    assert!(refused("return db.execute(\"begin\")").contains("changes the state of the connection"));
    assert!(refused("return db.order_by_ids(1)").contains("db has no method order_by_ids (did you mean order_by_id?)"));
    assert!(refused("return db.get(\"/x\")").contains("db has no method get"));
    // A method called through a value is checked at run time.
    paused(async {
        let star = "load(\"@upstreams\", \"db\")\ndef ask(it, sql):\n    return it.query(sql)\ndef flow(req):\n    return ask(db, \"select 1\")\n";
        let it = setup_with(star, DB, |_, _| after(5, "[]"));
        assert_eq!(it.error("/").await.kind, "flow");
        assert!(it.events().is_empty());
    });
}

#[test]
fn wrong_arguments_prevent_sending() {
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

/// The statement's keys: its last parameter.
fn keys(request: &Request) -> Vec<String> {
    let params: serde_json::Value = serde_json::from_slice(&request.body).unwrap();
    let keys = params.as_array().and_then(|params| params.last()).and_then(|keys| keys.as_array()).unwrap();
    keys.iter().map(ToString::to_string).collect()
}

/// A table with all products, and two items for each order except the fifth.
fn rows(request: &Request) -> String {
    let row = |key: String| match &*request.path_and_query {
        "/products" => format!(r#"{{"id":{key},"name":"n{key}"}}"#),
        _ if key == "5" => String::new(),
        _ => format!(r#"{{"order_id":{key},"product":"a"}},{{"order_id":{key},"product":"b"}}"#),
    };
    let rows: Vec<String> = keys(request).into_iter().map(row).filter(|row| !row.is_empty()).collect();
    format!("[{}]", rows.join(","))
}

async fn batched(body: &str, expected: &str, events: &[&str]) {
    let it = setup_with(&flow(body), DB, |_, request| after(5, rows(request)));
    assert_eq!(it.text("/").await, expected);
    assert_eq!(it.events(), events);
}

#[test]
fn calls_of_a_batched_statement_are_one_statement() {
    paused(async {
        batched(
            "a = db.products(\"Rome\", [1, 2])\nb = db.products(ids = [3, 2], city = \"Rome\")\nc = db.products(\"Rome\", 4)\nd = db.products(\"Oslo\", [])\nreturn [a, b, c[\"name\"], d]",
            r#"[[{"id":1,"name":"n1"},{"id":2,"name":"n2"}],[{"id":3,"name":"n3"},{"id":2,"name":"n2"}],"n4",[]]"#,
            &[r#"0 GET db/products ["Rome",[1,2,3,4]]"#],
        )
        .await;
        // Calls merge only if their other parameters are equal.
        batched(
            "return [db.products(\"Rome\", [1]), db.products(\"Oslo\", [1])]",
            r#"[[{"id":1,"name":"n1"}],[{"id":1,"name":"n1"}]]"#,
            &[r#"0 GET db/products ["Rome",[1]]"#, r#"0 GET db/products ["Oslo",[1]]"#],
        )
        .await;
        // With many rows per key, the answer for one key is a list, too.
        batched(
            "a = db.items(7)\nb = db.items(5)\nc = db.items([8, 7])\nreturn [a, b, len(c), c[3][\"product\"]]",
            r#"[[{"order_id":7,"product":"a"},{"order_id":7,"product":"b"}],[],4,"b"]"#,
            &["0 GET db/items [[7,5,8]]"],
        )
        .await;
        // The third query's calls merge although each awaited its own second query.
        batched(
            "def one(order):\n    return [item[\"product\"] for item in db.items(order)]\nreturn [one(order) for order in [1, 2, 5]]",
            r#"[["a","b"],["a","b"],[]]"#,
            &["0 GET db/items [[1,2,5]]"],
        )
        .await;
    });
}

#[test]
fn a_key_that_the_database_refuses_fails_only_its_call() {
    paused(async {
        let body = "good = db.items([1, 2])\nbad = db.items(\"x\", ok = [400])\nreturn [len(good), bad.status]";
        let it = setup_with(&flow(body), DB, |_, request| match keys(request).contains(&"\"x\"".to_owned()) {
            true => after(5, r#"{"code":"fanin","message":"parameter 1 is wrong"}"#).status(400),
            false => after(5, rows(request)),
        });
        assert_eq!(it.text("/").await, "[4,400]");
        assert_eq!(it.events().len(), 3, "{:?}", it.events());
        // For a database, a number and a string of the same digits are two keys.
        let it = setup_with(&flow("return [db.items(1), db.items(\"1\")]"), DB, |_, request| after(5, rows(request)));
        it.run("/").await;
        assert_eq!(it.events(), [r#"0 GET db/items [[1,"1"]]"#]);
    });
}

#[test]
fn more_rows_than_one_are_an_error_of_the_call_that_has_them() {
    paused(async {
        let body_of = async |calls: &str| {
            let body = format!("calls = [{calls}]\nreturn [call.error and call.error.message for call in calls]");
            let it = setup_with(&flow(&body), DB, |_, _| after(5, r#"[{"id":1},{"id":2},{"id":2}]"#));
            it.text("/").await
        };
        let two = body_of("db.products(\"Rome\", 1), db.products(\"Rome\", 2, optional = True)").await;
        assert!(two.starts_with("[null,") && two.contains(r#"2 rows for the key \"2\""#), "{two}");
        let stray = body_of("db.products(\"Rome\", 1), db.products(\"Rome\", 3, optional = True)").await;
        assert!(stray.starts_with("[null,") && stray.contains("contains none of the requested keys"), "{stray}");
    });
}

#[test]
fn cached_statements_are_sent_once() {
    paused(async {
        let body = "return [db.cities(\"it\"), db.cities(\"it\"), db.cities(\"no\")]";
        let it = setup_with(&flow(body), DB, |_, _| after(5, "[{\"name\":\"x\"}]"));
        it.text("/").await;
        it.text("/").await;
        assert_eq!(it.events(), ["0 GET db/cities [\"it\"]", "0 GET db/cities [\"no\"]"]);
        // Not the answer cached before the request's own write.
        let body = "db.place(1)\nreturn db.cities(\"it\")";
        let it = setup_with(&flow(body), DB, |_, _| after(5, "[{\"name\":\"x\"}]"));
        it.text("/").await;
        it.text("/").await;
        assert_eq!(it.events().len(), 4);
    });
}

#[test]
fn model_calls_run_in_parallel_and_take_pending_inputs() {
    let body = "a = db.plain(1)\nb = spam.infer({\"x\": [1, None, 2.5]}, outputs = [\"raw\"], version = 3)\n\
                c = spam.infer([a[0][\"id\"], 1.0])\nreturn [b, c]";
    assert_eq!(
        sent(body),
        [
            "0 GET db/plain [1]",
            "0 GET spam/infer [{\"x\":[1,null,2.5]},[\"raw\"],3]",
            "5 GET spam/infer [[3,1.0],null,null]"
        ]
    );
    for (body, expected) in [
        (
            "return spam.infer()",
            "spam.infer takes one argument by position: a dict of the inputs by name, or the only input as a list",
        ),
        ("return spam.infer([1], [2])", "spam.infer takes one argument by position"),
        ("return spam.infer([1], output = \"raw\")", "spam.infer has no argument \"output\""),
        ("return spam.ask([1])", "ask"),
    ] {
        let text = refused(body);
        assert!(text.contains(expected), "{body}: {text}");
    }
    paused(async {
        let body =
            "a = spam.infer([1], optional = True)\nreturn {\"a\": a[\"y\"][0], \"b\": spam.infer([2], default = 7)}";
        let it = setup_with(&flow(body), DB, |_, _| after(5, "").status(503));
        assert_eq!(it.text("/").await, "{\"a\":null,\"b\":7}");
    });
}
