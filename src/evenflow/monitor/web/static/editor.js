// The editor of one dataflow. The document is the JSON that is saved; the server judges it at every change, and makes nothing of it by itself.

import { h, mark, write } from "./dom.js";
import { Canvas } from "./editor_canvas.js";
import { Draft } from "./editor_draft.js";
import { Drawer } from "./editor_drawer.js";
import { Panel } from "./editor_panel.js";

const CHECK_MS = 150;
const page = /** @type {HTMLElement} */ (document.getElementById("page")), aloud = /** @type {HTMLElement} */ (document.getElementById("said"));
let token = new URLSearchParams(location.hash.slice(1)).get("token") ?? "";

/** What the server answers. Throws an Error with its sentence. @param {string} name @param {any} [body] */
async function ask(name, body) {
  const headers = { Authorization: `Bearer ${token}` };
  const answer = await fetch(`api/v1/editor/${name}`, body === undefined ? { headers } : { method: "POST", headers: { ...headers, "Content-Type": "application/json" }, body: JSON.stringify(body) });
  const told = await answer.json().catch(() => null); // Who stands between may answer with a page of its own.
  if (answer.ok && told) return told;
  throw Object.assign(new Error(told?.detail ?? `the server answered with status ${answer.status}`), { status: answer.status });
}

const SCHEMES = ["", "dark", "light"];
function turnScheme() {
  const root = document.documentElement, next = SCHEMES[(SCHEMES.indexOf(root.dataset.scheme ?? "") + 1) % SCHEMES.length];
  if (next) root.dataset.scheme = next;
  else delete root.dataset.scheme;
}

const GROUPS = [["rows", "Row by row"], ["time", "Time"], ["keys", "By key"], ["joins", "Joins"], ["code", "Python"]];

class Editor {
  /** @param {any} told @param {any} forms */
  constructor(told, forms) {
    this.forms = forms;
    this.kinds = new Map(forms.kinds.map((form) => [form.name, form]));
    this.draft = new Draft(told.document, told.tag);
    this.file = told.file;
    const button = (text, act, more = {}) => h("button.button.small", { type: "button", onclick: act, ...more }, text);
    this.state = h("span.pill", { id: "state" }, "judging");
    this.undo = /** @type {HTMLButtonElement} */ (button("Undo", () => this.settled().then(() => this.draft.undo()), { title: "Ctrl+Z" }));
    this.redo = /** @type {HTMLButtonElement} */ (button("Redo", () => this.draft.redo(), { title: "Ctrl+Shift+Z" }));
    this.saving = h("button.button.first", { type: "button", onclick: () => this.save(), id: "save", title: "Ctrl+S" }, "Save");
    this.canvas = new Canvas(this, ask);
    this.panel = new Panel(this, ask);
    this.drawer = new Drawer(this, ask, (text) => this.say(text));
    this.titled = /** @type {HTMLInputElement} */ (h("input.name", { "aria-label": "Name of the dataflow", value: this.draft.document.name, onchange: (event) => this.draft.change((d) => void (d.name = event.target.value)), spellcheck: "false" }));
    const head = h("header.head", {}, h("span.brand", {}, h("img", { src: "static/icon.svg", alt: "" }), "evenflow"), h("span.slash", { "aria-hidden": "true" }, "/"), h("h1", {}, this.titled), h("span.version", {}, this.file), this.state, h("span.push"),
      this.undo, this.redo, button("Tidy", () => this.tidy()), button("◐", turnScheme, { title: "Light, dark or as the system", "aria-label": "Scheme" }), this.saving);
    page.replaceChildren(head, h("main.drawing", {}, this.palette(), h("div.middle", {}, this.canvas.element, this.drawer.element), this.panel.element));
    this.draft.onChange = () => this.changed();
    this.draft.onDetach = (cell) => this.say(`${cell} is no SQL cell any more: its boxes were edited by hand`);
    addEventListener("keydown", (event) => this.key(event));
    addEventListener("beforeunload", (event) => (this.draft.dirty || this.drawer.cells.left.length) && event.preventDefault());
    this.place().then(() => this.changed());
  }

