//! Keyed statements merge, over a real PostgreSQL.

mod common;

use std::process::Command;

use common::Serving;
use fanin_testbed::Server;

const TABLES: &str = "
create table orders (id int primary key, customer int, placed timestamptz default '2024-01-01');
create table items (order_id int, product uuid, price numeric(10, 2));
create table products (id uuid primary key, name text);
insert into orders select n, n % 3 from generate_series(1, 9) n;
insert into products select ('00000000-0000-0000-0000-00000000000' || n)::uuid, 'Product ' || n from generate_series(1, 4) n;
insert into items select o, ('00000000-0000-0000-0000-00000000000' || n)::uuid, n + 0.50
  from generate_series(1, 9) o, generate_series(1, 3) n where o <> 4 and n <= o;
";

const TOML: &str = r#"
[server]
listen = "127.0.0.1:0"
admin = "127.0.0.1:0"
workers = 1

[upstreams.db]
postgres = "DATABASE"
limit = 4
connect_timeout = "20s"
timeout = "20s"
retry = { budget = 1.0, floor = 1000 }

[upstreams.db.statements.orders]
sql = "select id, placed from orders where customer = $1 order by id"

# Many rows for a key.
[upstreams.db.statements.items]
sql = "select order_id, product, price from items where order_id = any($1) order by product"
params = ["orders"]
batch = { key = "orders", match = "order_id", linger = "100ms" }

# One row for a key.
[upstreams.db.statements.products]
sql = "select id, name from products where id = any($1)"
params = ["ids"]
rows = "one"
batch = { key = "ids", match = "id", max_keys = 50, linger = "100ms" }

# The same, and each row is kept.
[upstreams.db.statements.kept]
sql = "select id, name from products where id = any($1)"
params = ["ids"]
rows = "one"
batch = { key = "ids", match = "id", max_keys = 50, linger = "100ms" }
cache = { ttl = "1h", negative = "1h" }

[[routes]]
path = "/kept"
flow = "flows.star:kept"
timeout = "20s"
[[routes]]
path = "/customers/{id}"
flow = "flows.star:customer"
timeout = "20s"
[[routes]]
path = "/products"
flow = "flows.star:products"
timeout = "20s"
"#;

const FLOWS: &str = r#"
load("@upstreams", "db")

# Written as if each order and each item asked for itself.
def item(item):
    return {"price": item["price"], "name": db.products(item["product"])["name"]}

def order(order):
    return {"id": order["id"], "items": [item(one) for one in db.items(order["id"])]}

def customer(req):
    return [order(one) for one in db.orders(int(req.params["id"]))]

def kept(req):
    return [db.kept("00000000-0000-0000-0000-00000000000" + id) for id in req.query["ids"].split(",")]

def products(req):
    ids = req.query["ids"].split(",")
    asked = [db.products(id, ok = [400]) for id in ids]
    return [[one.status, one.error and one.error.message, one] for one in asked]
"#;

fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").map_or("", |(_, body)| body)
}

/// A counter of the admin page.
fn counter(metrics: &str, name: &str) -> f64 {
    let line = metrics.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.trim().parse().ok()).unwrap_or(0.0)
}

