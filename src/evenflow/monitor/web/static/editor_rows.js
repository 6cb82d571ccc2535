// Rows at the arrows, as the simulator gives them: of what is drawn, or they say that they are not.

import { h, mark, write } from "./dom.js";

/** What rows depend on: a box that is moved gives the same. @param {any} document */
const drawn = (document) => JSON.stringify(document.boxes.map(({ at, cell, ...box }) => box));

const cell = (value) => h("td", typeof value === "number" ? { class: "num" } : {}, value === null ? h("i.soft", {}, "null") : typeof value === "object" ? JSON.stringify(value) : String(value));

const table = (tap) => h("div.scroll", { tabindex: "0" }, h("table", {}, h("thead", {}, h("tr", {}, ...tap.columns.map((name) => h("th", { scope: "col" }, name)))), h("tbody", {}, ...tap.rows.slice(0, 20).map((row) => h("tr", {}, ...row.map(cell))))));

export class Rows {
  constructor(editor, ask, say) {
    this.editor = editor;
    this.ask = ask;
    this.say = say;
    this.samples = "";
    /** The newest try that was answered, and the drawing that it is of. @type {{of: string, rows: any, fault: string}|null} */ this.done = null;
    /** The newest try that is not. @type {{of: string}|null} */ this.trying = null;
    /** @type {any[]} */ this.shown = [];
    this.run = h("button.button.small.first", { type: "button", onclick: () => this.preview() }, "Try it");
    this.note = h("span.soft");
    this.old = h("span.pill", { "data-tone": "warn" }, "Something else is drawn now: try it again.");
    this.taps = h("div.taps");
    this.wrong = h("p.wrong", { role: "alert" });
    const given = h("textarea", { "aria-label": "Rows by source, as JSON", rows: "2", placeholder: '{"packets": [{"src": "a"}]}', oninput: (event) => (this.samples = event.target.value) });
    this.parts = [h("div.tools", {}, this.run, this.note, this.old, h("details", {}, h("summary", {}, "Rows of your own"), given)), this.taps, this.wrong];
    this.show();
  }

  /** After every change of the drawing, of what is chosen, and of what was tried. */
  show() {
    const { draft } = this.editor, { done, trying } = this, now = drawn(draft.document), rows = done?.rows, old = !!done && done.of !== now;
    const waits = trying?.of === now;
    mark(this.run, "disabled", waits ? "" : null);
    write(this.run, waits ? "Trying" : "Try it");
    write(this.note, rows ? Object.entries(rows.sources).map(([name, source]) => `${name}: ${source.rows} rows, ${source.from}`).join("; ") : "A few rows in the simulator: 10 s of CPU, 1 GiB.");
    this.old.hidden = !rows || !old;
    this.wrong.hidden = !done?.fault || old;
    write(this.wrong, done?.fault ?? "");
    const box = draft.box(draft.chosen), all = rows?.taps ?? [];
    const near = box ? all.filter((tap) => tap.box === box.name || box.inputs?.some(([up, port]) => up === tap.box && port === tap.port)) : all;
    const shown = near.length ? near : all;
    if (shown.length === this.shown.length && shown.every((tap, i) => tap === this.shown[i])) return;
    this.shown = shown;
    this.taps.replaceChildren(...shown.map((tap) => h("figure", {}, h("figcaption", {}, h("b", {}, tap.name ? `${tap.box}, ${tap.name}` : tap.box), h("span.soft", {}, ` ${tap.count} rows`)), table(tap))));
  }

  /** Of two that are under way the newer one counts. */
  async preview() {
    const { draft } = this.editor, mine = (this.trying = { of: drawn(draft.document) });
    let rows = null, fault = "";
    this.show();
    try {
      const why = await this.editor.settled();
      mine.of = drawn(draft.document);
      if (why) throw new Error(why);
      const samples = this.samples.trim() ? JSON.parse(this.samples) : null;
      rows = await this.ask("preview", { document: draft.document, samples });
    } catch (error) {
      fault = error.message;
    }
    if (this.trying !== mine) return;
    this.trying = null;
    this.done = { of: mine.of, rows, fault };
    this.show();
    this.say(fault || "Rows are there");
  }
}