  /** @param {string} text */
  say(text) {
    aloud.textContent = text;
  }

  palette() {
    const entry = (form, act, colours = form.colours) => h("button.entry", { type: "button", title: form.doc, onclick: act, "data-kind": form.name }, h("i", { "aria-hidden": "true", "data-kind": form.group }), form.title);
    const group = (title, entries) => h("section", {}, h("h2", {}, title), h("div.entries", {}, ...entries));
    return h("nav.card.palette", { "aria-label": "Boxes" },
      group("Sources", this.forms.sources.filter((form) => form.name !== "memory").map((form) => entry(form, () => this.addEnd("source", form)))),
      ...GROUPS.map(([name, title]) => group(title, this.forms.kinds.filter((form) => form.group === name).map((form) => entry(form, () => this.add(form.name, {}))))),
      group("Sinks", this.forms.sinks.map((form) => entry(form, () => this.addEnd("sink", form)))));
  }

  /** A source or a sink with what its form has by itself. @param {"source"|"sink"} end @param {any} form */
  async addEnd(end, form) {
    const missing = form.fields.some((field) => field.required);
    let params = {};
    if (!missing) params = { [end]: (await ask("made", { end, kind: form.name, arguments: {} })).value };
    this.add(end, params, form.name);
  }

  /** Behind the box that is chosen, if it gives something. @param {string} kind @param {any} params @param {string} [stem] */
  add(kind, params, stem = kind) {
    const form = this.kinds.get(kind), chosen = this.draft.box(this.draft.chosen);
    const defaults = Object.fromEntries(form.fields.filter((field) => !field.required && !(field.name === "on_error")).map((field) => [field.name, field.default]));
    const name = this.draft.free(stem), gives = chosen && this.draft.judged.get(chosen.name)?.ports?.length;
    const inputs = form.inputs[1] !== 0 && gives ? [[chosen.name, 0]] : [];
    const at = chosen?.at ? [chosen.at[0] + 260, chosen.at[1]] : [0, 110 * this.draft.boxes.length];
    while (this.draft.boxes.some((box) => box.at && Math.abs(box.at[0] - at[0]) < 150 && Math.abs(box.at[1] - at[1]) < 80)) at[1] += 110;
    this.draft.change((document) => document.boxes.push({ name, kind, ...(form.inputs[1] === 0 ? {} : { inputs }), params: { ...defaults, ...params }, at }));
    this.draft.choose(name);
    this.say(`${form.title} ${name} added`);
  }

  /** Boxes that have no place get one. */
  async place() {
    if (this.draft.boxes.every((box) => box.at)) return;
    const { at } = await ask("tidy", { document: this.draft.document });
    for (const box of this.draft.boxes) box.at = at[box.name] ?? [0, 0];
  }

  async tidy() {
    const sizes = this.canvas.sizes();
    const { at } = await ask("tidy", { document: this.draft.document, sizes });
    this.draft.change((document) => document.boxes.forEach((box) => (box.at = at[box.name] ?? box.at)));
    this.canvas.fit?.();
    this.say("Boxes are in order");
  }

