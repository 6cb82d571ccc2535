// The panel of the chosen box: a field for each parameter of its form, arrows into it by name, and what is wrong where it is wrong.

import { span } from "./editor_canvas.js";
import { code } from "./editor_code.js";
import { h, mark } from "./dom.js";

const SPAN = /^\s*([\d.]+)\s*(us|ms|s|sec|seconds?|m|min|minutes?|h|hours?|d|days?)?\s*$/;
const US = { us: 1, ms: 1e3, s: 1e6, m: 6e7, h: 3.6e9, d: 8.64e10 };

/** Microseconds of a text such as "10 s"; NaN for what is none. @param {string} text */
export function spanned(text) {
  const found = SPAN.exec(text);
  if (!found) return NaN;
  const unit = found[2] ?? "s";
  return Math.round(Number(found[1]) * US[unit.startsWith("us") ? "us" : unit.startsWith("ms") ? "ms" : unit[0]]);
}

const option = (value, text, chosen) => h("option", { value, selected: chosen || null }, text);
let made = 0;

export class Panel {
  constructor(editor, ask) {
    this.editor = editor;
    this.ask = ask;
    this.body = h("div.fields");
    this.element = h("aside.card.panel", { "aria-label": "Chosen box" }, this.body);
    /** @type {string|null} */ this.shown = null;
    /** What was typed and is not written yet. @type {(() => void)|null} */ this.pending = null;
    /** What is under way: "", or why it cannot be written. @type {Promise<string>} */ this.writing = Promise.resolve("");
    /** @type {{parameter: string, item: number|null, element: HTMLElement, fault: HTMLElement, mark?: (fault: any) => void}[]} */ this.places = [];
  }

  get box() {
    return this.editor.draft.box(this.editor.draft.chosen);
  }

  /** What was typed is written now, not in a moment. @returns {Promise<string>} "", or why it cannot be */
  flush() {
    this.pending?.();
    return this.writing;
  }

  /** Draw it anew, unless what changed was typed here. */
  show() {
    const box = this.box, text = box ? JSON.stringify([box.name, box.kind, box.inputs, box.params, this.columns(box)]) : "";
    if (text === this.shown) return;
    this.shown = text;
    this.draw();
  }

  /** @param {any} box */
  columns(box, which = 0) {
    return this.editor.draft.columns(box, which);
  }

  /** A change that is typed here: the fields stay as they are. It is of the box of that name, whichever is chosen by now.
   * @param {string} name @param {(params: any) => void} alter */
  set(name, alter, again = false) {
    if (!this.editor.draft.box(name)) return;
    this.editor.draft.change((document) => {
      const box = document.boxes.find((each) => each.name === name);
      alter((box.params ??= {}));
      if (!again && name === this.editor.draft.chosen) this.shown = JSON.stringify([box.name, box.kind, box.inputs, box.params, this.columns(box)]);
    });
  }

  draw() {
    const box = this.box, { draft, kinds } = this.editor;
    this.flush();
    this.places = [];
    if (!box) {
      const told = draft.boxes.length ? "Choose a box to see what it does." : "Nothing is drawn yet.";
      return this.body.replaceChildren(h("p.empty", {}, told), h("dl.keys", {}, ...[["Ctrl+Z", "undo"], ["Ctrl+S", "save"], ["Delete", "remove the chosen box"], ["Double click", "on an arrow: remove it"]].map(([key, what]) => h("div", {}, h("dt", {}, key), h("dd", {}, what)))));
    }
    const form = kinds.get(box.kind);
    const name = h("input", { value: box.name, "aria-label": "Name of the box", spellcheck: "false", onchange: async (event) => {
      await this.flush();
      if (!draft.rename(box.name, event.target.value)) event.target.value = box.name;
    } });
    const fields = (form?.fields ?? []).filter((field) => !field.more), more = (form?.fields ?? []).filter((field) => field.more);
    const wrong = h("p.wrong", { role: "alert", hidden: true });
    this.places.push({ parameter: "", item: null, element: wrong, fault: wrong });
    this.body.replaceChildren(
      h("header.kindof", { "data-group": form?.group ?? "" }, h("h2", {}, form?.title ?? box.kind), h("p.soft", {}, form?.doc ?? "")),
      this.row("Name", name), ...this.inputs(box, form), wrong, ...fields.map((field) => this.field(box, field)),
      more.length ? h("details", {}, h("summary", {}, "More"), ...more.map((field) => this.field(box, field))) : "",
      h("div.columns", {}, h("h3", {}, "Gives"), (this.gives = h("div"))),
      h("div.ends", {}, h("button.button.small.grave", { type: "button", onclick: () => draft.remove(box.name) }, "Remove")),
    );
    this.judged();
  }

