// Tables whose rows stay while their numbers change.

class Table {
  /**
   * `columns`: { label, hint, cell(row) -> text or node or { text, sub, class, node }, order(row), wide }. The first names the row.
   * `empty` is what to show without rows.
   */
  constructor(host, { caption, columns, key, empty, idOf }) {
    Object.assign(this, { host, columns, key, idOf, rows: new Map(), sortedBy: null, descending: true, data: [] });
    this.heads = columns.map((column, at) => part("th", { scope: "col", title: column.hint },
      column.order ? element("button", { type: "button", onclick: () => this.sort(at) }, column.label) : column.label));
    this.body = part("tbody");
    this.caption = element("caption", {}, caption);
    this.table = element("div", { class: "table stacks", tabindex: "0", role: "region", "aria-label": caption },
      part("table", {}, this.caption, part("thead", {}, part("tr", {}, ...this.heads)), this.body));
    this.empty = element("div", { class: "empty" }, ...empty);
    host.append(this.empty, this.table);
    this.update([]);
  }

  sort(at) {
    if (this.sortedBy === at && !this.descending) this.sortedBy = null;
    else {
      this.descending = this.sortedBy !== at;
      this.sortedBy = at;
    }
    this.heads.forEach((head, index) => {
      if (index === this.sortedBy) head.setAttribute("aria-sort", this.descending ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    this.update(this.data);
  }

  update(data, note) {
    this.data = data;
    this.empty.hidden = data.length > 0;
    this.table.hidden = data.length === 0;
    if (note) say(this.caption, note);
    let sorted = data;
    if (this.sortedBy !== null) {
      const order = this.columns[this.sortedBy].order;
      const value = (row) => { const found = order(row); return found === null || found === undefined ? -Infinity : found; };
      const sign = this.descending ? -1 : 1;
      sorted = [...data].sort((a, b) => (value(a) < value(b) ? -sign : value(a) > value(b) ? sign : 0));
    }
    const seen = new Set();
    let before = null;
    for (const row of sorted) {
      const key = this.key(row);
      seen.add(key);
      let made = this.rows.get(key);
      if (!made) {
        made = this.make(row);
        this.rows.set(key, made);
      }
      this.columns.forEach((column, at) => fill(made.cells[at], column.cell(row)));
      const place = before ? before.nextSibling : this.body.firstChild;
      if (place !== made.line) this.body.insertBefore(made.line, place);
      before = made.line;
    }
    for (const [key, made] of this.rows) {
      if (seen.has(key)) continue;
      made.line.remove();
      this.rows.delete(key);
    }
  }

  make(row) {
    const cells = this.columns.map((column, at) => at === 0
      ? part("th", { scope: "row" })
      : part("td", { "data-label": column.label, class: column.wide ? "wide" : null }));
    return { cells, line: part("tr", { id: this.idOf ? this.idOf(row) : null, tabindex: this.idOf ? "-1" : null }, ...cells) };
  }
}

/** Puts a value into a cell. Nodes replace what is there only if they differ. */
function fill(cell, value) {
  const { text = "", sub = null, kind = "", node = null, mark = null } = value && typeof value === "object" && !(value instanceof Node) ? value : { text: value };
  const key = mark !== null ? mark : text + "\n" + (sub || "") + "\n" + kind;
  if (cell.shown === key) return;
  cell.shown = key;
  const main = node || element("span", { class: kind || null }, text);
  cell.replaceChildren(main, ...(sub ? [element("span", { class: "sub" }, sub)] : []));
}

/** A rate that is quiet when it is zero. */
function quiet(value, kind = "") {
  return value > 0 ? { text: rate(value), kind } : { text: "0", kind: "zero" };
}

/** A value that may be unknown. */
const known = (value, unit) => (value === null || value === undefined ? { text: NONE, kind: "zero" } : unit(value));

function anchor(kind, name) {
  return kind + "-" + name.replace(/[^A-Za-z0-9]+/g, "-");
}

const labelOf = (route) => (route.route ? route.method + " " + route.route : "(no route)");

function routeTable(host, showPlan) {
  return new Table(host, {
    caption: "Routes",
    key: labelOf,
    idOf: (row) => anchor("route", labelOf(row)),
    columns: [
      { label: "Route", order: labelOf, cell: (row) => ({
        mark: labelOf(row),
        node: row.route ? element("button", { type: "button", class: "row-button", title: "Show the calls of this route", onclick: () => showPlan(labelOf(row)) }, labelOf(row))
          : element("span", { title: "Requests that match no route" }, "(no route)"),
      }) },
      { label: "Goodput", hint: "Responses with 2xx or 3xx, within their deadline", order: (row) => row.good_per_s, cell: (row) => quiet(row.good_per_s) },
      { label: "4xx", hint: "Responses with 4xx: errors of clients", order: (row) => row.client_errors_per_s, cell: (row) => quiet(row.client_errors_per_s) },
      { label: "Failed", hint: "Responses with 5xx that are no refusals", order: (row) => row.failed_per_s, cell: (row) => quiet(row.failed_per_s, "bad") },
      { label: "Refused", hint: "Requests refused by admission, by reason", order: (row) => sum(row.refused_per_s), cell: (row) => ({
        ...quiet(sum(row.refused_per_s), "bad"), sub: Object.keys(row.refused_per_s).join(", ") || null }) },
      { label: "Partial", hint: "Responses that lack something optional", order: (row) => row.partial_per_s, cell: (row) => quiet(row.partial_per_s, "warn") },
      { label: "In flight", order: (row) => row.in_flight, cell: (row) => ({ text: count(row.in_flight), kind: row.in_flight ? "" : "zero", sub: row.waiting ? count(row.waiting) + " waiting" : null }) },
      { label: "p50", order: (row) => row.latency.p50_ms, cell: (row) => known(row.latency.p50_ms, time) },
      { label: "p95", order: (row) => row.latency.p95_ms, cell: (row) => known(row.latency.p95_ms, time) },
      { label: "p99", order: (row) => row.latency.p99_ms, cell: (row) => known(row.latency.p99_ms, time) },
      { label: "p99, 15 min", wide: true, cell: (row) => trend(row.series, "p99") },
      { label: "Objective", hint: "The part of requests that were good, and how fast the error budget is used", order: (row) => row.objective && row.objective.burn_rate,
        cell: (row) => {
          const objective = row.objective;
          if (!objective) return { text: "none", kind: "zero" };
          const burn = objective.burn_rate;
          return {
            text: percent(objective.good_ratio), kind: burn > 14.4 ? "bad" : burn > 1 ? "warn" : burn === null ? "zero" : "good",
            sub: percent(objective.ratio) + " < " + time(objective.within_ms) + (burn === null ? "" : ", burns " + digits(burn) + "×"),
          };
        } },
    ],
    empty: [element("p", {}, "No route has been loaded. A route binds a method and a path to a flow:"),
      element("pre", {}, "[[routes]]\npath = \"/products/{id}\"\nflow = \"flows/product.star:page\"")],
  });
}

const sum = (rates) => Object.values(rates).reduce((total, one) => total + one, 0);

/** The cell of a small chart; it changes when new values have come, every ten seconds. */
function trend(series, name) {
  const values = series && series.p99_ms;
  const line = values && sparkline(values, name + " of the last 15 minutes: highest " + time(Math.max(...values.filter((one) => one !== null))));
  return { mark: line ? series.stamp : "", node: line || element("span", { class: "zero" }, NONE) };
}

function upstreamTable(host) {
  return new Table(host, {
    caption: "Upstreams",
    key: (row) => row.name,
    idOf: (row) => anchor("upstream", row.name),
    columns: [
      { label: "Upstream", order: (row) => row.name, cell: (row) => row.name },
      { label: "Calls", order: (row) => row.per_s, cell: (row) => quiet(row.per_s) },
      { label: "Failed", hint: "Calls that ended with 5xx or an error, by outcome; cancelled ones do not count", order: (row) => row.failed_per_s, cell: (row) => ({
        ...quiet(row.failed_per_s, row.failed_per_s > row.per_s * 0.05 ? "bad" : "warn"),
        sub: Object.keys(row.outcomes_per_s).filter((name) => !["2xx", "3xx", "4xx", "cancelled"].includes(name)).join(", ") || null }) },
      { label: "In flight of limit", hint: "Calls in flight, and the limit", order: (row) => row.in_flight, cell: inFlight },
      { label: "Waiting", hint: "Calls that wait for a permit", order: (row) => row.waiting, cell: (row) => ({ text: count(row.waiting), kind: row.waiting ? "warn" : "zero" }) },
      { label: "Breaker", order: (row) => row.breaker, cell: (row) => ({
        mark: row.breaker,
        node: element("span", { class: "tag " + { closed: "is-good", open: "is-bad" }[row.breaker] || "tag is-warn" }, row.breaker) }) },
      { label: "Endpoints", hint: "Endpoints in use, of those known", order: (row) => row.endpoints, cell: (row) => row.endpoints
        ? { text: (row.endpoints - row.ejected) + " of " + row.endpoints, kind: row.ejected ? "bad" : "" }
        : { text: NONE, kind: "zero" } },
      { label: "p50", order: (row) => row.latency.p50_ms, cell: (row) => known(row.latency.p50_ms, time) },
      { label: "p95", order: (row) => row.latency.p95_ms, cell: (row) => known(row.latency.p95_ms, time) },
      { label: "p99", order: (row) => row.latency.p99_ms, cell: (row) => known(row.latency.p99_ms, time) },
      { label: "p99, 15 min", wide: true, cell: (row) => trend(row.series, "p99") },
      { label: "Retries", hint: "Retries sent; refused by the retry budget; hedges", order: (row) => row.retries_per_s, cell: (row) => ({
        ...quiet(row.retries_per_s, "warn"),
        sub: [row.retries_denied_per_s ? "budget refused " + rate(row.retries_denied_per_s) : null,
          row.hedges_per_s ? "hedges " + rate(row.hedges_per_s) : null].filter(Boolean).join(", ") || null }) },
    ],
    empty: [element("p", {}, "This configuration has no upstream. A flow calls what is named here:"),
      element("pre", {}, "[upstreams.catalog]\nurl = \"http://catalog.internal:8080\"\ntimeout = \"200ms\"")],
  });
}

function inFlight(row) {
  if (row.limit === null) return { text: count(row.in_flight), sub: "no limit" };
  const full = row.in_flight >= row.limit;
  const bar = element("i", { class: full ? "full" : null });
  bar.style.width = Math.min(100, (row.in_flight / Math.max(1, row.limit)) * 100) + "%";
  return {
    mark: row.in_flight + "/" + row.limit,
    node: element("span", { class: full && row.waiting ? "warn" : null }, count(row.in_flight) + " of " + count(row.limit),
      element("span", { class: "gauge", "aria-hidden": "true" }, bar)),
  };
}

function cacheTable(host) {
  return new Table(host, {
    caption: "Operations",
    key: (row) => row.upstream + "." + row.operation,
    columns: [
      { label: "Operation", order: (row) => row.upstream + "." + row.operation, cell: (row) => row.upstream + "." + row.operation },
      { label: "Calls", order: (row) => row.calls_per_s, cell: (row) => quiet(row.calls_per_s) },
      { label: "Hit ratio", hint: "The part of lookups that the cache answered, stale answers included", order: (row) => row.hit_ratio, cell: (row) => row.lookups_per_s > 0
        ? { text: percent(row.hit_ratio), sub: "of " + rate(row.lookups_per_s) } : { text: NONE, kind: "zero" } },
      { label: "Stale", hint: "Answered with a stale answer during a refresh, or because the upstream failed", order: (row) => row.stale_per_s, cell: (row) => quiet(row.stale_per_s, "warn") },
      { label: "Size", order: (row) => row.bytes, cell: (row) => known(row.bytes, size) },
      { label: "Entries", order: (row) => row.entries, cell: (row) => known(row.entries, count) },
      { label: "Joined", hint: "Calls that joined an identical one in flight", order: (row) => row.joined_per_s, cell: (row) => quiet(row.joined_per_s) },
      { label: "Keys a batch", hint: "Keys in one request of the batch, on average", order: (row) => row.keys_per_batch, cell: (row) => known(row.keys_per_batch, digits) },
    ],
    empty: [element("p", {}, "No operation merges, shares or caches its calls. This one would keep answers for 30 seconds, and ask for up to 100 products at once:"),
      element("pre", {}, "[upstreams.catalog.operations.products]\npath = \"/products\"\nparams = { ids = \"list\" }\nbatch = { key = \"ids\", max_keys = 100 }\ncache = { ttl = \"30s\" }")],
  });
}

function modelTable(host) {
  return new Table(host, {
    caption: "Models",
    key: (row) => row.model + " " + row.version,
    idOf: (row) => anchor("model", row.model + " " + row.version),
    columns: [
      { label: "Model", order: (row) => row.model, cell: (row) => row.model + " " + row.version },
      { label: "Answers", order: (row) => row.answers_per_s, cell: (row) => quiet(row.answers_per_s) },
      { label: "Failed", order: (row) => row.failures_per_s, cell: (row) => quiet(row.failures_per_s, "bad") },
      { label: "Rows", order: (row) => row.rows_per_s, cell: (row) => quiet(row.rows_per_s) },
      { label: "Rows an execution", order: (row) => row.rows_per_execution, cell: (row) => known(row.rows_per_execution, digits) },
      { label: "Threads busy", hint: "Threads of the compute pool that compute it, on average", order: (row) => row.busy_threads, cell: (row) => digits(row.busy_threads) },
      { label: "Queue", hint: "How long a request waited for a thread, on average", order: (row) => row.queue_ms, cell: (row) => known(row.queue_ms, time) },
      { label: "Compute", hint: "How long an execution took, on average", order: (row) => row.compute_ms, cell: (row) => known(row.compute_ms, time) },
      { label: "Memory", order: (row) => row.memory_bytes, cell: (row) => size(row.memory_bytes) },
    ],
    empty: [element("p", {}, "No model is loaded. Fanin computes models of a folder in its own process:"),
      element("pre", {}, "[models]\nrepository = \"models\"")],
  });
}
