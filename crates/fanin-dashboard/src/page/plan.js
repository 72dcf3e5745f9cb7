// The calls of a route in the worst case, round by round, with measured times on them.

class Plan {
  constructor(host, select) {
    Object.assign(this, { host, select, plans: [], upstreams: new Map(), requests: [], drawn: "" });
    select.addEventListener("change", () => this.draw());
    new ResizeObserver(() => this.edges()).observe(host);
  }

  load(plans) {
    const chosen = this.select.value;
    this.plans = plans;
    this.select.replaceChildren(...plans.map((plan) => element("option", { value: plan.route }, plan.route + "  (" + plan.steps.length + ")")));
    // The route with the most calls has the most to see.
    const most = plans.reduce((best, plan) => (!best || plan.steps.length > best.steps.length ? plan : best), null);
    this.select.value = plans.some((plan) => plan.route === chosen) ? chosen : most ? most.route : "";
    this.select.parentNode.hidden = plans.length === 0;
    this.draw();
  }

  show(route) {
    if (!this.plans.some((plan) => plan.route === route)) return;
    this.select.value = route;
    this.draw();
    byId("plans").scrollIntoView();
    this.select.focus({ preventScroll: true });
  }

  /** New measurements. They change the texts of the calls, not their places. */
  update(upstreams, requests) {
    this.upstreams = new Map(upstreams.map((upstream) => [upstream.name, upstream]));
    this.requests = requests;
    for (const node of this.nodes || []) this.measure(node);
  }

  draw() {
    const plan = this.plans.find((one) => one.route === this.select.value);
    this.nodes = [];
    if (!plan) {
      this.host.replaceChildren(element("div", { class: "empty" }, element("p", {}, "No route has been loaded, so there are no calls to draw.")));
      return;
    }
    if (!plan.steps.length) {
      this.host.replaceChildren(element("div", { class: "empty" }, element("p", {}, plan.route + " makes no calls.")));
      return;
    }
    // Calls of one line to one operation in one round are one box.
    const rounds = new Map();
    const boxOf = new Map();
    for (const step of plan.steps) {
      const round = bound(step.round);
      const key = [round, step.upstreams.join("|"), step.method, step.path, step.at.file, step.at.line].join("\n");
      const boxes = rounds.get(round) || new Map();
      rounds.set(round, boxes);
      const box = boxes.get(key) || { steps: [], round };
      boxes.set(key, box);
      box.steps.push(step);
      boxOf.set(step.number, box);
    }
    const ordered = [...rounds].sort(([, a], [, b]) => lowest(a) - lowest(b));
    const columns = ordered.map(([round, boxes]) => element("li", {}, element("h3", {}, "Round " + round),
      element("ul", {}, ...[...boxes.values()].map((box) => this.box(box, plan, boxOf)))));
    this.svg = drawing("svg", { class: "edges", "aria-hidden": "true" });
    const rest = plan.complete ? "at most " : "at least ";
    const summary = "Rounds: " + rest + bound(plan.rounds) + ". Calls: " + rest + bound(plan.calls) + ". Effects: " + (plan.effects ? bound(plan.effects_bound) : "none") + ".";
    this.host.replaceChildren(element("p", { class: "faint" }, summary, " A call starts when all that lead to it have ended; dashed: when their answers were decided on. Times are those of all calls of the upstream in the window."),
      element("div", { class: "plan", tabindex: "0", role: "region", "aria-label": "Calls of " + plan.route }, this.svg, element("ol", { class: "rounds" }, ...columns)));
    this.edges();
  }

