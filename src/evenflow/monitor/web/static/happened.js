// What happened, newest first: copies to a site and the steps of a move are one line each that grows.

import { h, keyed, mark, write } from "./dom.js";
import { at, bytes, counted, ms } from "./format.js";
import { kindOf } from "./kinds.js";

const SHOWN = 200;
/** Events that are kept, of a run: as many as the server keeps. */
export const KEPT = 2000;

/** @typedef {{key: string, at: number, kind: string, text: string, site: number|null}} Entry */

/** Events as lines. Pure. @param {any[]} events  in order of time @param {number} first  how many there were before these @returns {Entry[]} */
export function entries(events, first = 0) {
  /** @type {Entry[]} */ const found = [];
  /** @type {Map<number, {entry: Entry, begun: number, live: number, from: number}>} */ let copying = new Map();
  /** @type {Map<number, Entry>} */ const moves = new Map();
  for (const [place, event] of events.entries()) {
    const number = first + place;
    const { kind, site, at_s: when } = event;
    if (kind === "copy_begun" || kind === "copy_live") {
      let group = copying.get(site);
      if (!group) {
        group = { entry: { key: `c${number}`, at: when, kind: "copies", text: "", site }, begun: 0, live: 0, from: when };
        copying.set(site, group);
        found.push(group.entry);
      }
      const count = Number(/^(\d+)/.exec(event.text)?.[1] ?? 0);
      if (kind === "copy_begun") group.begun += count;
      else group.live += count;
      const more = group.begun - group.live;
      group.entry.text = `${counted(group.live, "partition")} copied to site ${site}` + (more > 0 ? `, ${more} more under way` : `, in ${(when - group.from).toFixed(2)} s`);
    } else if (kind === "move_begun" || kind === "move_done" || kind === "move_dropped") {
      let entry = moves.get(event.number);
      if (!entry) found.push((entry = { key: `m${number}`, at: when, kind: "move", text: "", site }));
      moves.set(event.number, entry);
      entry.kind = kind === "move_dropped" ? "move_dropped" : "move";
      entry.text = moved(event);
    } else {
      found.push({ key: `e${number}`, at: when, kind, text: String(event.text).replace(/: on executor .*?\): /, ": "), site });
      if (kind === "redundancy" || kind === "site_lost") copying = new Map();
    }
  }
  return found;
}

/** @param {any} event */
function moved(event) {
  const count = Array.isArray(event.partitions) ? event.partitions.length : event.partitions;
  if (count === undefined || event.target === undefined) return String(event.text);
  let text = `${counted(count, "partition")} of ${event.segment}, site ${event.source} → ${event.target}`;
  if (event.kind === "move_done") text += `: ${bytes(Number(event.bytes))} in ${Number(event.seconds).toFixed(2)} s, stall < ${ms(Number(event.stall_ms))}`;
  return text + (event.kind === "move_dropped" ? ", given up" : event.kind === "move_begun" ? ", under way" : "");
}

export class Happened {
  /** @param {HTMLElement} aloud */
  constructor(aloud) {
    this.aloud = aloud;
    this.list = h("ol.happened", { tabindex: "0", "aria-label": "What happened, newest first" });
    this.empty = h("p.empty", {}, "Nothing yet. Kills, take-overs, moves and checkpoints stand here as they come.");
    this.element = h("section.card.at-happened", { "aria-label": "What happened" }, h("header", {}, h("h2", {}, "What happened")), this.empty, this.list);
    /** @type {any[]} */ this.events = [];
    this.forgotten = 0;
    this.first = true;
  }

  /** Another run. */
  restart() {
    this.events = [];
    this.forgotten = 0;
    this.first = true;
    this.list.replaceChildren();
  }

  /** @param {any[]} events  new ones */
  take(events) {
    if (!events.length && !this.first) return;
    this.events.push(...events);
    this.forgotten += this.events.splice(0, Math.max(0, this.events.length - KEPT)).length;
    const shown = entries(this.events, this.forgotten).slice(-SHOWN).reverse();
    this.empty.hidden = shown.length > 0;
    this.list.hidden = !shown.length;
    keyed(
      this.list, shown, (entry) => entry.key,
      () => h(`li${this.first ? "" : ".fresh"}`, {}, h("time"), h("span.dot", { "aria-hidden": "true" }), h("p", {}, h("b"), " ", h("span"))),
      (element, entry) => {
        mark(element, "data-tone", kindOf(entry.kind).tone);
        mark(element, "data-kind", entry.kind);
        const [time, , text] = element.children;
        write(time, at(entry.at));
        write(text.children[0], kindOf(entry.kind).name);
        write(text.children[1], entry.text);
      },
    );
    const loud = events.filter((event) => kindOf(event.kind).aloud).at(-1);
    if (loud && !this.first) write(this.aloud, `${kindOf(loud.kind).name}: ${loud.text}`);
    this.first = false;
  }
}
