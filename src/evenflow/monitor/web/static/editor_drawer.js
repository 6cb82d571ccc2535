// Below the drawing: rows at the arrows, cells of SQL, the same as Python, and what would change in a run.

import { Cells } from "./editor_cells.js";
import { Rows } from "./editor_rows.js";
import { h, mark, write } from "./dom.js";
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
    this.rows = new Rows(editor, ask, say);
    this.cells = new Cells(this);
    this.fault = "";
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

  /** Something else is drawn or chosen: what was compared is withdrawn, and rows say whether they are of it. */
  changed() {
    this.withdraw?.();
    this.rows.show();
    this.typed();
  }

  /** How many statements are typed and not drawn. */
  typed() {
    const { length } = this.cells.left;
    write(this.buttons[1], length ? `SQL ${length}` : "SQL");
    mark(this.buttons[1], "title", length ? "Statements that are not drawn yet" : null);
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
    this.body.replaceChildren(...this.rows.parts);
  }

  drawCells() {
    this.cells.draw();
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
