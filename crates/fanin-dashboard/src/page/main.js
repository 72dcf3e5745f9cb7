// Asks for data once a second, and shows it.

const EVERY_MS = 1000;
const SLOW_EVERY = 5;
const MOST_POINTS = 900;
const TOKEN = "fanin-admin-token";

const reasons = ["queueing", "memory", "unsent", "server-limit", "route-limit", "priority", "deadline"];

const charts = [
  new Chart({
    id: "chart-progress", title: "Requests in progress", hint: "request-seconds per second: how many requests are in progress on average",
    unit: count, series: [
      { name: "in progress", color: "c0", filled: true, of: (point) => point.request_seconds_per_s },
      { name: "waiting", color: "c2", of: (point) => point.waiting },
    ],
  }),
  new Chart({
    id: "chart-responses", title: "Responses", hint: "goodput (2xx and 3xx in time), and what was not good; stacked", unit: rate, series: [
      { name: "goodput", color: "c1", stacked: true, of: (point) => point.good_per_s },
      { name: "4xx", color: "cw", stacked: true, of: (point) => point.client_errors_per_s },
      { name: "refused", color: "c2", stacked: true, of: (point) => sum(point.refused_per_s) },
      { name: "failed", color: "c3", stacked: true, of: (point) => point.failed_per_s },
    ],
  }),
  new Chart({
    id: "chart-latency", title: "Time of requests", hint: "from a request's head to its response, all routes", unit: time, series: [
      { name: "p50", color: "c50", of: (point) => point.latency.p50_ms },
      { name: "p95", color: "c95", of: (point) => point.latency.p95_ms },
      { name: "p99", color: "c99", of: (point) => point.latency.p99_ms },
    ],
  }),
  new Chart({
    id: "chart-refusals", title: "Refusals by reason", hint: "requests that admission refused at once, to keep the others fast", unit: rate, series: [
      { name: "worker busy", color: "c3", stacked: true, of: (point) => point.refused_per_s.queueing || 0 },
      { name: "limits", color: "c2", stacked: true, of: (point) => (point.refused_per_s["server-limit"] || 0) + (point.refused_per_s["route-limit"] || 0) },
      { name: "memory", color: "c99", stacked: true, of: (point) => (point.refused_per_s.memory || 0) + (point.refused_per_s.unsent || 0) },
      { name: "deadline, priority", color: "c50", stacked: true, of: (point) => (point.refused_per_s.deadline || 0) + (point.refused_per_s.priority || 0) },
    ],
  }),
];
byId("charts").append(...charts.map((chart) => chart.node));

const plan = new Plan(byId("plan"), byId("plan-route"));
const tables = {
  routes: routeTable(byId("route-table"), (route) => plan.show(route)),
  upstreams: upstreamTable(byId("upstream-table")),
  caches: cacheTable(byId("cache-table")),
  models: modelTable(byId("model-table")),
};
const requests = new Requests(byId("request-list"));

const state = { points: [], newest: 0, window: 60, paused: false, generation: null, started: null, routeSeries: new Map(), upstreamSeries: new Map(), round: 0, last: null, failures: 0 };

/** The token may be anything that a file holds; what a header cannot carry is wrong anyway. */
async function ask(path) {
  const token = sessionStorage.getItem(TOKEN);
  const headers = token ? { authorization: "Bearer " + token } : {};
  const answer = await fetch(path, { headers, cache: "no-store", credentials: "omit", signal: AbortSignal.timeout(10000) });
  if (answer.status === 401) throw new NeedsToken();
  return answer;
}

class NeedsToken extends Error {}

async function round() {
  const series = state.round % 10 === 0;
  const answer = await ask("/dashboard/data?since=" + state.newest + "&window=" + state.window + (series ? "&series=1" : ""));
  if (!answer.ok) throw new Error("status " + answer.status);
  const data = await answer.json();
  // Another start of the server has another past. Its readings are a second or a few old.
  const started = data.now_unix_ms - data.uptime_s * 1000;
  if (state.started !== null && Math.abs(started - state.started) > 15000) {
    Object.assign(state, { points: [], newest: 0, round: 0, generation: null, started: null });
    return;
  }
  state.started = started;
  state.newest = data.newest;
  state.points = [...state.points, ...data.points].slice(-MOST_POINTS);
  if (series) keepSeries(data);
  state.round += 1;
  show(data);
  if (data.generation !== state.generation) {
    const plans = await ask("/dashboard/plans");
    if (plans.ok) {
      plan.load(await plans.json());
      state.generation = data.generation;
    }
  }
  for (const id of ["requests", "requests-link", "requests-key"]) byId(id).hidden = !data.records_requests;
  if (data.records_requests && state.round % SLOW_EVERY === 1) {
    const slowest = await ask("/requests?slowest=20");
    if (slowest.ok) requests.update((await slowest.json()).requests || []);
  }
  plan.update(data.upstreams, requests.requests);
}

function keepSeries(data) {
  const stamp = String(data.newest);
  const keep = (rows, key) => new Map((rows || []).map((row) => [key(row), { ...row, stamp }]));
  state.routeSeries = keep(data.route_series, labelOf);
  state.upstreamSeries = keep(data.upstream_series, (row) => row.name);
}