  /** A label, what is typed in, and what is wrong with it. @param {number|null} [item]  its place in a list */
  row(label, control, doc = "", parameter = "", item = null, marking = undefined) {
    const fault = h("p.wrong", { hidden: true }), labelled = control.querySelector?.("input, select, textarea, .cm-content") ?? control;
    const id = (labelled.id ||= `field-${++made}`), element = h("div.field", {}, h("label", { for: id }, label), control, doc ? h("p.doc", {}, doc) : "", fault);
    if (parameter) this.places.push({ parameter, item, element, fault, mark: marking });
    return element;
  }

  /** Arrows into the box: a choice for each, so that nobody needs a mouse. */
  inputs(box, form) {
    if (!form || form.inputs[1] === 0) return [];
    const { draft } = this.editor, arrows = box.inputs ?? [], count = Math.max(form.inputs[0], form.inputs[1] === null ? arrows.length + 1 : Math.min(form.inputs[1], arrows.length + 1), 1);
    const wanted = form.inputs[1] === null ? count : form.inputs[1], names = box.kind === "join" ? ["Left rows of", "Right rows of"] : ["Reads", "and", "and"];
    const all = draft.boxes.filter((each) => each.name !== box.name).flatMap((each) => {
      const told = draft.judged.get(each.name);
      return (told?.ports ?? told?.was ?? []).map((port, i) => ({ value: JSON.stringify([each.name, i]), text: port.name ? `${each.name}, ${port.name}` : each.name }));
    });
    return Array.from({ length: wanted }, (_, i) => {
      const now = arrows[i] ? JSON.stringify(arrows[i]) : "";
      const known = all.some((each) => each.value === now) || !now ? all : [...all, { value: now, text: arrows[i][0] }];
      const select = h("select", { onchange: (event) => draft.change((document) => {
        const target = document.boxes.find((each) => each.name === box.name), rest = [...(target.inputs ?? [])];
        if (event.target.value) rest[i] = JSON.parse(event.target.value);
        else rest.splice(i, 1);
        target.inputs = rest.filter(Boolean);
      }) }, option("", "nothing", !now), ...known.map((each) => option(each.value, each.text, each.value === now)));
      return this.row(names[Math.min(i, names.length - 1)], select, "", "inputs", i);
    });
  }

  /** @param {any} box @param {any} field */
  field(box, field) {
    const value = (box.params ?? {})[field.name], put = (next) => this.set(box.name, (params) => (params[field.name] = next)), again = (next) => this.set(box.name, (params) => (params[field.name] = next), true);
    const label = field.name.replace(/_us$/, "").replace(/_/g, " ").replace(/^./, (c) => c.toUpperCase()), row = (control, mark_) => this.row(label, control, field.doc, field.name, null, mark_);
    if (value && typeof value === "object" && (value.python || value.pickle || value.$kind === "Formula")) return row(h("p.code", {}, value.python ?? "code that only Python can say"));
    const make = { text: this.plain, ddl: this.plain, whole: this.number, number: this.number, flag: this.flag, choice: this.choice, duration: this.duration, expression: this.expression, expressions: this.expressions, named: this.named,
      column: this.column, columns: this.chips, order_by: this.orders, calls: this.calls, window: this.window, join: this.join, source: this.end, sink: this.end, names: this.names }[field.type];
    return make ? make.call(this, { box, field, value, put, again, row, label }) : row(h("p.code", {}, value === null || value === undefined ? "only Python can say it" : "set in Python"));
  }

  plain({ value, put, row, field }) {
    return row(h("input", { value: value ?? "", spellcheck: "false", oninput: (event) => put(event.target.value || (field.required ? "" : field.default ?? null)) }));
  }

  number({ value, put, row, field }) {
    return row(h("input", { type: "number", step: field.type === "whole" ? "1" : "any", value: value ?? "", oninput: (event) => put(event.target.value === "" ? null : Number(event.target.value)) }));
  }

