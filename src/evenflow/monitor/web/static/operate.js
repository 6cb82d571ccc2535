// Buttons for what can be asked of the engine. They are made from openapi.json, so that none is missing and none is there in vain.

import { writtenAgain } from "./again.js";
import { h, mark, write } from "./dom.js";
import { Flame } from "./flame.js";
import { sentence as marked, spoken, told as shown } from "./told.js";

/** @typedef {import("./model.js").View} View */
/** @typedef {{name: string, about: string, effect: string, again: boolean, schema: any}} Operation */

const WORDS = {
  drain: "Drain…", kill: "Kill…", rebalance: "Rebalance", "add-sites": "Add sites…", "remove-sites": "Remove sites…", pin: "Pin…", repartition: "Repartition…", checkpoint: "Checkpoint",
  savepoint: "Savepoint…", start: "Start…", compare: "Compare…", suspend: "Suspend…", stop: "Stop…", refresh: "Refresh…", replace: "Replace…", state: "State…", sites: "Sites…", profile: "Profile…",
  availability: "Availability…",
};
/** What belongs together, in the order of a bad day. @type {[string, string[]][]} */
const GROUPS = [
  ["Sites", ["sites", "profile", "add-sites", "drain", "remove-sites", "kill"]], ["Load", ["rebalance", "pin", "repartition"]],
  ["State", ["state", "checkpoint", "savepoint", "refresh"]], ["Dataflow", ["start", "compare", "replace", "availability", "suspend", "stop"]],
];
const ADVANCED = new Set(["timeout_s", "run"]);
const SHOWN_MS = 12_000;
const ASK_AGAIN_MS = 400;
const LATE = 50;

export class Operate {
  /** @param {(path: string, body?: any) => Promise<Response>} ask */
  constructor(ask) {
    this.ask = ask;
    /** @type {View|null} */ this.view = null;
    this.buttons = h("div.operate", { role: "group", "aria-label": "Operations" });
    this.element = h("section.card.at-operate", { "aria-label": "Operate", hidden: true }, h("header", {}, h("h2", {}, "Operate")), this.buttons);
    this.toasts = document.body.appendChild(h("div.toast", { role: "status", "aria-live": "polite" }));
    /** @type {Map<number, HTMLElement>} */ this.under = new Map();
    /** Requests of which the end was told, which may be before they are known to go on. @type {Set<number>} */ this.over = new Set();
  }

  /** @param {View} view */
  show(view) {
    this.view = view;
  }

  /** @param {"view"|"operate"} right */
  async allowed(right) {
    const answer = await this.ask("openapi.json");
    if (!answer.ok) return;
    const told = await answer.json();
    const operations = Object.entries(told.paths).filter(([, methods]) => methods.post?.["x-effect"]).map(([path, { post }]) => ({
      name: path.split("/").at(-1) ?? "", about: post.summary, effect: post["x-effect"], again: post["x-again"], schema: post.requestBody.content["application/json"].schema,
    }));
    const allowed = operations.filter((each) => each.effect === "read" || right === "operate");
    const grouped = Map.groupBy(allowed, (each) => GROUPS.find(([, names]) => names.includes(each.name))?.[0] ?? "Besides");
    const all = GROUPS.flatMap(([, names]) => names), place = (each) => all.indexOf(each.name);
    const order = [...GROUPS.map(([name]) => name), "Besides"].filter((name) => grouped.has(name));
    this.buttons.replaceChildren(...order.map((name) => h("fieldset", {}, h("legend", {}, name), ...(grouped.get(name) ?? []).sort((a, b) => place(a) - place(b)).map((each) => this.button(each)))));
    this.element.hidden = false;
  }

  /** @param {Operation} operation */
  button(operation) {
    return h(`button.button${operation.again ? ".grave" : ""}`, { type: "button", title: operation.about.replaceAll("`", ""), "data-operation": operation.name, onclick: () => this.open(operation) }, WORDS[operation.name] ?? operation.name);
  }

