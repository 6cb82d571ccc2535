// A profile of a site: a bar per frame below the one that called it, as wide as its share; and the same as a table.

import { css, h, mark, write } from "./dom.js";
import { ms, percent, seconds, whole } from "./format.js";

/** @typedef {{site: number, seconds: number, samples: number, cpu_us: number, own_us: number, frames: string[], boxes: {box: string, cpu_us: number, time_us: number}[], stacks: {frames: number[], cpu_us: number, time_us: number}[]}} Profile */
/** @typedef {{name: string, value: number, alone: number, calls: Map<string, Bar>, by: Bar|null, depth: number, kind: string}} Bar */
/** @typedef {"cpu_us"|"time_us"} Measure */

const NARROWEST = 0.002;
const ROW_PX = 19;
const MEASURES = /** @type {[Measure, string][]} */ ([["cpu_us", "CPU"], ["time_us", "time, waiting included"]]);
const WAYS = [["graph", "flame graph"], ["table", "table"]];
const TABLE_ROWS = 200;

export class Flame {
  /** @param {Profile} profile */
  constructor(profile) {
    this.profile = profile;
    /** @type {Measure} */ this.measure = "cpu_us";
    this.way = "graph";
    this.root = this.at = treeOf(profile, this.measure);
    /** @type {Map<HTMLElement, Bar>} */ this.bars = new Map();
    /** @type {Map<Bar, HTMLElement>} */ this.drawn = new Map();
    this.graph = h("div.flame", { role: "tree", "aria-label": "Frames, callers above what they call" });
    this.about = h("p.about", { "data-shortened": true });
    this.body = h("tbody");
    this.table = h("div.scroll", { hidden: true, tabindex: "0", "aria-label": "Boxes and functions" }, h("table", {}, h("thead", {}, h("tr", {}, h("th", {}, "Box or function"), h("th.num", {}, "By itself"), h("th.num", {}, "With what it calls"), h("th.num", {}, "Share"))), this.body));
    this.measures = MEASURES.map(([name, text]) => h("button", { type: "button", onclick: () => this.turn(name, this.way) }, text));
    this.ways = WAYS.map(([name, text]) => h("button", { type: "button", onclick: () => this.turn(this.measure, name) }, text));
    const looked = profile.seconds ? profile.own_us / 1e6 / profile.seconds : 0;
    this.element = h(
      "div.profile", {},
      h("p.soft", {}, `Site ${profile.site}: ${seconds(profile.cpu_us / 1e6)} of CPU in ${seconds(profile.seconds)}, ${whole(profile.samples)} samples, which cost ${percent(looked)} of a core.`),
      h("div.toggles", {}, h("div.toggle", { role: "group", "aria-label": "What is measured" }, ...this.measures), h("div.toggle", { role: "group", "aria-label": "How it is shown" }, ...this.ways)),
      h("div.scroll.tall", { tabindex: "-1" }, this.graph), this.about, this.table,
    );
    this.graph.addEventListener("keydown", (event) => this.key(event));
    this.turn("cpu_us", "graph");
  }

  /** @param {Measure} measure @param {string} way */
  turn(measure, way) {
    this.measure = measure;
    this.way = way;
    MEASURES.forEach(([name], i) => mark(this.measures[i], "aria-pressed", String(name === measure)));
    WAYS.forEach(([name], i) => mark(this.ways[i], "aria-pressed", String(name === way)));
    this.table.hidden = way !== "table";
    /** @type {HTMLElement} */ (this.graph.parentElement).hidden = this.about.hidden = way !== "graph";
    this.root = treeOf(this.profile, measure);
    this.zoom(this.root);
    this.fill();
  }

  /** Draw this bar as wide as there is room, what called it above it, what it calls below. @param {Bar} at */
  zoom(at) {
    this.at = at;
    this.bars.clear();
    this.drawn.clear();
    const elements = [];
    let deepest = 0;
    /** @param {Bar} bar @param {number} left @param {number} width */
    const draw = (bar, left, width) => {
      const share = this.root.value ? bar.value / this.root.value : 0;
      const element = h(`div.bar.${bar.kind}`, { role: "treeitem", tabindex: "-1", "aria-level": String(bar.depth + 1), "aria-label": `${bar.name}, ${percent(share)}, ${ms(bar.value / 1000)}`, "data-shortened": true, onclick: () => this.choose(bar), onmouseenter: () => this.tell(bar), onfocus: () => this.tell(bar) }, brief(bar.name));
      css(element, "left", `${left * 100}%`);
      css(element, "width", `${width * 100}%`);
      css(element, "top", `${bar.depth * ROW_PX}px`);
      elements.push(element);
      this.bars.set(element, bar);
      this.drawn.set(bar, element);
      deepest = Math.max(deepest, bar.depth);
    };
    for (let bar = at.by; bar; bar = bar.by) draw(bar, 0, 1);
    elements.reverse();
    /** @type {[Bar, number][]} */ const waiting = [[at, 0]];
    for (let next = waiting.pop(); next; next = waiting.pop()) {
      const [bar, left] = next, width = at.value ? bar.value / at.value : 1;
      if (width < NARROWEST) continue;
      draw(bar, left, width);
      let begin = left;
      for (const call of callsOf(bar)) {
        waiting.push([call, begin]);
        begin += call.value / at.value;
      }
    }
    this.graph.replaceChildren(...elements);
    css(this.graph, "height", `${(deepest + 1) * ROW_PX}px`);
    mark(/** @type {HTMLElement} */ (this.drawn.get(at)), "tabindex", "0");
    this.tell(at);
  }