#[test]
fn one_statement_a_round_whatever_asks() {
    let database = Server::postgres();
    let filled = Command::new("psql").args([&database.url, "-qX", "-v", "ON_ERROR_STOP=1", "-c", TABLES]).status();
    assert!(filled.expect("psql is installed with PostgreSQL: .ci/setup postgres").success());
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::write(dir.path().join("fanin.toml"), TOML.replace("DATABASE", &database.url)).expect("written");
    std::fs::write(dir.path().join("flows.star"), FLOWS).expect("written");

    let mut serving = Serving::unnamed(dir.path());
    let line = serving.logged("serving");
    let address = |key: &str| {
        let rest = line.split(&format!("{key}=\"")).nth(1).and_then(|rest| rest.split('"').next());
        rest.unwrap_or_else(|| panic!("no {key} in {line}")).to_owned()
    };
    let admin = address("admin");
    serving.listen = address("listen");

    let answer = serving.get("/customers/1");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let item = |n: u32| format!(r#"{{"price":{n}.50,"name":"Product {n}"}}"#);
    let expected = format!(
        r#"[{{"id":1,"items":[{}]}},{{"id":4,"items":[]}},{{"id":7,"items":[{},{},{}]}}]"#,
        item(1),
        item(1),
        item(2),
        item(3)
    );
    assert_eq!(body(&answer), expected);

    let metrics = |serving: &mut Serving| {
        let listen = std::mem::replace(&mut serving.listen, admin.clone());
        let metrics = serving.get("/metrics");
        serving.listen = listen;
        metrics
    };
    let all = metrics(&mut serving);
    let of = |name: &str, operation: &str| format!("{name}{{upstream=\"db\",operation=\"{operation}\"}}");
    // Three orders' items and four items' products: a statement each.
    assert_eq!(counter(&all, "fanin_upstream_sent_total{upstream=\"db\"}"), 3.0, "{all}");
    assert_eq!(counter(&all, &of("fanin_batch_calls_sum", "items")), 3.0);
    assert_eq!(counter(&all, &of("fanin_batch_calls_sum", "products")), 4.0);
    assert_eq!(counter(&all, &of("fanin_batch_keys_sum", "products")), 3.0);

    // What is no uuid fails the call that asked for it, and no other.
    let known = "00000000-0000-0000-0000-000000000002";
    let answer = serving.get(&format!("/products?ids={known},nonsense"));
    assert!(
        body(&answer).starts_with(&format!(r#"[[200,null,{{"id":"{known}","name":"Product 2"}}],[400,"#)),
        "{answer}"
    );
    assert!(answer.contains("invalid input syntax for type uuid"), "{answer}");
    // The database takes it for the same key, and nobody here can tell: an error, not a row that is said to be missing.
    let answer = serving.get(&format!("/products?ids={}", known.replace("-0000-", "0000")));
    assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
    serving.logged("contains none of the requested keys");
    // A row that is kept is not asked for again, and neither is one that is not there.
    let row = |n: u32, name: &str| format!(r#"{{"id":"00000000-0000-0000-0000-00000000000{n}","name":"{name}"}}"#);
    let sent = |serving: &mut Serving| counter(&metrics(serving), "fanin_upstream_sent_total{upstream=\"db\"}");
    let before = sent(&mut serving);
    let answer = serving.get("/kept?ids=1,9");
    assert_eq!(body(&answer), format!("[{},null]", row(1, "Product 1")));
    let renamed = Command::new("psql")
        .args([&database.url, "-qX", "-v", "ON_ERROR_STOP=1", "-c", "update products set name = 'new'"])
        .status();
    assert!(renamed.expect("psql is there").success());
    let answer = serving.get("/kept?ids=1,9");
    assert_eq!(body(&answer), format!("[{},null]", row(1, "Product 1")));
    assert_eq!(sent(&mut serving) - before, 1.0, "both were kept");
    let answer = serving.get("/kept?ids=9,1,2");
    assert_eq!(body(&answer), format!("[null,{},{}]", row(1, "Product 1"), row(2, "new")));
    assert_eq!(sent(&mut serving) - before, 2.0, "one statement for the one that was not");
    let keys = of("fanin_batch_keys_sum", "kept");
    assert_eq!(counter(&metrics(&mut serving), &keys), 3.0);
    // Keys that there is nothing for.
    let answer = serving.get(&format!("/products?ids={}", known.replace('2', "9")));
    assert!(body(&answer).ends_with(",null]]"), "{answer}");
}

#[test]
fn mysql_takes_keys_as_json() {
    let database = Server::mariadb();
    let dir = tempfile::tempdir().expect("a folder");
    let toml = r#"
[server]
listen = "127.0.0.1:0"
admin = "off"
workers = 1
[upstreams.db]
mysql = "DATABASE"
timeout = "20s"
connect_timeout = "20s"
[upstreams.db.statements.items]
sql = """select n.id as order_id, concat('product ', n.id) as product
  from json_table(?, '$[*]' columns (id int path '$')) n where n.id <> 2"""
params = ["orders"]
batch = { key = "orders", match = "order_id" }
[[routes]]
path = "/"
flow = "flows.star:all"
timeout = "20s"
"#;
    let flows = r#"
load("@upstreams", "db")

def all(req):
    return [[db.items(order) for order in [1, 2, 3]], db.query_one("select count(*) as n from information_schema.tables where table_name = ?", "tables")]
"#;
    std::fs::write(dir.path().join("fanin.toml"), toml.replace("DATABASE", &database.url)).expect("written");
    std::fs::write(dir.path().join("flows.star"), flows).expect("written");
    let serving = Serving::start(dir.path());
    let expected = r#"[[[{"order_id":1,"product":"product 1"}],[],[{"order_id":3,"product":"product 3"}]],{"n":1}]"#;
    assert_eq!(body(&serving.get("/")), expected);
}