  /** @param {Operation} operation */
  open(operation) {
    const { properties, required } = operation.schema, names = Object.keys(properties);
    const fields = names.map((name) => ({ name, about: properties[name], needed: required.includes(name) })).sort((a, b) => Number(ADVANCED.has(a.name)) - Number(ADVANCED.has(b.name)));
    if (!fields.some((field) => !ADVANCED.has(field.name)) && !operation.again) return void this.send(operation, "run" in properties && this.view ? { run: this.view.run } : {});
    const inputs = new Map(fields.map((field) => [field.name, this.input(field)]));
    const wrong = h("p.wrong", { role: "alert" }), view = this.view;
    const go = h(`button.button.first${operation.again ? ".grave" : ""}`, { type: "submit" }, (WORDS[operation.name] ?? operation.name).replace("…", ""));
    const again = operation.again ? writtenAgain(go) : null;
    const label = (field) => h("label", {}, spoken(field.name), inputs.get(field.name) ?? null, h("small", {}, ...marked(field.about.description ?? "")));
    const rest = fields.filter((field) => ADVANCED.has(field.name));
    const form = h(
      "form", { method: "dialog" }, h("h2", {}, (WORDS[operation.name] ?? operation.name).replace("…", "")), h("p.soft", {}, ...marked(operation.about)), ...fields.filter((field) => !ADVANCED.has(field.name)).map(label),
      rest.length ? h("details", {}, h("summary.soft", {}, "More"), ...rest.map(label)) : null, again?.element ?? null, wrong,
      h("div.ends", {}, h("button.button", { type: "button", onclick: () => dialog.close() }, "Cancel"), go),
    );
    const dialog = /** @type {HTMLDialogElement} */ (h("dialog", { "aria-label": operation.name }, form));
    const given = () => Object.fromEntries(fields.map((field) => [field.name, value(field.about, /** @type {any} */ (inputs.get(field.name)))]).filter(([, each]) => each !== undefined));
    const check = () => again?.ask(doneTo(properties, given(), view));
    form.addEventListener("input", check);
    check();
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      go.toggleAttribute("disabled", true);
      const problem = await this.send(operation, given());
      if (problem === null) dialog.close();
      else write(wrong, problem);
      go.toggleAttribute("disabled", false);
      check();
    });
    dialog.addEventListener("close", () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
  }

  /** @param {{name: string, about: any, needed: boolean}} field */
  input(field) {
    const kind = field.about.type, start = field.about.default, view = this.view;
    const choose = (options) => h("select", { name: field.name }, ...(field.needed ? [] : [h("option", { value: "" }, "")]), ...options.map((each) => h("option", { value: each }, String(each))));
    if (field.name === "run" && view) return h("input", { type: "text", name: field.name, required: field.needed, value: view.run });
    if (field.name === "box" && view) return choose(view.boxNames);
    if (field.name === "site" && view) return choose(view.sites.filter((site) => !["dead", "left"].includes(site.role ?? "")).map((site) => site.site));
    if (kind === "boolean") return h("input", { type: "checkbox", name: field.name, checked: start === true });
    if (kind === "integer" || kind === "number") return h("input", { type: "number", name: field.name, min: "0", step: kind === "integer" ? "1" : "any", required: field.needed, value: start ?? null });
    return h("input", { type: "text", name: field.name, required: field.needed, placeholder: kind === "array" ? "separated by commas" : kind === "object" ? "column=value, separated by commas" : null });
  }

  /** Null, or why it was not done. @param {Operation} operation @param {any} given @returns {Promise<string|null>} */
  async send(operation, given) {
    try {
      let answer = await this.ask(operation.name, given), told = await answer.json().catch(() => ({}));
      // What changes something goes on by itself, and lines say how far it is; what is asked in order to be seen is waited for.
      while (answer.status === 202 && operation.effect === "read") {
        await new Promise((go) => setTimeout(go, ASK_AGAIN_MS));
        answer = await this.ask(told.status ?? `requests/${told.request}`);
        told = await answer.json().catch(() => ({}));
      }
      if (!answer.ok) return told.detail ?? `status ${answer.status}`;
      if (answer.status === 200) this.result(operation, told);
      else this.goesOn(operation, told.request);
      return null;
    } catch (error) {
      return `nobody answers: ${error}`;
    }
  }

  /** @param {Operation} operation @param {any} told */
  result(operation, told) {
    if (operation.effect !== "read") return void this.toast(`${operation.name}: ${sentence(told)}`, "good");
    const drawn = operation.name === "profile" ? new Flame(told).element : shown(told), title = (WORDS[operation.name] ?? operation.name).replace("…", "");
    const dialog = /** @type {HTMLDialogElement} */ (h("dialog.wider", { "aria-label": title }, h("form", { method: "dialog" }, h("h2", {}, title), drawn, h("div.ends", {}, h("button.button", {}, "Close")))));
    dialog.addEventListener("close", () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
  }

  /** It takes longer than people wait for an answer: that stands there until its end. @param {Operation} operation @param {number} request */
  goesOn(operation, request) {
    if (this.over.delete(request) || this.under.has(request)) return;
    this.under.set(request, this.toast(`${operation.name}: under way`, null, false));
  }

  /** Lines of operations that are under way, of anybody's. @param {any[]} lines */
  said(lines) {
    for (const line of lines) {
      let toast = this.under.get(line.request);
      if (line.said) {
        if (!toast) this.under.set(line.request, (toast = this.toast("", null, false)));
        write(toast, `${line.operation}: ${line.said}`);
      }
      if (line.over) {
        if (line.problem) toast ??= this.toast("", null, false);
        if (!toast) this.over = new Set([...this.over, line.request].slice(-LATE));
        else {
          write(toast, `${line.operation}: ${line.problem || "done"}`);
          mark(toast, "data-tone", line.problem ? "bad" : "good");
          setTimeout(() => toast?.remove(), SHOWN_MS);
        }
        this.under.delete(line.request);
      }
    }
  }

  /** @param {string} text @param {string|null} tone @param {boolean} [ends] */
  toast(text, tone, ends = true) {
    const toast = this.toasts.appendChild(h("div", { "data-tone": tone }, text));
    if (ends) setTimeout(() => toast.remove(), SHOWN_MS);
    return toast;
  }
}

