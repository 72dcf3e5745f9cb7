//! Bugs to seed into copies of the examples: what `fanin explore` is measured by, in a test and in a benchmark.

use std::fs;
use std::io;
use std::path::Path;

/// A bug: the file below `examples`, what is replaced by what, and what is wrong with that.
pub type Bug = (&'static str, &'static str, &'static str, &'static str);

const PAGE: &str = "shop/flows/products.star";
const OWNERS: &str = "shop/flows/owners.star";
const JOBS: &str = "vacancies/flows/vacancies.star";
const ORDERS: &str = "orders/flows/orders.star";

/// The bugs.
pub const BUGS: [Bug; 30] = [
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
    (
        JOBS,
        "        ok = [404],\n        returns = VACANCY,\n    )\n    if found.status == 404:\n        abort(404, \"there is no such vacancy\")\n",
        "        returns = VACANCY,\n    )\n",
        "wrong status: 502 for a vacancy that does not exist",
    ),
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

/// Writes the bug's example to a folder, with the bug. Without budgets, which would refuse some bugs before anything runs.
///
/// # Errors
/// Files that cannot be read or written, and an example that does not have what the bug replaces.
pub fn seed(bug: &Bug, examples: &Path, to: &Path) -> io::Result<()> {
    let (file, from, by, what) = bug;
    let missing = || io::Error::other(format!("{file} does not have what is replaced: {what}"));
    let (example, inside) = file.split_once('/').ok_or_else(missing)?;
    copy(&examples.join(example), to)?;
    let path = to.join(inside);
    let source = fs::read_to_string(&path)?;
    if !source.contains(from) {
        return Err(missing());
    }
    fs::write(&path, source.replacen(from, by, 1))?;
    let config = to.join("fanin.toml");
    let text = fs::read_to_string(&config)?;
    let kept: Vec<&str> = text.lines().filter(|line| !line.starts_with("budget = ")).collect();
    fs::write(config, kept.join("\n"))
}

/// Copies a folder with everything in it.
///
/// # Errors
/// What cannot be read or written.
pub fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copy(&entry.path(), &to)?,
            false => _ = fs::copy(entry.path(), to)?,
        }
    }
    Ok(())
}
