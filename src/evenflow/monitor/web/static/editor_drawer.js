// Below the drawing: rows at the arrows, cells of SQL, the same as Python, and what would change in a run.

import { code } from "./editor_code.js";
import { h, mark } from "./dom.js";

const TABS = ["Rows", "SQL", "Python", "Deploy", "Problems"];
const CHANGES = { same: ["same", ""], other: ["other code", "warn"], new: ["new", "bad"], gone: ["gone", "bad"], refused: ["refused", "bad"] };

export class Drawer {
  constructor(editor, ask, say) {
    this.editor = editor;
    this.ask = ask;
    this.say = say;
    this.tab = "Rows";
    this.buttons = TABS.map((name) => h("button", { type: "button", role: "tab", "aria-selected": String(name === this.tab), id: `tab-${name}`, "aria-controls": "drawer", onclick: () => this.turn(name) }, name));
    this.body = h("div.drawer", { role: "tabpanel", id: "drawer", "aria-labelledby": "tab-Rows", tabindex: "0" });
    this.element = h("section.card.below", { "aria-label": "Rows, SQL, Python" }, h("header", {}, h("div.tabs", { role: "tablist" }, ...this.buttons)), this.body);
    /** @type {any} */ this.rows = null;
    this.samples = "";
    /** @type {string|null} */ this.cell = null;
    this.draw();
  }

  /** @param {string} name */
  turn(name) {
    this.tab = name;
    this.buttons.forEach((button, i) => mark(button, "aria-selected", String(TABS[i] === name)));
    mark(this.body, "aria-labelledby", `tab-${name}`);
    this.draw();
  }

  judged() {
    const { draft } = this.editor, wrong = draft.told.boxes.filter((box) => box.state === "wrong").length + (draft.told.error ? 1 : 0);
    this.buttons[4].textContent = wrong ? `Problems ${wrong}` : "Problems";
    if (this.tab === "Problems") this.draw();
  }

  draw() {
    this[{ Rows: "drawRows", SQL: "drawCells", Python: "drawPython", Deploy: "drawDeploy", Problems: "drawProblems" }[this.tab]]();
  }

  /** @param {string} tab @param {string} text */
  tell(tab, text) {
    this.turn(tab);
    this.body.prepend(h("p.wrong", { role: "alert" }, text));
    this.say(text);
  }

  drawRows() {
    const run = h("button.button.small.first", { type: "button", onclick: () => this.preview(run) }, "Try it");
    const given = h("textarea", { "aria-label": "Rows by source, as JSON", rows: "2", placeholder: '{"packets": [{"src": "a"}]}', oninput: (event) => (this.samples = event.target.value) }, this.samples);
    const head = h("div.tools", {}, run, h("span.soft", {}, this.rows ? Object.entries(this.rows.sources).map(([name, source]) => `${name}: ${source.rows} rows, ${source.from}`).join("; ") : "A few rows in the simulator: 10 s of CPU, 1 GiB."), h("details", {}, h("summary", {}, "Rows of your own"), given));
    if (!this.rows) return this.body.replaceChildren(head);
    const chosen = this.editor.draft.chosen, taps = this.rows.taps.filter((tap) => !chosen || tap.box === chosen || this.editor.draft.box(chosen)?.inputs?.some(([up, port]) => up === tap.box && port === tap.port));
    const shown = taps.length ? taps : this.rows.taps;
    this.body.replaceChildren(head, h("div.taps", {}, ...shown.map((tap) => h("figure", {}, h("figcaption", {}, h("b", {}, tap.name ? `${tap.box}, ${tap.name}` : tap.box), h("span.soft", {}, ` ${tap.count} rows`)), this.table(tap)))));
  }

  table(tap) {
    const cell = (value) => h("td", typeof value === "number" ? { class: "num" } : {}, value === null ? h("i.soft", {}, "null") : typeof value === "object" ? JSON.stringify(value) : String(value));
    return h("div.scroll", { tabindex: "0" }, h("table", {}, h("thead", {}, h("tr", {}, ...tap.columns.map((name) => h("th", { scope: "col" }, name)))), h("tbody", {}, ...tap.rows.slice(0, 20).map((row) => h("tr", {}, ...row.map(cell))))));
  }

  async preview(button) {
    button.disabled = true;
    button.textContent = "Trying";
    try {
      const samples = this.samples.trim() ? JSON.parse(this.samples) : null;
      this.rows = await this.ask("preview", { document: this.editor.draft.document, samples });
      this.drawRows();
      this.say("Rows are there");
    } catch (error) {
      this.rows = null;
      this.drawRows();
      this.body.append(h("p.wrong", { role: "alert" }, error.message));
    }
  }

