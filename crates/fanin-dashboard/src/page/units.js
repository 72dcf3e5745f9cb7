// Elements, and numbers with their units.

const NONE = "–";

/** An element with attributes and children. Text is never parsed as HTML. */
function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "class") made.className = value;
    else if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

/** The roles of a table's parts. They are said because a table that is laid out as cards is no table to some browsers. */
const ROLES = { table: "table", thead: "rowgroup", tbody: "rowgroup", tr: "row", td: "cell" };

/** A part of a table. */
function part(name, attributes = {}, ...children) {
  const role = name === "th" ? (attributes.scope === "row" ? "rowheader" : "columnheader") : ROLES[name];
  return element(name, { role, ...attributes }, ...children);
}

function drawing(name, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

const byId = (id) => document.getElementById(id);

/** Changes a text only if it is another one, so that a reader's place and selection stay. */
function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function digits(value) {
  if (value === 0) return "0";
  if (value < 0.01) return "<0.01";
  return value.toFixed(value < 9.995 ? 2 : value < 99.95 ? 1 : 0);
}

function count(value) {
  if (value >= 999950) return digits(value / 1e6) + " M";
  if (value >= 9999.5) return digits(value / 1e3) + " k";
  return Number.isInteger(value) ? String(value) : digits(value);
}

const rate = (value) => count(value) + "/s";

function time(ms) {
  if (ms === null || ms === undefined) return NONE;
  if (ms >= 9999.5) return digits(ms / 1e3) + " s";
  return ms < 0.995 ? Math.round(ms * 1000) + " µs" : digits(ms) + " ms";
}

function size(bytes) {
  if (bytes === null || bytes === undefined) return NONE;
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  for (; bytes >= 1024 && at < units.length - 1; at += 1) bytes /= 1024;
  return (at ? digits(bytes) : bytes) + " " + units[at];
}

function percent(ratio) {
  if (ratio === null || ratio === undefined) return NONE;
  const value = ratio * 100;
  // Never rounded up to all of them.
  const shown = value > 99 && value < 100 ? Math.floor(value * 100) / 100 : Math.round(value * 10) / 10;
  return shown + " %";
}

function period(seconds) {
  const whole = Math.round(seconds);
  if (whole < 120) return whole + " s";
  if (whole < 7200) return Math.floor(whole / 60) + " min";
  if (whole < 172800) return Math.floor(whole / 3600) + " h " + Math.floor((whole / 60) % 60) + " min";
  return Math.floor(whole / 86400) + " d " + Math.floor((whole / 3600) % 24) + " h";
}

const two = (number) => String(number).padStart(2, "0");

/** The time of day where the reader is. */
function clock(unixMs, seconds = true) {
  const date = new Date(unixMs);
  const minutes = two(date.getHours()) + ":" + two(date.getMinutes());
  return seconds ? minutes + ":" + two(date.getSeconds()) : minutes;
}

function plural(number, one, many) {
  return count(number) + " " + (number === 1 ? one : many);
}

/** A bound of an axis that is easy to read: 1, 2 or 5 with zeros. */
function roundUp(value) {
  if (value <= 0) return 1;
  const scale = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * scale).find((step) => step >= value * 0.999);
}