  /** @param {Bar} bar */
  choose(bar) {
    this.zoom(bar === this.at && bar.by ? this.root : bar);
    this.focus(bar);
  }

  /** @param {Bar} bar */
  focus(bar) {
    const element = this.drawn.get(bar);
    if (!element) return;
    for (const each of this.bars.keys()) mark(each, "tabindex", each === element ? "0" : "-1");
    element.focus();
  }

  /** @param {Bar} bar */
  tell(bar) {
    const all = this.root.value || 1;
    write(this.about, `${bar.name}: ${percent(bar.value / all)}, ${ms(bar.value / 1000)}; by itself ${percent(bar.alone / all)}`);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const bar = this.bars.get(/** @type {HTMLElement} */ (document.activeElement));
    if (!bar) return;
    const beside = bar.by ? callsOf(bar.by).filter((each) => this.drawn.has(each)) : [bar], place = beside.indexOf(bar);
    /** @type {Record<string, () => void>} */
    const keys = {
      ArrowUp: () => bar.by && this.focus(bar.by),
      ArrowDown: () => this.focus(callsOf(bar).reduce((most, each) => (each.value > most.value ? each : most), callsOf(bar)[0] ?? bar)),
      ArrowLeft: () => this.focus(beside[place - 1] ?? bar), ArrowRight: () => this.focus(beside[place + 1] ?? bar),
      Home: () => this.choose(this.root), Enter: () => this.choose(bar), " ": () => this.choose(bar),
    };
    if (!(event.key in keys)) return;
    event.preventDefault();
    keys[event.key]();
  }

  fill() {
    /** @type {Map<string, {alone: number, whole: number}>} */ const found = new Map();
    for (const stack of this.profile.stacks) {
      const value = stack[this.measure], names = stack.frames.map((place) => this.profile.frames[place]);
      for (const name of new Set(names)) {
        const row = found.get(name) ?? { alone: 0, whole: 0 };
        row.whole += value;
        if (name === names.at(-1)) row.alone += value;
        found.set(name, row);
      }
    }
    const all = this.root.value || 1;
    /** @param {[string, any]} row */ const box = ([name]) => Number(name.startsWith("box "));
    const rows = [...found].filter(([, row]) => row.whole > 0).sort((a, b) => box(b) - box(a) || (box(a) ? b[1].whole - a[1].whole : b[1].alone - a[1].alone || b[1].whole - a[1].whole)).slice(0, TABLE_ROWS);
    this.body.replaceChildren(...rows.map(([name, row]) => h("tr", {}, h("td.name", {}, name), h("td.num", {}, ms(row.alone / 1000)), h("td.num", {}, ms(row.whole / 1000)), h("td.num", {}, percent(row.whole / all)))));
  }
}

/** A function without its package and module, which a narrow bar has no room for. @param {string} name */
const brief = (name) => name.replace(/^(?:[a-z_]\w*\.)+(?=\w)/, "");

/** @param {Bar} bar  by name, as the picture of the command */
const callsOf = (bar) => [...bar.calls.values()].sort((a, b) => (a.name < b.name ? -1 : 1));

/** @param {Profile} profile @param {Measure} measure @returns {Bar} */
function treeOf(profile, measure) {
  /** @param {string} name @param {Bar|null} by @returns {Bar} */
  const made = (name, by) => ({ name, value: 0, alone: 0, calls: new Map(), by, depth: by ? by.depth + 1 : 0, kind: name.startsWith("box ") ? "of-box" : by?.kind === "of-box" || by?.kind === "within" ? "within" : name.startsWith("(") ? "aside" : "engine" });
  const root = made(`site ${profile.site}`, null);
  for (const stack of profile.stacks) {
    const value = stack[measure];
    if (!value) continue;
    let at = root;
    at.value += value;
    for (const [depth, place] of stack.frames.entries()) {
      const name = profile.frames[place];
      if (!depth && name === root.name) continue; // The root itself.
      let next = at.calls.get(name);
      if (!next) at.calls.set(name, (next = made(name, at)));
      at = next;
      at.value += value;
    }
    at.alone += value;
  }
  return root;
}
