// Below the drawing: rows at the arrows, cells of SQL, the same as Python, and what would change in a run.

import { code } from "./editor_code.js";
import { h, mark } from "./dom.js";
import { writtenAgain } from "./again.js";

const TABS = ["Rows", "SQL", "Python", "Deploy", "Problems"];
const CHANGES = { same: ["same", ""], other: ["other code", "warn"], new: ["new", "bad"], gone: ["gone", "bad"], refused: ["refused", "bad"] };

const withdrawn = () => h("p.soft", { role: "status" }, "Something else is drawn now: compare it again.");

export class Drawer {
  constructor(editor, ask, say) {
    this.editor = editor;
    this.ask = ask;
    this.say = say;
    this.tab = "Rows";
    this.buttons = TABS.map((name) => h("button", { type: "button", role: "tab", "aria-selected": String(name === this.tab), id: `tab-${name}`, "aria-controls": "drawer", tabindex: name === this.tab ? "0" : "-1", onclick: () => this.turn(name), onkeydown: (event) => this.step(event) }, name));
    this.body = h("div.drawer", { role: "tabpanel", id: "drawer", "aria-labelledby": "tab-Rows", tabindex: "0" });
    this.element = h("section.card.below", { "aria-label": "Rows, SQL, Python" }, h("header", {}, h("div.tabs", { role: "tablist" }, ...this.buttons)), this.body);
    /** @type {any} */ this.rows = null;
    this.samples = "";
    this.fault = "";
    /** @type {string|null} */ this.cell = null;
    /** @type {(() => void)|null} */ this.withdraw = null;
    this.draw();
  }

  /** From tab to tab with the arrows. @param {KeyboardEvent} event */
  step(event) {
    const at = TABS.indexOf(this.tab), to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: TABS.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    const next = (to + TABS.length) % TABS.length;
    this.turn(TABS[next]);
    this.buttons[next].focus();
  }

  /** @param {string} name */
  turn(name) {
    this.tab = name;
    this.buttons.forEach((button, i) => {
      mark(button, "aria-selected", String(TABS[i] === name));
      mark(button, "tabindex", TABS[i] === name ? "0" : "-1");
    });
    mark(this.body, "aria-labelledby", `tab-${name}`);
    this.draw();
  }

  /** What was compared is not what is drawn any more. */
  changed() {
    this.withdraw?.();
  }

  judged() {
    const { draft } = this.editor, wrong = draft.told.boxes.filter((box) => box.state === "wrong").length + (draft.told.error ? 1 : 0);
    this.buttons[4].textContent = wrong ? `Problems ${wrong}` : "Problems";
    if (this.tab === "Problems") this.draw();
  }

  draw() {
    this.withdraw = null;
    this[{ Rows: "drawRows", SQL: "drawCells", Python: "drawPython", Deploy: "drawDeploy", Problems: "drawProblems" }[this.tab]]();
  }

  /** Stands among the problems until there is none of that kind. @param {string} text */
  tell(text) {
    this.fault = text;
    this.turn("Problems");
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
      await this.editor.settled();
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
        draft.change((document) => Object.assign(document, told.document, { boxes: told.document.boxes.map((box) => ({ ...box, at: box.at ?? at[box.name] })) }), name);
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
      await this.editor.settled();
      const { python } = await this.ask("export", { document: this.editor.draft.document });
      if (this.tab === "Python") this.body.replaceChildren(h("pre.python", { tabindex: "0" }, python));
    } catch (error) {
      this.body.replaceChildren(h("p.wrong", { role: "alert" }, error.message));
    }
  }

  /** The engine reads the file: each request names the one that was saved, and none is made where saving failed. */
  drawDeploy() {
    const out = h("div.list"), { draft } = this.editor;
    const fail = (why) => out.replaceChildren(h("p.wrong", { role: "alert" }, why));
    const attempt = async (act) => {
      this.withdraw = null;
      out.replaceChildren(h("p.soft", {}, "Asking the engine"));
      try {
        out.replaceChildren(...(await act()));
      } catch (error) {
        fail(error.message);
      }
    };
    const saved = async (act) => {
      const why = await this.editor.settled();
      if (why) return fail(why);
      if (!draft.dirty || (await this.editor.save(fail))) await attempt(act);
    };
    const compare = async () => {
      const number = draft.number, tag = draft.tag, told = await this.ask("compare", { tag });
      if (draft.number !== number) return [withdrawn()];
      const list = h("ul.changes", {}, ...told.boxes.map((each) => h("li", { "data-tone": CHANGES[each.change][1] || null }, h("b", {}, each.box), ` ${CHANGES[each.change][0]}${each.change === "other" ? (each.keeps_state ? ", keeps its state" : ", has no state") : ""}`, each.why ? h("span.soft", {}, ` ${each.why}`) : "")));
      return [h("p", {}, told.possible ? `${told.changed.length} of ${told.boxes.length} boxes would do something else.` : "This is no version of what runs."), list, told.possible && told.changed.length ? this.replacing(told, tag, attempt, out) : ""];
    };
    const start = async () => [h("p", {}, `${(await this.ask("start", { tag: draft.tag })).run} has started.`)];
    this.body.replaceChildren(h("div.tools", {}, h("button.button.small", { type: "button", onclick: () => saved(compare) }, "Compare with what runs"), h("button.button.small", { type: "button", onclick: () => saved(start) }, "Start it beside"), h("span.soft", {}, "In the engine that runs on this machine; the file is saved first.")), out);
  }

  /** The button that lets what was compared take over, once its name is written; it goes when something else is drawn.
   * @param {any} told @param {string} tag @param {(act: () => Promise<Node[]>) => void} attempt @param {HTMLElement} out */
  replacing(told, tag, attempt, out) {
    const go = h("button.button.small.first.grave", { type: "submit" }, `Replace version ${told.version}`), again = writtenAgain(go);
    again.ask(this.editor.draft.document.name);
    this.withdraw = () => {
      this.withdraw = null;
      out.replaceChildren(withdrawn());
    };
    return h("form.tools", { onsubmit: (event) => {
      event.preventDefault();
      attempt(async () => {
        const done = await this.ask("replace", { version: told.version, tag, ...(told.run ? { run: told.run } : {}) });
        return [h("p", {}, `Version ${done.version} runs from epoch ${done.epoch} on.`)];
      });
    } }, again.element, go);
  }

  drawProblems() {
    const { draft } = this.editor, wrong = draft.told.boxes.filter((box) => box.state === "wrong");
    const entry = (box) => h("li", {}, h("button.link", { type: "button", onclick: () => draft.choose(box.name) }, box.name || "a box"), ` ${box.error.replace(`box '${box.name}': `, "")}`);
    this.body.replaceChildren(this.fault ? h("p.wrong", { role: "alert" }, this.fault) : "", wrong.length || draft.told.error ? h("ul.problems", {}, draft.told.error ? h("li", {}, draft.told.error) : "", ...wrong.map(entry)) : this.fault ? "" : h("p.soft", {}, "Nothing is wrong."), draft.told.loose.length ? h("p.soft", {}, `To no sink yet: ${draft.told.loose.join(", ")}.`) : "");
  }
}