  flag({ value, put, row }) {
    return row(h("input", { type: "checkbox", checked: value || null, onchange: (event) => put(event.target.checked) }));
  }

  choice({ value, put, row, field }) {
    return row(h("select", { onchange: (event) => put(field.choices[event.target.selectedIndex]) }, ...field.choices.map((each) => option(String(each), each === null ? "as it comes" : each === "fail" ? "fail: the run ends" : each === "skip" ? "skip: to a port" : String(each), each === (value ?? field.default ?? null)))));
  }

  duration({ value, put, row }) {
    return row(h("input", { value: span(value), placeholder: "10 s", onchange: (event) => {
      const us = event.target.value.trim() ? spanned(event.target.value) : null;
      put(Number.isNaN(us) ? event.target.value : us);
    } }));
  }

  expression({ box, value, put, row, label }) {
    const found = code({ value: value ?? "", label, columns: () => this.columns(box), change: put, hint: "length > 40" });
    return row(found.element, found.mark);
  }

  list(values, each, add, again, fresh, label) {
    const rows = values.map((value, i) => h("div.item", {}, ...each(value, i), h("button.button.small", { type: "button", "aria-label": `Remove ${label} ${i + 1}`, onclick: () => again(values.filter((_, at) => at !== i)) }, "×")));
    return h("div.list", {}, ...rows, h("button.button.small", { type: "button", onclick: () => again([...values, fresh()]) }, add));
  }

  expressions({ box, field, value, put, again, row, label }) {
    const values = value ?? [];
    const list = this.list(values, (text, i) => {
      const found = code({ value: typeof text === "string" ? text : "", label: `${label} ${i + 1}`, columns: () => this.columns(box), change: (next) => put(Object.assign([...(this.box.params[field.name] ?? [])], { [i]: next })) });
      const fault = h("p.wrong", { hidden: true });
      this.places.push({ parameter: field.name, item: i, element: found.element, fault, mark: found.mark });
      return [h("div.grow", {}, found.element, fault)];
    }, "Add", again, () => "", label);
    return row(list);
  }

  named({ box, field, value, put, again, row, label }) {
    const values = value ?? [], of = () => this.box.params[field.name] ?? [], name = (i) => values[i][0];
    const list = this.list(values, ([, text], i) => {
      const found = code({ value: typeof text === "string" ? text : "", label: `Expression of ${name(i)}`, columns: () => this.columns(box), change: (next) => put(of().map((each, at) => (at === i ? [each[0], next] : each))) });
      const fault = h("p.wrong", { hidden: true });
      this.places.push({ parameter: field.name, item: i, element: found.element, fault, mark: found.mark });
      return [h("input.short", { value: name(i), "aria-label": `Name ${i + 1}`, spellcheck: "false", oninput: (event) => put(of().map((each, at) => (at === i ? [event.target.value, each[1]] : each))) }), h("div.grow", {}, found.element, fault)];
    }, "Add a column", again, () => [`c${values.length + 1}`, this.columns(box)[0] ?? "1"], label);
    const missing = this.columns(box).filter((column) => !values.some(([each]) => each === column));
    if (field.name === "columns" && missing.length) list.append(h("button.button.small", { type: "button", onclick: () => again([...missing.map((column) => [column, column]), ...values]) }, "All of the input"));
    return row(list);
  }

  /** @param {string|null} [none]  how nothing is called, where that may be chosen */
  pick(columns, value, change, label, none = null) {
    const known = value && !columns.includes(value) ? [...columns, value] : columns;
    return h("select", { "aria-label": label, onchange: (event) => change(event.target.value || null) }, ...(none === null && value ? [] : [option("", none ?? "choose a column", !value)]), ...known.map((each) => option(each, each, each === value)));
  }

  column({ box, field, value, put, row, label }) {
    return row(this.pick(this.columns(box), value, put, label, field.required ? null : "none"));
  }

  chips({ box, value, again, row }) {
    const chosen = value ?? [], columns = [...new Set([...chosen, ...this.columns(box)])];
    return row(h("div.chips", {}, ...columns.map((column) => h("button.chip", { type: "button", "aria-pressed": String(chosen.includes(column)), onclick: () => again(chosen.includes(column) ? chosen.filter((each) => each !== column) : [...chosen, column]) }, column))));
  }