  changed() {
    this.canvas.show();
    this.panel.show();
    this.drawer.changed();
    this.undo.disabled = !this.draft.before.length;
    this.redo.disabled = !this.draft.behind.length;
    mark(this.saving, "data-dirty", this.draft.dirty ? "" : null);
    if (this.titled.value !== this.draft.document.name) this.titled.value = this.draft.document.name;
    if (this.draft.judgedNumber === this.draft.number) return;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.check(), CHECK_MS);
  }

  async check() {
    const number = this.draft.number, began = performance.now();
    try {
      const told = await ask("check", { document: this.draft.document });
      if (number !== this.draft.number) return;
      this.draft.take(told, number);
    } catch (error) {
      return this.pill("bad", error.message);
    }
    mark(document.documentElement, "data-check-ms", (performance.now() - began).toFixed(0));
    const boxes = this.draft.told.boxes, wrong = boxes.filter((box) => box.state === "wrong"), locked = boxes.filter((box) => box.state === "locked");
    if (this.draft.told.error) this.pill("bad", "cannot be planned");
    else if (wrong.length) this.pill("bad", `${wrong.length} wrong`);
    else if (locked.length) this.pill("violet", `${locked.length} locked`);
    else if (!boxes.length) this.pill("", "empty");
    else if (this.draft.told.loose.length) this.pill("warn", `${this.draft.told.loose.length} lead to no sink`);
    else this.pill("good", "valid");
    mark(document.documentElement, "data-judged", String(number));
    this.canvas.show();
    this.panel.judged();
    this.drawer.judged();
  }

  pill(tone, text) {
    mark(this.state, "data-tone", tone || null);
    write(this.state, text);
  }

  /** Whether the file is what is drawn. One save at a time, since each names the file that the one before has written.
   * @param {(why: string) => void} [tell] @returns {Promise<boolean>} */
  save(tell = (why) => this.drawer.tell(why)) {
    const mine = Promise.all([this.settled(), this.saves]).then(([why]) => {
      if (why) tell(why);
      return !why && this.write(tell);
    });
    this.saves = mine;
    return mine;
  }

  /** What was typed is part of the drawing: fields that say so only when they are left, and those that ask the server first.
   * @returns {Promise<string>} "", or why it cannot be */
  settled() {
    const active = document.activeElement;
    if (active instanceof HTMLInputElement && page.contains(active)) {
      active.blur();
      active.focus({ preventScroll: true });
    }
    return this.panel.flush();
  }

  /** @param {(why: string) => void} tell */
  async write(tell) {
    try {
      const number = this.draft.number, told = await ask("save", { document: this.draft.document, tag: this.draft.tag });
      this.draft.saved(told.tag, number);
      this.drawer.fault = "";
      this.say(`${told.file} is saved${this.drawer.cells.leaves}`);
      this.changed();
      return true;
    } catch (error) {
      this.changed();
      tell(error.message);
      return false;
    }
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const held = event.ctrlKey || event.metaKey, typed = /** @type {HTMLElement} */ (event.target).closest("input, select, textarea, .cm-editor");
    if (held && event.key.toLowerCase() === "s") {
      event.preventDefault();
      this.save();
    } else if (held && event.key.toLowerCase() === "z" && !typed) {
      event.preventDefault();
      if (event.shiftKey) this.draft.redo();
      else this.draft.undo();
    } else if ((event.key === "Delete" || event.key === "Backspace") && this.draft.chosen && inDrawing(/** @type {Element} */ (event.target))) {
      event.preventDefault();
      this.draft.remove(this.draft.chosen);
    }
  }
}

/** Whether a key is meant for the drawing: for what is chosen there, and for no button, tab or list beside it. @param {Element} target */
const inDrawing = (target) => target === document.body || (!!target.closest(".canvas") && !target.closest("button, input"));

/** The dataflow cannot be shown. @param {string} why */
function fault(why) {
  page.replaceChildren(h("main.card.gate", {}, h("h1", {}, "It cannot be shown"), h("p.wrong", { role: "alert" }, why), h("div.tools", {}, h("button.button.first", { type: "button", onclick: begin }, "Try again"))));
}

function gate(why) {
  const input = /** @type {HTMLInputElement} */ (h("input", { type: "password", "aria-label": "Token", autocomplete: "off", name: "token" }));
  const form = h("form", { onsubmit: (event) => {
    event.preventDefault();
    token = input.value.trim();
    begin();
  } }, input, h("button.button.first", { type: "submit" }, "Open"));
  page.replaceChildren(h("main.card.gate", {}, h("h1", {}, "Who asks?"), h("p.soft", {}, "The command that opened this page printed an address that ends in #token=… Open that one, or give the token here."), why ? h("p.wrong", { role: "alert" }, why) : null, form));
}

async function begin() {
  try {
    const [told, forms] = await Promise.all([ask("document"), ask("forms")]);
    new Editor(told, forms);
  } catch (error) {
    if ([401, 403, 421].includes(error.status)) gate(error.message);
    else fault(error.status ? error.message : `Nobody answers: ${error.message}`);
  }
}

if (token) begin();
else gate("");
