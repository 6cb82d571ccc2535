// Sites as a table, and what else a run says where it says it: checkpoints, the journal, tables, topics, user code that does not return.

import { css, h, keyed, mark, write } from "./dom.js";
import { bytes, counted, DASH, ms, percent, perSecond, seconds, whole } from "./format.js";
import { heat } from "./heat.js";

/** @typedef {import("./model.js").View} View @typedef {import("./model.js").SiteView} SiteView */

/** @type {[string, string, (site: SiteView) => string][]} */
const COLUMNS = [
  ["Executor", "", (site) => site.executor], ["Host", "", (site) => site.host], ["Replicas", "num", (site) => whole(site.partitions) + (site.coming ? ` +${whole(site.coming)}` : "")],
  ["Rows in", "num", (site) => perSecond(site.rowsPerS)], ["CPU", "num", (site) => percent(site.cpu)], ["State", "num", (site) => bytes(site.state)],
  ["On disk", "num", (site) => bytes(site.spilled)], ["Waiting", "num", (site) => bytes(site.waiting)], ["Memory", "num", (site) => bytes(site.memory)],
];

const FIRST = /** @type {Record<string, number>} */ ({ dead: 0, leaving: 1, joining: 1, starting: 1, left: 3 });
/** Those that somebody should look at come first where not all are seen at once. @param {SiteView[]} sites @param {number} seen */
export const troubledFirst = (sites, seen) => sites.length <= seen ? sites : [...sites].sort((one, other) => (FIRST[one.role ?? "starting"] ?? 2) - (FIRST[other.role ?? "starting"] ?? 2));
/** Rows of the table that are seen without scrolling. */
const SEEN = 12;

export class Sites {
  constructor() {
    this.body = h("tbody");
    this.element = h(
      "section.card", { "aria-label": "Sites" }, h("header", {}, h("h2", {}, "Sites")),
      h("div.scroll", { tabindex: "0", "aria-label": "Sites, one per row" }, h("table", {}, h("thead", {}, h("tr", {}, h("th", {}, "Site"), h("th", {}, "Role"), h("th", {}, "Busy"), ...COLUMNS.map(([name, kind]) => h(kind ? "th.num" : "th", {}, name)))), this.body)),
    );
  }

  /** @param {View} view */
  show(view) {
    keyed(
      this.body, troubledFirst(view.sites, SEEN), (site) => String(site.site),
      () => h("tr", {}, h("td"), h("td", {}, h("span.role")), h("td", {}, h("div.bar", {}, h("i"), h("span"))), ...COLUMNS.map(([, kind]) => h(kind ? "td.num" : "td"))),
      (row, site) => {
        mark(row, "data-role", site.role);
        write(row.children[0], String(site.site));
        const role = row.children[1].children[0], bar = /** @type {HTMLElement} */ (row.children[2].children[0]), dead = site.role === "dead" || site.role === "left";
        write(role, site.role ?? "starting");
        mark(role, "data-role", site.role);
        css(bar, "--busy", dead ? 0 : site.busy ?? 0);
        css(bar, "--heat", heat(site.busy));
        write(bar.children[1], dead ? DASH : percent(site.busy));
        COLUMNS.forEach(([, , text], i) => write(row.children[3 + i], dead && i > 1 ? DASH : text(site)));
      },
    );
  }
}

export class Facts {
  constructor() {
    this.list = h("dl.facts");
    this.element = h("section.card.at-facts", { "aria-label": "Safety", hidden: true }, h("header", {}, h("h2", {}, "Checkpoints and sources")), this.list);
  }

  /** @param {View} view */
  show(view) {
    const { checkpoint, journal } = view;
    /** @type {[string, string, string][]} */ const facts = [];
    if (checkpoint) {
      const age = checkpoint.age_s === null ? "none yet" : `${seconds(checkpoint.age_s)} ago, epoch ${whole(checkpoint.epoch)}`;
      const under = checkpoint.under_way === null ? "" : `, ${checkpoint.under_way} under way`;
      facts.push(["Checkpoint", checkpoint.number === null ? DASH : whole(checkpoint.number), `${age}${under}`]);
      facts.push(["Its size", bytes(checkpoint.bytes), checkpoint.failures ? `${checkpoint.failures} dropped since` : checkpoint.seconds === null ? "" : `made in ${seconds(checkpoint.seconds)}`]);
    }
    if (journal) facts.push(["Journal", whole(journal.durable), journal.age_s >= 1 ? `waits for ${seconds(journal.age_s)}` : `append ${ms(journal.append_ms)}`]);
    if (journal && journal.clock_behind_s >= 1) facts.push(["Driver's clock", `${seconds(journal.clock_behind_s)} behind`, "the journal's times: timers take twice as long"]);
    for (const each of view.behind) facts.push([`Behind ${each.topic}`, whole(each.messages), `messages, source ${each.source}`]);
    for (const each of view.tables) facts.push([`Table ${each.table}`, `${whole(each.rows)} rows`, each.error ?? `read ${seconds(each.read_s)} ago`]);
    for (const each of view.slow) facts.push(["Does not return", each.box, `site ${each.site}, epoch ${whole(each.epoch)}, ${seconds(each.seconds)}`]);
    if (view.movedWhole.length) facts.push(["Hot keys", counted(view.movedWhole.length, "segment"), "can only be moved whole"]);
    this.element.hidden = !facts.length;
    keyed(this.list, facts, ([name]) => name, () => h("div", {}, h("dt"), h("dd", {}, h("span"), h("small"))), (element, [name, value, more]) => {
      write(element.children[0], name);
      write(element.children[1].children[0], value);
      write(element.children[1].children[1], more);
    });
  }
}