  box(box, plan, boxOf) {
    const step = box.steps[0];
    const numbers = box.steps.map((one) => one.number);
    const needs = [...new Set(box.steps.flatMap((one) => one.needs))];
    const after = [...new Set(box.steps.flatMap((one) => one.after))];
    const from = (list) => [...new Set(list.map((number) => boxOf.get(number)).filter((found) => found && found !== box))];
    box.edges = [...from(needs).map((source) => [source, "needs"]), ...from(after).map((source) => [source, "after"])];
    const names = (list) => from(list).map((source) => callName(source.steps[0])).join(" and ");
    const loops = step.loops.map((number) => plan.loops.find((loop) => loop.number === number)).filter(Boolean);
    const notes = [
      step.writes ? "effect" : null,
      step.optional === true ? "optional" : null,
      step.conditional ? "on some paths" : null,
      loops.length ? "for each of " + loops.map((loop) => loop.over).join(" and ") : null,
    ].filter(Boolean);
    // The picture says it by lines; where there is no room for these, and to a screen reader, it is said in words.
    const waits = [names(needs) ? "needs " + names(needs) : null, !step.writes && names(after) ? "after " + names(after) : null].filter(Boolean);
    const measured = element("span", { class: "measured" });
    const recorded = element("span", { class: "recorded" });
    box.node = element("li", { class: ["call", step.optional === true ? "optional" : "", step.writes ? "effect" : ""].filter(Boolean).join(" ") },
      element("b", {}, callName(step)), numbers.length > 1 ? " × " + numbers.length : null,
      step.path ? element("span", { class: "sub" }, step.path) : null,
      measured, recorded,
      element("span", { class: "sub" }, step.at.file + ":" + step.at.line + (notes.length ? " · " + notes.join(" · ") : "")),
      waits.length ? element("span", { class: "sub in-words" }, waits.join(", ")) : null);
    const node = { box, step, plan, measured, recorded };
    this.nodes.push(node);
    this.measure(node);
    return box.node;
  }

  measure({ box, step, plan, measured, recorded }) {
    const found = step.upstreams.map((name) => this.upstreams.get(name)).filter(Boolean);
    const texts = found.map((upstream) => (found.length > 1 ? upstream.name + " " : "") +
      (upstream.latency.p50_ms === null ? "no calls in the window" : "p50 " + time(upstream.latency.p50_ms) + " · p99 " + time(upstream.latency.p99_ms)));
    say(measured, texts.join("; ") || "computed in the process");
    measured.title = "Of all calls of " + step.upstreams.join(" and ");
    box.node.classList.toggle("troubled", found.some((upstream) => upstream.breaker === "open" || (upstream.per_s > 0 && upstream.failed_per_s > upstream.per_s * 0.05)));
    const line = step.at.file + ":" + step.at.line;
    const calls = this.requests.filter((request) => request.route === plan.route).flatMap((request) => (request.calls || []).filter((call) =>
      step.upstreams.includes(call.upstream) && (!call.line || String(call.line) === line || String(call.line) === String(step.at.line))).map((call) => ({ call, ...times(call, request) })));
    const took = calls.filter((one) => one.sent !== null && !one.unfinished).map((one) => one.end - one.sent).sort((a, b) => a - b);
    const critical = calls.filter((one) => one.call.critical).length;
    say(recorded, took.length ? "in the slowest requests " + time(took[Math.floor(took.length / 2)] / 1e3) + ", critical in " + critical + " of " + calls.length : "");
    recorded.classList.toggle("on-path", critical > 0);
    recorded.title = "Median of the calls from this line in the slowest recent requests, and how many of them were on the critical path";
  }

  edges() {
    if (!this.svg || !this.svg.isConnected) return;
    const frame = this.svg.parentNode;
    const base = frame.getBoundingClientRect();
    const paths = [];
    for (const { box } of this.nodes) {
      for (const [source, kind] of box.edges) {
        const from = source.node.getBoundingClientRect(), to = box.node.getBoundingClientRect();
        const x1 = from.right - base.left + frame.scrollLeft, x2 = to.left - base.left + frame.scrollLeft;
        const y1 = from.top + from.height / 2 - base.top, y2 = to.top + to.height / 2 - base.top;
        if (x2 < x1) continue;
        const middle = (x1 + x2) / 2;
        paths.push(drawing("path", { class: kind, d: `M${x1} ${y1}C${middle} ${y1} ${middle} ${y2} ${x2} ${y2}` }));
        paths.push(drawing("path", { class: "head", d: `M${x2 - 6} ${y2 - 4}L${x2} ${y2}L${x2 - 6} ${y2 + 4}` }));
      }
    }
    this.svg.setAttribute("width", frame.scrollWidth);
    this.svg.setAttribute("height", frame.scrollHeight);
    this.svg.replaceChildren(...paths);
  }
}

const callName = (step) => step.upstreams.join("|") + "." + step.method;

/** `2 + 1 for each item of L1` */
function bound({ constant, per_item: loops }) {
  const each = loops.map((one) => one.each + " per item of " + one.loops.map((number) => "L" + number).join(" × "));
  return [...(constant > 0 || !each.length ? [String(constant)] : []), ...each].join(" + ");
}

function lowest(boxes) {
  return Math.min(...[...boxes.values()].map((box) => box.steps[0].round.constant + box.steps[0].round.per_item.length / 10));
}
