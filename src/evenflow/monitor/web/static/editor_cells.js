// Cells of SQL. What is typed stays, whatever is looked at meanwhile, until it is drawn.

import { code } from "./editor_code.js";
import { h } from "./dom.js";

export class Cells {
  /** @param {import("./editor_drawer.js").Drawer} drawer */
  constructor(drawer) {
    this.drawer = drawer;
    this.editor = drawer.editor;
    /** The cell that is picked; "": a new one; null: that of the chosen box. @type {string|null} */ this.cell = null;
    /** Statements as they were typed, by cell. @type {Map<string, string>} */ this.texts = new Map();
    /** What their results are to be called. @type {Map<string, string>} */ this.names = new Map();
    /** The newest that could not be drawn. */ this.refused = { cell: "", why: "" };
    this.shown = "";
    this.wrong = h("p.wrong", { role: "alert", hidden: true });
  }

  /** @param {string} cell */
  written(cell) {
    return this.editor.draft.document.cells?.[cell] ?? "";
  }

  /** Cells of which something else is typed than is drawn. */
  get left() {
    return [...this.texts].filter(([cell, text]) => text !== this.written(cell)).map(([cell]) => cell);
  }

  /** What saving leaves out. */
  get leaves() {
    const { length } = this.left;
    return length ? `; ${length > 1 ? `${length} statements under SQL are` : "a statement under SQL is"} not drawn yet` : "";
  }

  /** @param {string} cell @param {string} text */
  type(cell, text) {
    if (text === this.written(cell)) this.texts.delete(cell);
    else this.texts.set(cell, text);
    this.drawer.typed();
  }

  /** @param {string} cell @param {string} why */
  refuse(cell, why) {
    this.refused = { cell, why };
    this.wrong.textContent = why;
    this.wrong.hidden = !why || cell !== this.shown;
  }

  draw() {
    const { draft } = this.editor, cells = draft.document.cells ?? {};
    const names = [...new Set([...Object.keys(cells).filter((name) => draft.boxes.some((box) => box.cell === name)), ...this.left])].filter(Boolean);
    const chosen = this.cell ?? draft.box(draft.chosen)?.cell ?? names[0] ?? "";
    const name = this.names.get(chosen) ?? (chosen || draft.free("query"));
    const field = code({ value: this.texts.get(chosen) ?? this.written(chosen), label: "SQL", lines: true, columns: () => draft.boxes.map((box) => box.name), change: (next) => this.type(chosen, next), hint: `SELECT src, count(*) AS n FROM ${draft.boxes[0]?.name ?? "packets"} GROUP BY src` });
    const pick = h("div.toggle", { role: "group", "aria-label": "Cells" }, ...[...names, ""].map((each) => h("button", { type: "button", "aria-pressed": String(each === chosen), onclick: () => {
      this.cell = each;
      this.draw();
    } }, each || "new")));
    const result = h("input.short", { value: name, spellcheck: "false", disabled: chosen in cells, oninput: (event) => this.names.set(chosen, event.target.value) });
    this.shown = chosen;
    this.refuse(this.refused.cell, this.refused.why);
    this.drawer.body.replaceChildren(h("div.tools", {}, pick, h("label.part", {}, "result", result), h("button.button.small.first", { type: "button", onclick: () => this.apply(chosen, this.names.get(chosen) ?? name) }, "Draw it")), field.element, this.wrong);
  }

  /** The statement becomes boxes, unless something else was drawn while the server thought about it.
   * @param {string} cell @param {string} name */
  async apply(cell, name) {
    const { drawer, editor } = this, { draft } = editor, text = this.texts.get(cell) ?? this.written(cell);
    this.refuse(cell, "");
    try {
      await editor.settled();
      const number = draft.number, told = await drawer.ask("cell", { document: draft.document, cell: name, text });
      const { at } = await drawer.ask("tidy", { document: told.document, sizes: editor.canvas.sizes() });
      if (draft.number !== number) throw new Error("Something else is drawn now: draw it again.");
      draft.change((document) => Object.assign(document, told.document, { boxes: told.document.boxes.map((box) => ({ ...box, at: box.at ?? at[box.name] })) }), name);
    } catch (error) {
      this.refuse(cell, error.message);
      return drawer.say(error.message);
    }
    const since = this.texts.get(cell);
    this.texts.delete(cell);
    this.names.delete(cell);
    if (since !== undefined) this.type(name, since); // It may have been typed on.
    draft.choose(name);
    this.cell = name;
    editor.canvas.fit?.();
    drawer.typed();
    if (drawer.tab === "SQL") this.draw();
    drawer.say(`${name} is drawn`);
  }
}
