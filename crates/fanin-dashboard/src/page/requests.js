// The slowest recent requests, each with its waterfall and its critical path.

class Requests {
  constructor(host) {
    this.host = host;
    this.open = new Set();
    this.shown = new Map();
    this.requests = [];
    this.empty = element("div", { class: "empty" },
      element("p", {}, "No request has been recorded yet. Send one: the slowest of the last requests appear here, with what they waited for."));
    this.list = element("div");
    host.append(this.empty, this.list);
  }

  update(requests) {
    this.requests = requests;
    this.empty.hidden = requests.length > 0;
    const seen = new Set();
    let before = null;
    for (const request of requests) {
      const key = String(request.id);
      seen.add(key);
      if (!this.shown.has(key)) this.shown.set(key, this.make(request, key));
      const node = this.shown.get(key);
      const place = before ? before.nextSibling : this.list.firstChild;
      if (place !== node) this.list.insertBefore(node, place);
      before = node;
    }
    for (const [key, node] of this.shown) {
      if (seen.has(key)) continue;
      // A request that is being read stays until it is closed.
      if (this.open.has(key)) continue;
      node.remove();
      this.shown.delete(key);
    }
  }

  make(request, key) {
    const id = anchor("request", key);
    const body = element("div", { class: "body", id, hidden: true });
    const failed = request.status >= 500;
    const button = element("button", { type: "button", "aria-expanded": "false", "aria-controls": id },
      element("span", { class: "took" }, time(request.duration_us / 1e3)),
      element("span", { class: "what" }, request.route || labelOf({ route: request.target || "", method: request.method || "" }),
        element("span", { class: "sub" }, [request.target, plural((request.calls || []).length, "call", "calls"), request.partial ? "partial" : null].filter(Boolean).join(" · "))),
      element("span", { class: "tag " + (failed ? "is-bad" : request.status >= 400 ? "is-warn" : "is-good") }, String(request.status || "no response")),
      element("span", { class: "faint" }, request.started_unix_us ? clock(request.started_unix_us / 1e3) : ""));
    button.addEventListener("click", () => {
      const opens = button.getAttribute("aria-expanded") !== "true";
      button.setAttribute("aria-expanded", String(opens));
      body.hidden = !opens;
      if (opens) {
        this.open.add(key);
        if (!body.firstChild) body.append(...waterfall(request));
      } else this.open.delete(key);
    });
    return element("article", { class: "request", "aria-label": "Request of " + time(request.duration_us / 1e3) }, element("h3", {}, button), body);
  }
}

const nameOf = (call) => [call.upstream, call.operation].filter(Boolean).join(".");

/** When a call was made, sent and ended, in microseconds since the request came. What is unknown is as late as it can be. */
function times(call, request) {
  const made = call.made_us === null || call.made_us === undefined ? 0 : call.made_us;
  const end = call.ended_us === null || call.ended_us === undefined ? request.duration_us : call.ended_us;
  const sent = call.sent_us === null || call.sent_us === undefined ? null : call.sent_us;
  return { made, sent, end, unfinished: call.ended_us === null || call.ended_us === undefined };
}

function waterfall(request) {
  const calls = request.calls || [];
  if (!calls.length) return [element("p", { class: "way" }, "This request made no calls: it waited for a worker, or its flow computed.")];
  const path = calls.filter((call) => call.critical);
  const nodes = [];
  if (path.length) {
    nodes.push(element("p", { class: "way" }, element("b", {}, "Critical path: "), path.map((call) => {
      const { made, end } = times(call, request);
      return nameOf(call) + " (" + time((end - made) / 1e3) + ")";
    }).join(" → "), ". A shorter call on it makes the request shorter."));
  }
  const total = Math.max(1, request.duration_us || 0, ...calls.map((call) => times(call, request).end));
  const rows = calls.map((call, at) => row(call, at, calls, request, total));
  nodes.push(element("div", { class: "table stacks falls", tabindex: "0", role: "region", "aria-label": "Calls of the request" }, part("table", {},
    element("caption", { class: "hidden" }, "Calls of the request, in the order in which they were made"),
    part("thead", {}, part("tr", {}, ...["Call", "0 to " + time(total / 1e3), "Waited", "Took", "Slack", "Outcome", "Line"].map((head) => part("th", { scope: "col" }, head)))),
    part("tbody", {}, ...rows))));
  nodes.push(element("ul", { class: "keys", "aria-hidden": "true" }, ...[["critical", "on the critical path"], ["runs", "in flight"], ["waits", "waits for its arguments, a batch or a permit"],
    ["slack", "slack: how much longer it may take"], ["failed", "failed"]].map(([kind, text]) => element("li", {}, element("i", { class: kind }), text))));
  return nodes;
}

function row(call, at, calls, request, total) {
  const { made, sent, end, unfinished } = times(call, request);
  const failed = call.outcome && !/^[234]/.test(String(call.outcome)) && !["ok", "hit", "cached"].includes(call.outcome);
  const bar = (kind, from, to) => {
    const made = element("b", { class: kind });
    made.style.left = (from / total) * 100 + "%";
    made.style.width = Math.max(0, ((to - from) / total) * 100) + "%";
    return made;
  };
  const start = sent === null ? made : sent;
  const known = call.effect ? call.effect.slack_us : null;
  const slack = known > 0 && !call.critical ? known : 0;
  const track = element("span", { class: "track", "aria-hidden": "true" },
    start > made ? bar("waits", made, start) : null,
    bar(failed ? "failed" : call.critical ? "critical" : "runs", start, end),
    slack ? bar("slack", end, Math.min(total, end + slack)) : null);
  const cell = (label, value, kind) => part("td", { "data-label": label, class: kind }, value);
  const awaited = (call.awaited || []).map((index) => calls[index] && nameOf(calls[index])).filter(Boolean);
  const about = [awaited.length ? "after " + [...new Set(awaited)].join(", ") : null, call.required === false ? "optional" : null].filter(Boolean);
  return part("tr", {},
    part("th", { scope: "row" }, nameOf(call) || "call " + (at + 1), call.critical ? element("span", { class: "tag" }, "critical") : null,
      call.target ? element("span", { class: "sub target", title: call.target }, call.target) : null,
      about.length ? element("span", { class: "sub" }, about.join(" · ")) : null),
    part("td", { class: "lane" }, track),
    cell("Waited", time((start - made) / 1e3)),
    cell("Took", unfinished ? "not ended" : time((end - start) / 1e3)),
    cell("Slack", call.critical ? "none" : known === null ? NONE : time(known / 1e3)),
    cell("Outcome", call.outcome === null || call.outcome === undefined ? NONE : String(call.outcome), failed ? "bad" : null),
    cell("Line", call.line === null || call.line === undefined ? NONE : String(call.line), "wide"));
}