/** The name of what an operation is done to; "" as long as that is not said. @param {any} properties @param {any} given @param {View|null} view */
export function doneTo(properties, given, view) {
  if ("site" in properties) return given.site === undefined ? "" : `site ${given.site}`;
  if ("count" in properties) return given.count ? String(given.count) : "";
  return given.run && given.run !== view?.run ? given.run : view?.dataflow ?? "";
}

/** What was typed, as the operation takes it; undefined: nothing. @param {any} about @param {HTMLInputElement} input */
export function value(about, input) {
  if (about.type === "boolean") return input.checked || undefined;
  const text = input.value.trim();
  if (!text) return undefined;
  if (about.type === "integer" || about.type === "number") return Number(text);
  const parts = text.split(",").map((each) => each.trim()).filter(Boolean);
  if (about.type === "array") return about.items.type === "integer" ? parts.map(Number) : parts;
  if (about.type === "object") return Object.fromEntries(parts.map((each) => [each.split("=")[0].trim(), each.split("=").slice(1).join("=").trim()]));
  return text;
}

/** @param {any} told */
function sentence(told) {
  const text = Object.entries(told).map(([name, each]) => `${name.replaceAll("_", " ")} ${typeof each === "object" ? JSON.stringify(each) : each}`).join(", ");
  return text.length > 240 ? `${text.slice(0, 240)}…` : text || "done";
}