function show(data) {
  state.last = data;
  const over = " over the last " + period(Math.min(data.covers_s, data.window_s)) + (data.left_out ? "; some rows are left out, because there are too many" : "");
  for (const chart of charts) chart.update(state.points, state.window);
  tables.routes.update(data.routes.map((row) => ({ ...row, series: state.routeSeries.get(labelOf(row)) })), "Rates and latencies" + over + ". A route's name shows its calls.");
  tables.upstreams.update(data.upstreams.map((row) => ({ ...row, series: state.upstreamSeries.get(row.name) })), "Rates and latencies" + over);
  tables.caches.update(data.caches, "Rates" + over);
  tables.models.update(data.models, "Rates" + over);
  say(byId("version"), data.version + ", configuration " + data.generation);
  showProblems(data);
  showFacts(data);
}

function showProblems(data) {
  const list = byId("problem-list");
  const key = JSON.stringify(data.problems);
  byId("no-problems").hidden = data.problems.length > 0;
  const alarms = data.problems.filter((problem) => problem.severity === "alarm").length;
  const number = data.problems.length;
  const pill = byId("state");
  const text = data.draining ? "Draining" : number ? plural(number, "problem", "problems") : "All is well";
  say(pill, text);
  pill.className = "state " + (alarms ? "is-bad" : number || data.draining ? "is-warn" : "is-good");
  document.title = (number ? "(" + number + ") " : "") + "Fanin";
  if (list.shown === key) return;
  list.shown = key;
  list.hidden = number === 0;
  list.replaceChildren(...data.problems.map((problem) => element("li", { class: problem.severity },
    element("span", { class: "hidden" }, problem.severity + ": "),
    problem.kind === "server" ? element("b", {}, problem.name) : element("a", { href: "#" + anchor(problem.kind, problem.name) }, problem.name),
    ": " + problem.text)));
}

function showFacts(data) {
  const server = data.server;
  const last = state.points[state.points.length - 1];
  const facts = [
    ["in flight", count(server.in_flight)],
    ["waiting", count(server.waiting)],
    ["in run queues", count(server.queued)],
    ["goodput", last ? rate(last.good_per_s) : NONE],
    ["connections", count(server.connections)],
    ["workers", count(server.workers)],
    ["memory", server.memory_budget_bytes ? size(server.memory_used_bytes) + " of " + size(server.memory_budget_bytes) : size(server.memory_used_bytes)],
    ["up for", period(data.uptime_s)],
  ];
  const list = byId("facts");
  if (!list.firstChild) list.append(...facts.map(([name]) => element("div", {}, element("dt", {}, name), element("dd"))));
  facts.forEach(([, value], at) => say(list.children[at].lastChild, value));
}

function lost(error) {
  state.failures += 1;
  const since = state.last ? " What you see is from " + clock(state.last.now_unix_ms) + "." : "";
  const node = byId("lost");
  // One lost answer is no news.
  if (state.failures < 3 && state.last) return;
  say(node, "The server does not answer (" + (error.message || error.name) + ")." + since + " Trying again.");
  node.hidden = false;
  say(byId("state"), "No answer");
  byId("state").className = "state is-bad";
}

function needsToken() {
  const given = sessionStorage.getItem(TOKEN) !== null;
  sessionStorage.removeItem(TOKEN);
  byId("content").hidden = true;
  byId("token-wrong").hidden = !given;
  byId("forget").hidden = true;
  say(byId("state"), "Token needed");
  byId("state").className = "state is-warn";
  if (byId("token").hidden || given) {
    byId("token").hidden = false;
    byId("token-text").focus();
  }
}

async function run() {
  for (;;) {
    const waits = !byId("token").hidden && sessionStorage.getItem(TOKEN) === null;
    if (!state.paused && !document.hidden && !waits) {
      try {
        await round();
        state.failures = 0;
        byId("lost").hidden = true;
        byId("token").hidden = true;
        byId("content").hidden = false;
        byId("forget").hidden = sessionStorage.getItem(TOKEN) === null;
      } catch (error) {
        if (error instanceof NeedsToken) needsToken();
        else lost(error);
      }
    }
    await new Promise((done) => { wake = done; setTimeout(done, EVERY_MS); });
  }
}

let wake = () => {};

byId("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = byId("token-text").value.trim();
  byId("token-text").value = "";
  // A header carries these characters only.
  if (!/^[\x21-\x7e]+$/.test(text)) { byId("token-wrong").hidden = false; return; }
  sessionStorage.setItem(TOKEN, text);
  wake();
});
byId("forget").addEventListener("click", () => { sessionStorage.removeItem(TOKEN); location.reload(); });

function pause(paused) {
  state.paused = paused;
  byId("pause").setAttribute("aria-pressed", String(paused));
  if (!paused) wake();
}
byId("pause").addEventListener("click", () => pause(!state.paused));

for (const input of document.querySelectorAll("input[name=window]")) {
  input.addEventListener("change", () => { state.window = Number(input.value); wake(); });
}

function go(id) {
  byId(id).focus({ preventScroll: true });
  byId(id).scrollIntoView();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input[type=password], select")) return;
  const windows = document.querySelectorAll("input[name=window]");
  const sections = { r: "routes", u: "upstreams", s: "requests", c: "plans" };
  if (event.key >= "1" && event.key <= "4") windows[Number(event.key) - 1].click();
  else if (event.key === "p") pause(!state.paused);
  else if (event.key in sections && !byId(sections[event.key]).hidden) go(sections[event.key]);
  else return;
  event.preventDefault();
});

// A link to a row marks it, and moves the focus there.
window.addEventListener("hashchange", () => {
  document.querySelectorAll(".marked").forEach((node) => node.classList.remove("marked"));
  const node = document.getElementById(location.hash.slice(1));
  if (node && node.tagName === "TR") { node.classList.add("marked"); node.focus({ preventScroll: true }); }
});
document.addEventListener("visibilitychange", () => { if (!document.hidden) wake(); });

run();
