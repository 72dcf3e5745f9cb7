//! Bugs seeded into copies of the examples: an exploration finds at least 28 of the 30, and nothing in the examples themselves.

use std::fs;
use std::path::{Path, PathBuf};

use fanin_test::Suite;
use fanin_test::explore::{ExploreOptions, ExploreRun, text};

/// A bug: the file below `examples`, what is replaced by what, and what is wrong with that.
type Bug = (&'static str, &'static str, &'static str, &'static str);

const PAGE: &str = "shop/flows/products.star";
const OWNERS: &str = "shop/flows/owners.star";
const JOBS: &str = "vacancies/flows/vacancies.star";
const ORDERS: &str = "orders/flows/orders.star";

const BUGS: [Bug; 30] = [
    (PAGE, "offers(ids, optional = True)", "offers(ids)", "forgotten optional: the offers"),
    (PAGE, "fields, optional = minor)", "fields)", "forgotten optional: all owners are needed"),
    (OWNERS, "\"review_count\"], True)", "\"review_count\"], False)", "forgotten optional: reviews are needed"),
    (OWNERS, "\"delivery_days\"], False)", "\"delivery_days\"], True)", "a needed service that is optional"),
    (PAGE, "products(offers[\"substitutes\"],", "products(offers[\"substitute\"],", "a key that does not exist"),
    (OWNERS, "for id in ids or []", "for id in ids", "missing guard: no offers"),
    (
        OWNERS,
        "        if answer:\n            merged",
        "        if True:\n            merged",
        "missing guard: no reviews",
    ),
    (OWNERS, "answer.get(id) or {}", "answer.get(id)", "missing guard: a product that a service does not know"),
    (OWNERS, "answer.get(id) or {}", "answer[id]", "missing guard: a key that may be missing"),
    (PAGE, "    if not found:\n        abort(404, \"there is no such product\")\n", "", "missing guard: no product"),
    (PAGE, "abort(404", "abort(500", "wrong status: no such product"),
    (
        JOBS,
        "            optional = True,\n            returns = {\"sugg",
        "            returns = {\"sugg",
        "forgotten optional: suggestions",
    ),
    (
        JOBS,
        "        optional = True,\n        returns = IDS",
        "        returns = IDS",
        "forgotten optional: the employer's others",
    ),
    (JOBS, "        ok = [404],\n", "", "wrong status: 502 for a vacancy that does not exist"),
    (
        JOBS,
        "    if found.status == 404:\n        abort(404, \"there is no such vacancy\")\n",
        "",
        "missing guard: no vacancy",
    ),
    (JOBS, "abort(404", "abort(500", "wrong status: no such vacancy"),
    (JOBS, "abort(404", "abort(410", "wrong status: a vacancy that never existed"),
    (
        JOBS,
        "    return vacancies.get(\"/vacancies\", query = {\"ids\": found[\"ids\"]}, returns = PAGE)",
        "    return [vacancies.get(\"/vacancies\", query = {\"ids\": [id]}, returns = PAGE) for id in found[\"ids\"]]",
        "N+1: a call for each vacancy",
    ),
    (
        JOBS,
        "    page = vacancies.get(\"/vacancies\", query = {\"ids\": found[\"ids\"]}, returns = PAGE)\n",
        "    pages = [vacancies.get(\"/vacancies/{id}\", params = {\"id\": id}) for id in found[\"ids\"]]\n    page = {\"items\": pages}\n",
        "N+1: a call for each vacancy that was found",
    ),
    (
        JOBS,
        "query = {\"text\": req.query[\"text\"]}, returns = IDS)",
        "query = {\"text\": req.query[\"text\"]})",
        "missing guard: any answer of the search",
    ),
    (JOBS, "\"total\": \"int\"}", "\"total\": \"int?\"}", "missing guard: an answer without a total"),
    (
        JOBS,
        "        ok = [404],\n        returns = VACANCY,\n",
        "        ok = [404],\n",
        "missing guard: a vacancy without employer",
    ),
    (
        JOBS,
        "\"suggestions\": other[\"suggestions\"]}",
        "\"suggestions\": other[\"suggestions\"][0]}",
        "missing guard: no suggestion",
    ),
    (ORDERS, "status = 201", "status = 200", "wrong status: placed"),
    (
        ORDERS,
        "[\"email\"])\n    if not customer:\n        abort(404, \"no such customer\")\n    orders",
        "[\"email\"])\n    orders",
        "missing guard: no customer",
    ),
    (
        ORDERS,
        "[\"email\"])\n    if not customer:\n        abort(404, \"no such customer\")\n    return",
        "[\"email\"])\n    return",
        "missing guard: an order of nobody",
    ),
    (
        ORDERS,
        "    return response(status = 201, body = db.place(customer[\"id\"], wanted[\"total\"]))",
        "    placed = db.place(customer[\"id\"], wanted[\"total\"], optional = True)\n    if placed.failed:\n        placed = db.place(customer[\"id\"], wanted[\"total\"])\n    return response(status = 201, body = placed)",
        "effect twice: placed again after a failure",
    ),
    (
        ORDERS,
        "    return response(status = 201,",
        "    db.place(customer[\"id\"], wanted[\"total\"])\n    return response(status = 201,",
        "effect twice: always",
    ),
    (
        ORDERS,
        "    customer = db.customer(wanted[\"email\"])\n",
        "    db.place(0, wanted[\"total\"])\n    customer = db.customer(wanted[\"email\"])\n",
        "an effect above its guard",
    ),
    (
        ORDERS,
        "    items = db.items([order[\"id\"] for order in orders])\n",
        "    lists = [db.items([order[\"id\"]]) for order in orders]\n    items = [item for items in lists for item in items]\n",
        "N+1: a statement for each order",
    ),
];

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples")
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to),
            false => _ = fs::copy(entry.path(), to).unwrap(),
        }
    }
}

