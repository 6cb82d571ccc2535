// What an operation has told, for people: facts one below the other, lists of objects as tables. What is nested deeper stays JSON, on one line.

import { h } from "./dom.js";

const ROWS = 500;

/** A name of a field as a person says it. @param {string} name */
export const spoken = (name) => name.replace(/_us$/, "").replace(/_s$/, ", seconds").replace(/_ms$/, ", ms").replaceAll("_", " ").replace(/^./, (first) => first.toUpperCase());

/** A sentence in which `names` of commands stand between backquotes. @param {string} text @returns {(Node|string)[]} */
export const sentence = (text) => text.split("`").map((part, i) => (i % 2 ? h("code", {}, part) : part));

/** @param {any} value @returns {HTMLElement} */
export function told(value) {
  const fields = Object.entries(value ?? {}), isTable = (/** @type {any} */ each) => Array.isArray(each) && each.length > 0 && each.every((one) => one && typeof one === "object" && !Array.isArray(one));
  const facts = fields.filter(([, each]) => !isTable(each));
  return h(
    "div.told", {},
    facts.length ? h("dl", {}, ...facts.map(([name, each]) => h("div", {}, h("dt", {}, spoken(name)), h("dd", {}, text(each))))) : null,
    ...fields.filter(([, each]) => isTable(each)).flatMap(([name, each]) => [h("h3", {}, spoken(name)), table(each, spoken(name))]),
    fields.length ? null : h("p.soft", {}, "Nothing to tell."),
  );
}

/** @param {any[]} rows @param {string} label */
function table(rows, label) {
  const columns = [...new Set(rows.flatMap((row) => Object.keys(row)))], shown = rows.slice(0, ROWS);
  const kind = new Map(columns.map((name) => [name, shown.every((row) => row[name] === undefined || row[name] === null || typeof row[name] === "number") ? ".num" : ""]));
  return h(
    "div.scroll", { tabindex: "0", role: "region", "aria-label": label },
    h("table", {}, h("thead", {}, h("tr", {}, ...columns.map((name) => h(`th${kind.get(name)}`, {}, spoken(name))))), h("tbody", {}, ...shown.map((row) => h("tr", {}, ...columns.map((name) => h(`td${kind.get(name)}`, {}, text(row[name]))))))),
    rows.length > ROWS ? h("p.soft", {}, `The first ${ROWS} of ${rows.length}.`) : null,
  );
}

/** @param {any} value */
function text(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (Array.isArray(value) && value.every((each) => each === null || typeof each !== "object")) return value.length ? value.join(", ") : "none";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}
