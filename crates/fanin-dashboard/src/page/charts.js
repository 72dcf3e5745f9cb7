// Charts of the last quarter of an hour: SVG, a cursor by mouse, finger or arrow keys, and the same as a table.

const SPAN_MS = 15 * 60 * 1000;
/** A pause between two points that is longer than so many usual ones is a gap in the line. */
const GAP = 4;
const TOP = 8, BOTTOM = 18, LEFT = 2, RIGHT = 46;

class Chart {
  /**
   * `series`: { name, color, of(point), stacked, filled }. Stacked series come first, the lowest first.
   * `unit` writes a value, `hint` says what the chart means.
   */
  constructor({ id, title, hint, series, unit }) {
    Object.assign(this, { id, title, series, unit, points: [], cursor: null, window: 60 });
    this.values = series.map(() => element("b"));
    const legend = element("ul", { class: "legend" }, ...series.map((one, at) =>
      element("li", {}, element("i", { class: one.color, "aria-hidden": "true" }), one.name + " ", this.values[at])));
    this.at = element("span", { class: "at" });
    this.svg = drawing("svg", {
      role: "slider", tabindex: "0", "aria-label": title + ", by time", "aria-valuemin": "0", "aria-valuemax": "0", "aria-valuenow": "0",
      "aria-describedby": id + "-hint",
    });
    this.rows = element("tbody");
    this.details = element("details", { ontoggle: () => this.fillTable() },
      element("summary", {}, "As a table"),
      element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": title + " as a table" },
        element("table", {},
          element("caption", { class: "hidden" }, title),
          element("thead", {}, element("tr", {}, element("th", { scope: "col" }, "Time"),
            ...series.map((one) => element("th", { scope: "col" }, one.name)))),
          this.rows)));
    this.node = element("figure", { class: "chart", id },
      element("figcaption", {}, element("h3", {}, title), this.at, element("span", { class: "hint", id: id + "-hint" }, hint)),
      legend, this.svg, this.details);
    this.svg.addEventListener("keydown", (event) => this.key(event));
    this.svg.addEventListener("pointermove", (event) => this.point(event));
    this.svg.addEventListener("pointerdown", (event) => this.point(event));
    this.svg.addEventListener("pointerleave", () => this.choose(null));
    this.svg.addEventListener("blur", () => this.choose(null));
    new ResizeObserver(() => this.draw()).observe(this.svg);
  }

  update(points, windowSeconds) {
    const added = points.length && this.points.length ? points[points.length - 1].number - this.points[this.points.length - 1].number : 0;
    this.points = points;
    this.window = windowSeconds;
    if (this.cursor !== null && !points.some((point) => point.number === this.cursor)) this.cursor = null;
    this.draw();
    if (this.details.open && (!this.filled || (this.age = (this.age || 0) + added) >= 10)) this.fillTable();
  }

  key(event) {
    const last = this.points.length - 1;
    const now = this.cursor === null ? last : this.points.findIndex((point) => point.number === this.cursor);
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowDown: -1, ArrowUp: 1, PageDown: -60, PageUp: 60, Home: -Infinity, End: Infinity };
    if (event.key === "Escape") this.choose(null);
    else if (event.key in steps && last >= 0) this.choose(this.points[Math.max(0, Math.min(last, now + steps[event.key]))].number);
    else return;
    event.preventDefault();
  }

  point(event) {
    if (!this.points.length) return;
    const box = this.svg.getBoundingClientRect();
    const at = this.start() + ((event.clientX - box.left - LEFT) / (box.width - LEFT - RIGHT)) * this.span();
    let best = this.points[0];
    for (const point of this.points) if (Math.abs(point.unix_ms - at) < Math.abs(best.unix_ms - at)) best = point;
    this.choose(best.number);
  }

  choose(number) {
    if (this.cursor === number) return;
    this.cursor = number;
    this.draw();
  }

  /** A young server has little past, which fills the chart then. */
  span() {
    const points = this.points;
    const age = points.length ? points[points.length - 1].unix_ms - points[0].unix_ms : 0;
    return Math.min(SPAN_MS, Math.max(120 * 1000, age));
  }

  start() {
    return this.points.length ? this.points[this.points.length - 1].unix_ms - this.span() : 0;
  }

  text(value) {
    return value === null || value === undefined ? NONE : this.unit(value);
  }

  draw() {
    const width = this.svg.clientWidth, height = this.svg.clientHeight;
    if (!width || !this.points.length) return;
    const start = this.start(), span = this.span();
    const usual = Math.max(1000, ...this.points.slice(-10).map((point, at, all) => (at ? point.unix_ms - all[at - 1].unix_ms : 0)));
    const stacks = this.points.map((point) => {
      let below = 0;
      return this.series.map((one) => {
        const value = one.of(point);
        if (!one.stacked) return [0, value];
        below += value || 0;
        return [below - (value || 0), below];
      });
    });
    const most = roundUp(Math.max(0, ...stacks.flat().map(([, top]) => top || 0)));
    const x = (ms) => LEFT + ((ms - start) / span) * (width - LEFT - RIGHT);
    const y = (value) => TOP + (1 - value / most) * (height - TOP - BOTTOM);
    const parts = [];
    const end = start + span;
    parts.push(drawing("rect", { class: "band", x: x(Math.max(start, end - this.window * 1000)), y: TOP, width: x(end) - x(Math.max(start, end - this.window * 1000)), height: height - TOP - BOTTOM }));
    for (const part of [0, 0.5, 1]) {
      parts.push(drawing("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(most * part), y2: y(most * part) }));
      parts.push(drawing("text", { x: width - RIGHT + 5, y: y(most * part) + 4 }, part ? this.unit(most * part) : "0"));
    }
    const tick = span > 360000 ? 300000 : 60000;
    for (let minute = Math.ceil(start / tick) * tick; minute <= end; minute += tick) {
      if (x(minute) < 14 || x(minute) > width - RIGHT - 4) continue;
      parts.push(drawing("text", { x: x(minute), y: height - 4, "text-anchor": "middle" }, clock(minute, false)));
    }
    this.series.forEach((one, at) => {
      const runs = [];
      let last = null;
      this.points.forEach((point, index) => {
        const [low, high] = stacks[index][at];
        if (high === null || high === undefined || point.unix_ms < start) return;
        if (last === null || point.unix_ms - last > GAP * usual) runs.push([]);
        last = point.unix_ms;
        runs[runs.length - 1].push([x(point.unix_ms).toFixed(1), y(low).toFixed(1), y(high).toFixed(1)]);
      });
      // A point without neighbours is a dot: a line of no length with round ends.
      const tops = runs.map((run) => "M" + run.map(([px, , py]) => px + " " + py).join("L") + (run.length === 1 ? "h0.01" : ""));
      if (one.stacked || one.filled) {
        const areas = runs.map((run) => "M" + run.map(([px, , py]) => px + " " + py).join("L") +
          "L" + run.slice().reverse().map(([px, py]) => px + " " + py).join("L") + "Z");
        parts.push(drawing("path", { class: (one.stacked ? "solid " : "fill ") + one.color, d: areas.join("") }));
      }
      if (!one.stacked) parts.push(drawing("path", { class: "stroke " + one.color, d: tops.join("") }));
    });
    const found = this.cursor === null ? -1 : this.points.findIndex((point) => point.number === this.cursor);
    const shown = this.points[found < 0 ? this.points.length - 1 : found];
    if (found >= 0) parts.push(drawing("line", { class: "cursor", x1: x(shown.unix_ms), x2: x(shown.unix_ms), y1: TOP, y2: height - BOTTOM }));
    this.svg.setAttribute("viewBox", "0 0 " + width + " " + height);
    this.svg.replaceChildren(...parts);
    this.series.forEach((one, at) => say(this.values[at], this.text(one.of(shown))));
    say(this.at, found < 0 ? "now" : "at " + clock(shown.unix_ms));
    this.svg.setAttribute("aria-valuemax", String(this.points.length - 1));
    this.svg.setAttribute("aria-valuenow", String(found < 0 ? this.points.length - 1 : found));
    this.svg.setAttribute("aria-valuetext", (found < 0 ? "Now: " : clock(shown.unix_ms) + ": ") +
      this.series.map((one) => one.name + " " + this.text(one.of(shown))).join(", "));
  }

  /** One row for ten seconds, the newest first. Filled only while it is open. */
  fillTable() {
    this.age = 0;
    this.filled = this.details.open;
    if (!this.details.open) return;
    const rows = [];
    for (let at = this.points.length - 1; at >= 0; at -= 10) {
      const point = this.points[at];
      rows.push(element("tr", {}, element("th", { scope: "row" }, clock(point.unix_ms)),
        ...this.series.map((one) => element("td", {}, this.text(one.of(point))))));
    }
    this.rows.replaceChildren(...rows);
  }
}

/** A small line without axes. `values` may have gaps. */
function sparkline(values, label) {
  const shown = values.filter((value) => value !== null);
  if (shown.length < 2) return null;
  const most = Math.max(...shown) || 1;
  let path = "", open = false;
  values.forEach((value, at) => {
    if (value === null) { open = false; return; }
    path += (open ? "L" : "M") + ((at / (values.length - 1)) * 108 + 1).toFixed(1) + " " + (20 - (value / most) * 18).toFixed(1);
    open = true;
  });
  return drawing("svg", { class: "sparkline", viewBox: "0 0 110 22", role: "img", "aria-label": label }, drawing("path", { class: "spark", d: path }));
}