/// Budgets would refuse a bug before anything runs.
fn without_budgets(dir: &Path) {
    let file = dir.join("fanin.toml");
    let text = fs::read_to_string(&file).unwrap();
    let kept: Vec<&str> = text.lines().filter(|line| !line.starts_with("budget = ")).collect();
    fs::write(file, kept.join("\n")).unwrap();
}

fn explore(dir: &Path, max_cases: usize) -> Result<ExploreRun, String> {
    let suite = Suite::load(dir).map_err(|error| format!("{error:?}"))?;
    let options = ExploreOptions { max_cases, random_cases: 0, ..ExploreOptions::default() };
    suite.explore(&options).map_err(|error| error.to_string())
}

#[test]
fn at_least_28_of_30_seeded_bugs_are_found() {
    let mut missed = Vec::new();
    for (file, from, to, what) in BUGS {
        let (example, inside) = file.split_once('/').unwrap();
        let dir = tempfile::tempdir().unwrap();
        copy(&examples().join(example), dir.path());
        let path = dir.path().join(inside);
        let source = fs::read_to_string(&path).unwrap();
        assert_eq!(source.matches(from).count().min(1), 1, "{file} has no {from:?}");
        fs::write(&path, source.replacen(from, to, 1)).unwrap();
        without_budgets(dir.path());
        // Each of them shows with one deviation.
        let run = explore(dir.path(), 150).unwrap_or_else(|error| panic!("{what}: {error}"));
        let found: Vec<String> =
            run.explorations.iter().flat_map(|one| &one.findings).map(|one| one.invariant.clone()).collect();
        println!("{what}: {found:?}");
        if found.is_empty() {
            missed.push(format!("{file}: {what}"));
        }
    }
    assert!(missed.len() <= 2, "not found: {missed:#?}");
}

#[test]
fn nothing_is_found_in_the_examples() {
    for example in ["shop", "vacancies", "orders"] {
        let run = explore(&examples().join(example), 400).unwrap();
        println!("{}", text(&run));
        assert_eq!(run.found(), 0, "{}", text(&run));
    }
}