  drawCells() {
    const { draft } = this.editor, cells = draft.document.cells ?? {}, names = Object.keys(cells).filter((name) => draft.boxes.some((box) => box.cell === name));
    const chosen = this.cell ?? draft.box(draft.chosen)?.cell ?? names[0] ?? "";
    let text = cells[chosen] ?? "", name = chosen || draft.free("query");
    const fault = h("p.wrong", { role: "alert", hidden: true });
    const field = code({ value: text, label: "SQL", lines: true, columns: () => draft.boxes.map((box) => box.name), change: (next) => (text = next), hint: `SELECT src, count(*) AS n FROM ${draft.boxes[0]?.name ?? "packets"} GROUP BY src` });
    const apply = async () => {
      try {
        const told = await this.ask("cell", { document: draft.document, cell: name, text });
        const { at } = await this.ask("tidy", { document: told.document, sizes: this.editor.canvas.sizes() });
        draft.change((document) => Object.assign(document, told.document, { boxes: told.document.boxes.map((box) => ({ ...box, at: box.at ?? at[box.name] })) }));
        draft.choose(name);
        this.cell = name;
        this.editor.canvas.fit?.();
        this.drawCells();
        this.say(`${name} is drawn`);
      } catch (error) {
        fault.textContent = error.message;
        fault.hidden = false;
      }
    };
    const pick = h("div.toggle", { role: "group", "aria-label": "Cells" }, ...[...names, ""].map((each) => h("button", { type: "button", "aria-pressed": String(each === chosen), onclick: () => {
      this.cell = each;
      this.drawCells();
    } }, each || "new")));
    this.body.replaceChildren(h("div.tools", {}, pick, h("label.part", {}, "result", h("input.short", { value: name, spellcheck: "false", disabled: !!chosen, oninput: (event) => (name = event.target.value) })), h("button.button.small.first", { type: "button", onclick: apply }, "Draw it")), field.element, fault);
  }

  async drawPython() {
    this.body.replaceChildren(h("p.soft", {}, "Writing"));
    try {
      const { python } = await this.ask("export", { document: this.editor.draft.document });
      if (this.tab === "Python") this.body.replaceChildren(h("pre.python", { tabindex: "0" }, python));
    } catch (error) {
      this.body.replaceChildren(h("p.wrong", { role: "alert" }, error.message));
    }
  }

  drawDeploy() {
    const out = h("div"), { draft } = this.editor;
    const attempt = async (act) => {
      out.replaceChildren(h("p.soft", {}, "Asking the engine"));
      try {
        if (draft.dirty) await this.editor.save();
        out.replaceChildren(...(await act()));
      } catch (error) {
        out.replaceChildren(h("p.wrong", { role: "alert" }, error.message));
      }
    };
    const compare = async () => {
      const told = await this.ask("compare", {});
      const list = h("ul.changes", {}, ...told.boxes.map((each) => h("li", { "data-tone": CHANGES[each.change][1] || null }, h("b", {}, each.box), ` ${CHANGES[each.change][0]}${each.change === "other" && each.keeps_state ? ", keeps its state" : ""}`, each.why ? h("span.soft", {}, ` ${each.why}`) : "")));
      const replace = h("button.button.small.first.grave", { type: "button", onclick: () => attempt(async () => {
        const done = await this.ask("replace", { version: told.version });
        return [h("p", {}, `Version ${done.version} runs from epoch ${done.epoch} on.`)];
      }) }, `Replace version ${told.version}`);
      return [h("p", {}, told.possible ? `${told.changed.length} of ${told.boxes.length} boxes would do something else.` : "This is no version of what runs."), list, told.possible && told.changed.length ? replace : ""];
    };
    const start = async () => [h("p", {}, `${(await this.ask("start", {})).run} has started.`)];
    this.body.replaceChildren(h("div.tools", {}, h("button.button.small", { type: "button", onclick: () => attempt(compare) }, "Compare with what runs"), h("button.button.small", { type: "button", onclick: () => attempt(start) }, "Start it beside"), h("span.soft", {}, "In the engine that runs on this machine; the file is saved first.")), out);
  }

  drawProblems() {
    const { draft } = this.editor, wrong = draft.told.boxes.filter((box) => box.state === "wrong");
    const entry = (box) => h("li", {}, h("button.link", { type: "button", onclick: () => draft.choose(box.name) }, box.name || "a box"), ` ${box.error.replace(`box '${box.name}': `, "")}`);
    this.body.replaceChildren(wrong.length || draft.told.error ? h("ul.problems", {}, draft.told.error ? h("li", {}, draft.told.error) : "", ...wrong.map(entry)) : h("p.soft", {}, "Nothing is wrong."), draft.told.loose.length ? h("p.soft", {}, `To no sink yet: ${draft.told.loose.join(", ")}.`) : "");
  }
}