  orders({ box, field, value, put, again, row, label }) {
    const of = () => this.box.params[field.name] ?? [], alter = (i, next) => put(of().map((each, at) => (at === i ? next(each) : each)));
    return row(this.list(value ?? [], ([column, down], i) => [this.pick(this.columns(box), column, (next) => alter(i, (each) => [next, each[1]]), `Order ${i + 1}`), h("select", { "aria-label": `Direction ${i + 1}`, onchange: (event) => alter(i, (each) => [each[0], event.target.value === "down"]) }, option("up", "ascending", !down), option("down", "descending", down))], "Add", again, () => [this.columns(box)[0] ?? "", true], label));
  }

  calls({ box, field, value, put, again, row, label }) {
    const of = () => this.box.params[field.name] ?? [], alter = (i, more) => put(of().map((each, at) => (at === i ? { $call: { ...each.$call, ...more } } : each)));
    return row(this.list(value ?? [], (told, i) => {
      const call = told.$call ?? {};
      if (call.made) return [h("p.code", {}, `${call.name}: an aggregator of Python`)];
      const fault = h("p.wrong", { hidden: true }), line = h("div.grow", {}, h("div.item", {}, h("input.short", { value: call.name ?? "", "aria-label": `Name of total ${i + 1}`, spellcheck: "false", oninput: (event) => alter(i, { name: event.target.value }) }),
        h("select", { "aria-label": `Function of total ${i + 1}`, onchange: (event) => alter(i, { function: event.target.value }) }, ...this.editor.forms.functions.map((each) => option(each, each, each === call.function))),
        this.pick(this.columns(box), call.column, (next) => alter(i, { column: next }), `Column of total ${i + 1}`, call.function === "count" || !call.column ? "*" : null)), fault);
      this.places.push({ parameter: field.name, item: i, element: line, fault });
      return [line];
    }, "Add a total", again, () => ({ $call: { name: `n${(value ?? []).length || ""}`, function: "count", column: null } }), label));
  }

  window({ box, value, again, put, row, field }) {
    const kind = value ? Object.keys(value)[0] : "", { draft } = this.editor, port = draft.judged.get(box.inputs?.[0]?.[0])?.ports?.[box.inputs?.[0]?.[1] ?? 0], time = port?.event_time ?? "ts";
    const fresh = { "": null, $time_window: { $time_window: { column: time, size_us: 60e6, slide_us: 60e6 } }, $session_window: { $session_window: { column: time, gap_us: 60e6 } }, $own_sessions: { $own_sessions: { column: time, ends: time } }, $row_window: { $row_window: { history: 100, slide: 1 } } };
    const kinds = [["", "all rows so far"], ["$time_window", "windows of time"], ["$session_window", "sessions"], ["$own_sessions", "sessions with gaps of their own"], ["$row_window", "the last rows"]].filter(([name]) => box.kind === "aggregate" || name === "$time_window" || (!name && !value));
    const select = h("select", { onchange: (event) => again(fresh[event.target.value]) }, ...kinds.map(([name, text]) => option(name, text, name === kind)));
    const part = (name, text, control) => h("label.part", {}, text, control);
    const held = value?.[kind] ?? {}, alter = (more) => put({ [kind]: { ...(this.box.params[field.name]?.[kind] ?? held), ...more } });
    const long = (name) => h("input", { value: span(held[name]), "aria-label": name.replace("_us", ""), onchange: (event) => alter({ [name]: spanned(event.target.value) }) }), count = (name) => h("input", { type: "number", min: "1", value: held[name], "aria-label": name, oninput: (event) => alter({ [name]: Number(event.target.value) }) });
    const parts = { $time_window: () => [part("size", "long", long("size_us")), part("slide", "every", long("slide_us"))], $session_window: () => [part("gap", "gap", long("gap_us"))], $own_sessions: () => [part("ends", "each row until", this.pick(this.columns(box), held.ends, (ends) => alter({ ends }), "Column with each row's end"))], $row_window: () => [part("history", "rows", count("history")), part("slide", "every", count("slide"))] }[kind]?.() ?? [];
    return row(h("div.list", {}, select, h("div.item", {}, ...parts)));
  }

