// What sites have warned of: the newest lines, and how many there have been. The card comes with the first one.

import { h, keyed, mark, write } from "./dom.js";
import { counted } from "./format.js";

/** @typedef {import("./model.js").View} View */

/** Rows on which boxes raised, where the engine keeps them. */
export class Failed {
  constructor() {
    this.body = h("tbody");
    this.element = h(
      "section.card.wide.at-failed", { "aria-label": "Failed rows", hidden: true }, h("header", {}, h("h2", {}, "Failed rows"), h("span.soft", {}, "the newest of each box, left out of its results")),
      h("div.scroll", { tabindex: "0", "aria-label": "Failed rows, one per line" }, h("table.failed", {}, h("thead", {}, h("tr", {}, ...["Box", "Row", "Error"].map((name) => h("th", { scope: "col" }, name)))), this.body)),
    );
  }

  /** @param {View} view */
  show(view) {
    this.element.hidden = !view.failed.length;
    keyed(this.body, view.failed.toReversed().map((each, i) => ({ ...each, i })), (each) => `${each.i}`, () => h("tr", {}, h("td"), h("td"), h("td")), (row, each) => {
      [each.box, each.row, each.error].forEach((text, i) => write(row.children[i], text));
    });
  }
}

export class Logs {
  constructor() {
    this.count = h("span.soft");
    this.list = h("ol.logs", { tabindex: "0", "aria-label": "Warnings of sites, newest first" });
    this.element = h("section.card.at-logs", { "aria-label": "Warnings", hidden: true }, h("header", {}, h("h2", {}, "Warnings of sites"), this.count), this.list);
  }

  /** @param {View} view */
  show(view) {
    this.element.hidden = !view.logsCount;
    if (!view.logsCount) return;
    write(this.count, view.logsCount > view.logs.length ? `the newest ${view.logs.length} of ${counted(view.logsCount, "line")}` : counted(view.logsCount, "line"));
    keyed(
      this.list, view.logs.toReversed(), (line) => String(line.number), () => h("li", {}, h("time"), h("span.level"), h("p", {}, h("b"), " ", h("span"), h("small"))),
      (element, line) => {
        const [time, level, text] = element.children;
        write(time, new Date(line.at_us / 1000).toLocaleTimeString([], { hour12: false }));
        write(level, line.level === "WARNING" ? "warn" : line.level.toLowerCase());
        mark(level, "data-tone", line.level === "WARNING" ? "warn" : "bad");
        write(text.children[0], `site ${line.site}`);
        write(text.children[1], line.text);
        write(text.children[2], line.logger);
      },
    );
  }
}