  join({ box, value, put, again, row, label }) {
    const held = value?.with ?? { how: "inner", left_keys: [], right_keys: [], using: [], low_us: null, high_us: null, condition: null, suffix: null, unbounded: false };
    const now = () => this.box.params.join?.with ?? held, store = (more, anew = false) => (anew ? again : put)({ $kind: "Join", with: { ...now(), ...more } });
    const left = this.columns(box, 0), right = box.kind === "join" ? this.columns(box, 1) : left;
    const how = h("select", { onchange: (event) => store({ how: event.target.value }) }, ...["inner", "left", "right", "full", "semi", "anti"].map((each) => option(each, each, each === held.how)));
    const pairs = held.left_keys.map((key, i) => [key, held.right_keys[i]]), same = (list) => list.filter(([a, b]) => a === b).map(([a]) => a);
    const keep = (list, anew) => store({ left_keys: list.map(([a]) => a), right_keys: list.map(([, b]) => b), using: same(list) }, anew);
    const current = () => now().left_keys.map((key, i) => [key, now().right_keys[i]]);
    const keys = this.list(pairs, ([a, b], i) => [this.pick(left, a, (next) => keep(current().map((each, at) => (at === i ? [next, each[1]] : each))), `Left key ${i + 1}`), h("span", {}, "="), this.pick(right, b, (next) => keep(current().map((each, at) => (at === i ? [each[0], next] : each))), `Right key ${i + 1}`)], "Add a key", (list) => keep(list, true), () => [left[0] ?? "", right.includes(left[0]) ? left[0] : right[0] ?? ""], label);
    const condition = code({ value: held.condition ?? "", label: "Condition", columns: () => [...left.map((each) => `l.${each}`), ...right.map((each) => `r.${each}`)], change: (text) => store({ condition: text || null }), hint: "l.price > r.price" });
    const near = h("input", { value: held.high_us !== null && held.low_us === -held.high_us ? span(held.high_us) : "", placeholder: "any distance", onchange: (event) => {
      const us = event.target.value.trim() ? spanned(event.target.value) : null;
      store({ low_us: us === null ? null : -us, high_us: us });
    } });
    return row(h("div.list", {}, h("label.part", {}, "rows", how), h("span.part", {}, "equal in", keys), h("label.part", {}, "times apart at most", near), h("span.part", {}, "and", condition.element), h("label.part", {}, "suffix of right names", h("input", { value: held.suffix ?? "", oninput: (event) => store({ suffix: event.target.value || null }) }))), condition.mark);
  }

  names({ value, put, row }) {
    return row(h("input", { value: Array.isArray(value) ? value.join(", ") : value ?? "", spellcheck: "false", oninput: (event) => {
      const names = event.target.value.split(",").map((each) => each.trim()).filter(Boolean);
      put(names.length > 1 ? names : names[0] ?? "");
    } }));
  }

  /** A source or a sink: its kind, and the arguments of the function that makes it. */
  end({ box, field, value, row }) {
    const forms = this.editor.forms[`${field.name}s`], told = value?.[`$${field.name}`], holder = h("div.list");
    const stem = forms.find((form) => box.name === form.name || box.name.startsWith(`${form.name}_`)), kind = told?.kind ?? stem?.name ?? forms[0].name;
    const fill = async (chosen, given) => {
      const form = forms.find((each) => each.name === chosen), fault = h("p.wrong", { role: "alert", hidden: true });
      if (!form) return holder.replaceChildren(h("p.code", {}, `${chosen}: made in Python`));
      const arguments_ = { ...given };
      const make = async () => {
        try {
          const { value: next } = await this.ask("made", { end: field.name, kind: chosen, arguments: { ...arguments_ } });
          fault.hidden = true;
          this.set(box.name, (params) => (params[field.name] = next));
          return "";
        } catch (error) {
          fault.textContent = error.message;
          fault.hidden = false;
          const why = `${box.name}: ${error.message}`;
          if (!fault.isConnected) this.editor.drawer.tell(why);
          return why;
        }
      };
      let timer = 0;
      const now = () => {
        clearTimeout(timer);
        if (this.pending === now) this.pending = null;
        this.writing = this.writing.then(make);
      };
      const later = () => {
        if (this.pending !== now) this.pending?.();
        this.pending = now;
        clearTimeout(timer);
        timer = setTimeout(now, 350);
      };
      const set = (name, next) => {
        if (next === "" || next === null || Number.isNaN(next)) delete arguments_[name];
        else arguments_[name] = next;
        later();
      };
      const control = (argument) => {
        const held = arguments_[argument.name] ?? argument.default ?? "";
        if (argument.type === "choice") return h("select", { onchange: (event) => set(argument.name, argument.choices[event.target.selectedIndex]) }, ...argument.choices.map((each) => option(String(each), each === null ? "as it comes" : String(each), each === held)));
        if (argument.type === "flag") return h("input", { type: "checkbox", checked: held || null, onchange: (event) => set(argument.name, event.target.checked) });
        if (argument.type === "settings") return h("input", { value: Object.entries(held || {}).map(([a, b]) => `${a}=${b}`).join(", "), placeholder: "name=value, name=value", onchange: (event) => set(argument.name, event.target.value) });
        const many = argument.type === "columns", numeric = argument.type === "whole" || argument.type === "number";
        return h("input", { type: numeric ? "number" : "text", step: argument.type === "number" ? "any" : null, value: Array.isArray(held) ? held.join(", ") : held, spellcheck: "false", placeholder: argument.required ? "needed" : "", oninput: (event) => set(argument.name, numeric ? (event.target.value === "" ? "" : Number(event.target.value)) : many ? event.target.value.split(",").map((each) => each.trim()).filter(Boolean) : event.target.value) });
      };
      const shown = form.fields.filter((each) => each.type !== "code"), line = (argument) => this.row(argument.name.replace(/_/g, " "), control(argument), argument.doc);
      const rare = shown.filter((each) => each.more);
      holder.replaceChildren(...shown.filter((each) => !each.more).map(line), rare.length ? h("details", {}, h("summary", {}, "More"), ...rare.map(line)) : "", fault);
    };
    const choose = h("select", { "aria-label": `Kind of ${field.name}`, onchange: (event) => fill(event.target.value, {}) }, ...forms.filter((form) => form.name !== "memory" || field.name === "sink" || kind === "memory").map((form) => option(form.name, form.title, form.name === kind)));
    if (told) this.ask("arguments", { value }).then(({ arguments: found }) => (found ? fill(told.kind, found) : holder.replaceChildren(h("p.soft", {}, "It was made in Python, or by asking somebody; choose a kind to make it anew.")))).catch(() => {});
    else fill(kind, {});
    return row(h("div.list", {}, choose, holder));
  }

  /** What the server says of the box. */
  judged() {
    const box = this.box, told = box && this.editor.draft.judged.get(box.name);
    if (!box) return;
    const exact = told?.error && this.places.some((place) => place.parameter === told.parameter && (place.item ?? null) === (told.item ?? null) && place.parameter);
    for (const place of this.places) {
      const here = told?.error && told.state !== "locked" && (exact ? place.parameter === told.parameter && (place.item ?? null) === (told.item ?? null) : place.parameter === (this.places.some((each) => each.parameter === told.parameter) ? told.parameter : "") && place.item === null);
      place.fault.hidden = !here;
      if (here) place.fault.textContent = told.error.replace(`box '${box.name}': `, "").replace(/^./, (c) => c.toUpperCase());
      mark(place.element, "data-wrong", here && place.parameter ? "" : null);
      place.mark?.(here && told.start !== undefined ? told : null);
    }
    const ports = told?.ports ?? [];
    this.gives?.replaceChildren(...(ports.length ? ports.map((port) => h("div.port", {}, port.name ? h("b", {}, port.name) : "", h("ul", {}, ...port.ddl.split(/, (?![^<(]*[>)])/).map((column) => {
      const at = column.lastIndexOf(" ", column.indexOf("<") > 0 ? column.indexOf("<") : undefined);
      return h("li", {}, h("span", {}, column.slice(0, at < 0 ? undefined : at)), h("span.soft", {}, at < 0 ? "" : column.slice(at + 1)));
    })))) : [h("p.soft", {}, told?.state === "waiting" ? `Waits for ${told.waits_for.join(", ")}.` : box.kind === "sink" ? "Nothing: rows end here." : told?.state === "locked" ? told.error : "Nothing yet.")]));
  }
}
